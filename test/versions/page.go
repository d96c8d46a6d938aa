package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab/programs"
)

//go:embed page.md
var pageText string

var pageTemplate = template.Must(template.New("page").Option("missingkey=error").Funcs(template.FuncMap{"rows": rows}).Parse(pageText))

// rows are those of a table.
func rows(table [][]string) string {
	var b strings.Builder
	for _, cells := range table {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	return b.String()
}

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
	versions, err := versionRows(root, all)
	if err != nil {
		return "", err
	}
	var needed, sidecars [][]string
	for _, f := range features {
		needed = append(needed, []string{f.since, f.what, f.before})
	}
	for _, name := range slices.Sorted(maps.Keys(chart.sidecars)) {
		sidecars = append(sidecars, []string{name, chart.sidecars[name]})
	}
	var b strings.Builder
	err = pageTemplate.Execute(&b, map[string]any{
		"Versions": versions, "Oldest": chart.kubeVersion, "Features": needed, "Sidecars": sidecars, "Families": familyRows(),
		"Filesystems": strings.Join(disk.Filesystems(), ", "), "Kernels": kernelRows(all), "Limits": limitRows(),
	})
	return b.String(), err
}

// versionRows has a row for each version.
func versionRows(root string, all results) (table [][]string, err error) {
	for _, v := range slices.Backward(programs.Versions) {
		release, err := v.Release(root)
		if err != nil {
			return nil, err
		}
		row := []string{string(v), release}
		var commits []string
		for _, s := range suites {
			got, ok := all[v][s.name]
			if !ok {
				row = append(row, "not run yet")
				continue
			}
			row = append(row, got.cell()+otherRelease(got.Kubernetes, release))
			if at := got.Commit + " (" + got.Date + ")"; !slices.Contains(commits, at) {
				commits = append(commits, at)
			}
		}
		table = append(table, append(row, strings.Join(commits, ", ")))
	}
	return table, nil
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

// familyRows are the instance families that the simulated ECS knows.
func familyRows() (table [][]string) {
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
		table = append(table, []string{"`" + name + "`", device, disks, "`" + cmp.Or(f.categories, "cloud") + "`"})
	}
	return table
}

// kernelRows are what nodes had in the runs.
func kernelRows(all results) (table [][]string) {
	for _, v := range slices.Backward(programs.Versions) {
		if got, ok := all[v]["storage"]; ok {
			m := got.Machine
			table = append(table, []string{string(v), m.Kernel, m.Containerd, m.E2fsprogs, m.Xfsprogs})
		}
	}
	return table
}

// limitRows are the limits of disks.
func limitRows() (table [][]string) {
	for _, c := range disk.Categories() {
		traits, _ := c.Traits()
		zones, several := "one", "no"
		if traits.Regional {
			zones = "all of the region"
		}
		if traits.MultiAttach {
			several = "block volumes, with `multiAttach`"
		}
		table = append(table, []string{"`" + string(c) + "`", fmt.Sprint(traits.Size), zones, several})
	}
	return table
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
