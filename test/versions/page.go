package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab/programs"
)

const pageHead = `# Compatibility

Made by ` + "`make e2e-versions`" + ` from what it has run, from the chart and from the tables in the code. Anything not listed as run was
not run.

## Kubernetes

`

const suitesText = `
What was run was built from published Go modules. *Demo* is ` + "`make demo`" + `; *end-to-end* are the tests of ` + "`make e2e`" + ` on a control plane of
that version; *storage* is the quick part of Kubernetes' own storage tests of that version, on real nodes with its kubelet
([conformance.md](conformance.md) has all of them, on the version named there). A cell gives tests passed, failed and skipped. The
simulated ECS stands for the real one throughout.

The chart installs on Kubernetes ` + "`%s`" + `. The programs of 1.31 and 1.32 can't be built from published modules, so no control plane of
theirs was run. ` + "`make chart`" + ` decodes everything that the chart renders strictly with the published API types of 1.31, which those of
1.32 include: all fields are known, and so is the kind of every resource that the roles name, but for VolumeAttributesClasses. What
this can't show is how their API servers, controllers and kubelets behave.

| since | what it is needed for | before |
|---|---|---|
`

// feature is what the chart has for some versions only.
type feature struct{ since, what, before string }

// features are those that the chart's templates ask the version of Kubernetes for.
var features = []feature{
	{"1.34", "`volumeAttributesClasses`: storage.k8s.io/v1 has VolumeAttributesClass", "the chart refuses the value"},
	{"1.34", "`csiDriver.nodeAllocatableUpdatePeriodSeconds`: how many volumes a node takes is asked again", "the field is left out: the number is asked for when the node plugin registers"},
	{"1.36", "`csiDriver.preventPodSchedulingIfMissing`: Pods stay off nodes without the node plugin", "the field is left out"},
}

// chart is what the page needs of the chart.
type chart struct {
	kubeVersion string
	sidecars    map[string]string // versions by name
}

func readChart(root string) (c chart, err error) {
	dir := filepath.Join(root, "charts", "topodisk")
	var description struct {
		KubeVersion string `json:"kubeVersion"`
	}
	values := map[string]any{}
	for name, into := range map[string]any{"Chart.yaml": &description, "values.yaml": &values} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return c, err
		}
		if err := yaml.Unmarshal(text, into); err != nil {
			return c, fmt.Errorf("%s: %w", name, err)
		}
	}
	c = chart{kubeVersion: description.KubeVersion, sidecars: map[string]string{}}
	for key, value := range values {
		if name, ok := strings.CutPrefix(key, "csi"); ok {
			if fields, _ := value.(map[string]any); fields["tag"] != nil {
				c.sidecars["csi-"+strings.ToLower(name)] = fmt.Sprint(fields["tag"])
			}
		}
	}
	return c, nil
}

// render makes the page.
func render(root string) (string, error) {
	all, err := readResults(root)
	if err != nil {
		return "", err
	}
	chart, err := readChart(root)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(pageHead)
	if err := writeVersions(&b, root, all); err != nil {
		return "", err
	}
	fmt.Fprintf(&b, suitesText, chart.kubeVersion)
	for _, f := range features {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", f.since, f.what, f.before)
	}
	b.WriteString("\n## Sidecars\n\nThe versions that the chart installs, and that the tests run.\n\n| sidecar | version |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(chart.sidecars)) {
		fmt.Fprintf(&b, "| %s | %s |\n", name, chart.sidecars[name])
	}
	writeFamilies(&b)
	writeKernels(&b, all)
	writeLimits(&b)
	return b.String(), nil
}

// writeVersions writes a row for each version.
func writeVersions(b *strings.Builder, root string, all results) error {
	b.WriteString("| version | release | demo | end-to-end | storage | at commit |\n|---|---|---|---|---|---|\n")
	for _, v := range slices.Backward(programs.Versions) {
		release, err := v.Release(root)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "| %s | %s |", v, release)
		var commits []string
		for _, s := range suites {
			got, ok := all[v][s.name]
			if !ok {
				b.WriteString(" not run yet |")
				continue
			}
			fmt.Fprintf(b, " %s%s |", got.cell(), otherRelease(got.Kubernetes, release))
			if at := got.Commit + " (" + got.Date + ")"; !slices.Contains(commits, at) {
				commits = append(commits, at)
			}
		}
		fmt.Fprintf(b, " %s |\n", strings.Join(commits, ", "))
	}
	return nil
}

// cell is a result in a table. The demo is one test.
func (o outcome) cell() string {
	switch o.counts {
	case counts{Passed: 1}:
		return "passed"
	case counts{Failed: 1}:
		return "failed"
	}
	return fmt.Sprintf("%d passed, %d failed, %d skipped", o.Passed, o.Failed, o.Skipped)
}

// otherRelease says so where a result is of another release than the one that is pinned now.
func otherRelease(of, pinned string) string {
	if of == pinned {
		return ""
	}
	return " (" + of + ")"
}

// family is what the types of an instance family have in common.
type family struct {
	nvme        string
	least, most int // data disks
	categories  string
}

// made lists those of some categories that the driver makes disks of.
func made(categories []string) string {
	known := disk.Categories()
	return strings.Join(slices.DeleteFunc(slices.Clone(categories), func(c string) bool { return !slices.Contains(known, disk.Category(c)) }), "`, `")
}

// writeFamilies writes the table of instance families that the simulated ECS knows.
func writeFamilies(b *strings.Builder) {
	b.WriteString(`
## Instance families

The driver asks ECS what an instance can take ([node-facts.md](node-facts.md)), so it has no list of families. These are the ones
that the simulated ECS has, with the figures of public pages.

| family | disks are | data disks | disk types |
|---|---|---|---|
`)
	families := map[string]family{}
	for _, t := range ecssim.InstanceTypes() {
		name := t.Family
		if name == "" {
			name = t.ID[:len("ecs.")+strings.IndexAny(t.ID[len("ecs."):], "-.")]
		}
		f := family{nvme: t.NVMe, least: t.DiskQuantity - 1, most: t.DiskQuantity - 1, categories: made(t.Categories)}
		if known, ok := families[name]; ok {
			f.least, f.most = min(f.least, known.least), max(f.most, known.most)
		}
		families[name] = f
	}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		f := families[name]
		device := "virtio"
		if f.nvme == "required" {
			device = "NVMe"
		}
		disks := fmt.Sprint(f.least)
		if f.most > f.least {
			disks += " to " + fmt.Sprint(f.most)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | `%s` |\n", name, device, disks, cmp.Or(f.categories, "cloud"))
	}
}

// writeKernels writes what nodes need, and what they had in the runs.
func writeKernels(b *strings.Builder, all results) {
	fmt.Fprintf(b, `
## Kernels and file systems

File systems are %s. A new xfs has by default the features that Linux mounts since 4.19; with `+"`xfsFeatures: latest`"+` in the
class it has those of the installed mkfs.xfs, which need Linux 5.10 ([node.md](node.md)). In the runs of *storage* nodes had:

`, strings.Join(disk.Filesystems(), ", "))
	b.WriteString("| Kubernetes | Linux | containerd | e2fsprogs | xfsprogs |\n|---|---|---|---|---|\n")
	for _, v := range slices.Backward(programs.Versions) {
		got, ok := all[v]["storage"]
		if !ok {
			continue
		}
		m := got.Machine
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", v, m.Kernel, m.Containerd, m.E2fsprogs, m.Xfsprogs)
	}
}

// writeLimits writes the limits of disks.
func writeLimits(b *strings.Builder) {
	b.WriteString(`
## Limits

[node.md](node.md#how-many-volumes) says how many volumes a node has, [parameters.md](parameters.md) what else each type takes.

| disk type | sizes | zones | several instances |
|---|---|---|---|
`)
	for _, c := range disk.Categories() {
		traits, _ := c.Traits()
		zones, several := "one", "no"
		if traits.Regional {
			zones = "all of the region"
		}
		if traits.MultiAttach {
			several = "block volumes, with `multiAttach`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", c, traits.Size, zones, several)
	}
}

var asked = regexp.MustCompile(`semverCompare "[<>=]+(1\.\d+)`)

// versionsAsked are those that the chart's templates compare the version of Kubernetes to.
func versionsAsked(root string) (versions []string, err error) {
	files, err := filepath.Glob(filepath.Join(root, "charts", "topodisk", "templates", "*"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, found := range asked.FindAllSubmatch(text, -1) {
			versions = append(versions, string(found[1]))
		}
	}
	return versions, nil
}
