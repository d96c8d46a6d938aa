package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/test/golden"
)

// kubernetes marks places in the source of Kubernetes, below its root.
const kubernetes = "kubernetes:"

// said is where each message occurs that is a heading of docs/troubleshooting.md and that no recorded facts have: in a transcript of
// the driver's answers, or in the source of what says it.
var said = map[string]string{
	"driver name diskplugin.csi.alibabacloud.com not found in the list of registered CSI drivers": kubernetes + "pkg/volume/csi/csi_client.go",

	"pod has unbound immediate PersistentVolumeClaims": kubernetes + "pkg/scheduler/framework/plugins/volumebinding/volume_binding.go",
	"already bound to a different claim":               kubernetes + "pkg/controller/volume/persistentvolume/pv_controller.go",
	"CSI driver is not installed on the node":          kubernetes + "pkg/scheduler/framework/plugins/nodevolumelimits/csi.go",
	"AttachVolume.Attach failed":                       kubernetes + "pkg/volume/util/operationexecutor/operation_generator.go",
	"Terminating":                                      kubernetes + "pkg/printers/internalversion/printers.go",
	"held back because ECS throttles":                  "diskdriver/ecs/ratelimit/*.go",
	"it may have been made before":                     "diskdriver/testdata/*.txt",
	"ECSDoesNotAnswer":                                 "cmd/disk-driver/*.go",
	"FileSystemNotGrown":                               "diskdriver/node/*.go",
	"VolumeKept":                                       "provisioner/deletion/*.go",
	"nothing is provisioned or deleted yet":            "provisioner/*.go",
	"VolumeFailedDelete":                               "provisioner/deletion/*.go",
	"ProvisioningEnded":                                "provisioner/claim/*.go",
	"ProvisioningNotEnded":                             "provisioner/claim/*.go",
	"ProvisioningHeld":                                 "provisioner/claim/*.go",
	"ProvisioningTied":                                 "provisioner/claim/*.go",
	"ProvisioningTopology":                             "provisioner/claim/*.go",
	"ProvisioningRefused":                              "provisioner/claim/*.go",
	"ExternalPopulator":                                "provisioner/claim/*.go",
	"ProvisioningCleanupFailed":                        "provisioner/claim/*.go",
	"ProvisionedTwice":                                 "provisioner/*.go",
	"AnotherProvisioner":                               "internal/otherdriver/*.go",
	"CSIDriverReplaced":                                "internal/otherdriver/*.go",
	"AnotherPluginRegistered":                          "cmd/disk-driver/*.go",
	"disk without PersistentVolume":                    "internal/audit/*.go",
	"PersistentVolume without disk":                    "internal/audit/*.go",
}

// parts of messages that the text quotes.
var quoted = map[string]string{"ECS is at work on it": "diskdriver/testdata/*.txt",
	"position %d in the queue of the instance": "diskdriver/ecs/instancequeue/*.go"}

// symptom is a section of docs/troubleshooting.md.
type symptom struct {
	headings []string // messages
	facts    []string // files with facts that the section shows what why prints of
}

var shownFacts = regexp.MustCompile(`(?m)^<!-- made by make docs-update: why --from=(\S+) -->$`)

// symptoms are the sections of the page.
func symptoms(page string) []symptom {
	var all []symptom
	for _, section := range strings.Split(page, "\n## ")[1:] {
		heading, text, _ := strings.Cut(section, "\n")
		s := symptom{headings: strings.Split(heading, ", ")}
		for _, match := range shownFacts.FindAllStringSubmatch(text, -1) {
			s.facts = append(s.facts, match[1])
		}
		all = append(all, s)
	}
	return all
}

// U10: who searches the page for what the screen says finds it. A heading occurs in what was recorded in the situation that its
// section is about, or in the source of what says it.
func TestTroubleshootingHasMessagesThatOccur(t *testing.T) {
	texts := pages(t)
	var headings []string
	for _, s := range symptoms(texts["docs/troubleshooting.md"]) {
		recorded := recordedHeadings(t, s)
		for _, heading := range s.headings {
			headings = append(headings, heading)
			if place, known := said[heading]; known {
				occurs(t, strings.Replace(heading, "diskplugin.csi.alibabacloud.com", "%s", 1), place)
			} else if !slices.Contains(recorded, heading) {
				t.Errorf("docs/troubleshooting.md: where %q is said is not known here, and %v don't have it", heading, s.facts)
			}
			if !strings.Contains(texts["docs/zh/troubleshooting.md"], heading) {
				t.Errorf("docs/zh/troubleshooting.md has no %q", heading)
			}
		}
	}
	for heading := range said {
		if !slices.Contains(headings, heading) {
			t.Errorf("docs/troubleshooting.md has no heading %q", heading)
		}
	}
	for text, place := range quoted {
		occurs(t, text, place)
	}
}

// recordedHeadings returns the headings of a section that its facts have. Each file that was recorded in a cluster must have one.
func recordedHeadings(t *testing.T, s symptom) []string {
	t.Helper()
	var all []string
	for _, path := range s.facts {
		shown := described(t, path)
		found := slices.DeleteFunc(slices.Clone(s.headings), func(heading string) bool { return !strings.Contains(shown, heading) })
		if len(found) == 0 && strings.Contains(path, "/lab/") {
			t.Errorf("docs/troubleshooting.md: kubectl shows none of %q in %s", s.headings, path)
		}
		all = append(all, found...)
	}
	return all
}

// described returns what kubectl get and describe show of recorded facts: events, conditions, statuses, taints and labels of nodes,
// and whether something is being deleted.
func described(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	var facts explain.Facts
	if err := yaml.Unmarshal(text, &facts); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	var shown strings.Builder
	for _, e := range facts.Events {
		fmt.Fprintln(&shown, e.Reason, e.Message)
	}
	for _, n := range facts.Nodes {
		fmt.Fprintln(&shown, n.Labels, n.Spec.Taints, n.Status.Conditions)
	}
	for _, pod := range facts.Pods {
		fmt.Fprintln(&shown, pod.Status.Phase, pod.Status.Conditions)
	}
	for _, claim := range facts.Claims {
		fmt.Fprintln(&shown, claim.Status.Phase, claim.Status.Conditions)
	}
	for _, volume := range facts.Volumes {
		fmt.Fprintln(&shown, volume.Status.Phase, volume.Status.Message)
	}
	for _, attachment := range facts.Attachments {
		if attachment.DeletionTimestamp != nil {
			fmt.Fprintln(&shown, "Deletion Timestamp:", attachment.DeletionTimestamp)
		}
		if attachment.Status.AttachError != nil {
			fmt.Fprintln(&shown, attachment.Status.AttachError.Message)
		}
	}
	return shown.String()
}

// The page shows what why says in each situation that why tells apart, and begins with where to find each message.
func TestTroubleshootingHasEverySituation(t *testing.T) {
	texts := pages(t)
	text, err := os.ReadFile(filepath.Join(root, "explain/testdata/verdicts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var situations []struct{ Case string }
	if err := yaml.Unmarshal(text, &situations); err != nil || len(situations) < 20 {
		t.Fatalf("%d situations: %v", len(situations), err)
	}
	for _, page := range []string{"docs/troubleshooting.md", "docs/zh/troubleshooting.md"} {
		var shown []string
		for _, s := range symptoms(texts[page]) {
			for _, path := range s.facts {
				shown = append(shown, strings.TrimSuffix(filepath.Base(path), ".yaml"))
			}
		}
		for _, situation := range situations {
			if !slices.Contains(shown, situation.Case) {
				t.Errorf("%s doesn't show what why prints of %s", page, situation.Case)
			}
		}
		contents, _, _ := strings.Cut(texts[page], "\n## ")
		for _, anchor := range anchors(texts[page])[1:] {
			if !strings.Contains(contents, "](#"+anchor+")") {
				t.Errorf("%s: the list at its beginning doesn't lead to #%s", page, anchor)
			}
		}
	}
}

// occurs fails if no file of the place has the text. Kubernetes' source is looked at where the modules of its tests have been
// downloaded.
func occurs(t *testing.T, text, place string) {
	t.Helper()
	pattern, foreign := strings.CutPrefix(place, kubernetes)
	if foreign {
		cache, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
		if err != nil {
			t.Fatal(err)
		}
		roots, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(cache)), "k8s.io/kubernetes@*"))
		if err != nil {
			t.Fatal(err)
		}
		if len(roots) == 0 {
			return
		}
		pattern = filepath.Join(roots[len(roots)-1], pattern)
	} else {
		pattern = filepath.Join(root, pattern)
	}
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file, "_test.go") && strings.Contains(string(content), text) {
			return
		}
	}
	t.Errorf("nothing says %q any more: it is not in %s", text, place)
}

var inBackticks = regexp.MustCompile("`([^`]+)`")

// The table of rights has every right of the roles above it, and quotes what why says without one.
func TestTheTableOfRightsIsComplete(t *testing.T) {
	const page = "docs/kubectl-topodisk.md"
	_, table, _ := strings.Cut(pages(t)[page], "\n| right |")
	table, _, _ = strings.Cut(table, "\n\n")
	var named []string
	for _, row := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(row, "|")
		for _, match := range inBackticks.FindAllStringSubmatch(cells[1], -1) {
			named = append(named, match[1])
		}
		for _, quote := range inBackticks.FindAllStringSubmatch(cells[3], -1) {
			checkSaid(t, quote[1])
		}
	}
	for _, right := range golden.RightsOf(t, filepath.Join(root, page), "kubectl-topodisk-why", "kubectl-topodisk-journal") {
		if !slices.Contains(named, right.Resource) {
			t.Errorf("%s: the table has no row of %s", page, right.Resource)
		}
	}
}

// placeOf returns where why says something: what was left out of a list is the reader's to say.
func placeOf(words string) string {
	if strings.HasPrefix(words, "only namespace") || words == "was read" {
		return "explain/collect/*.go"
	}
	return "explain/*.go"
}

// checkSaid fails unless package explain or its reader has the words of a quote, which leaves names out.
func checkSaid(t *testing.T, quote string) {
	t.Helper()
	for _, words := range strings.Split(quote, "...") {
		if words = strings.Trim(words, " ,"); words != "kube-system" && words != "" {
			occurs(t, words, placeOf(words))
		}
	}
}
