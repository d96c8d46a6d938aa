package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// kubernetes marks places in the source of Kubernetes, below its root.
const kubernetes = "kubernetes:"

// said is where each message occurs that is a heading of docs/troubleshooting.md: in a transcript of the driver's answers, or in
// the source of what says it.
var said = map[string]string{
	"pod has unbound immediate PersistentVolumeClaims":                                            kubernetes + "pkg/scheduler/framework/plugins/volumebinding/volume_binding.go",
	"ResourceExhausted: no zone and disk type allowed has a disk to give":                         "diskdriver/testdata/*.txt",
	"it may have been made before":                                                                "diskdriver/testdata/*.txt",
	"InvalidArgument: parameter":                                                                  "diskdriver/testdata/*.txt",
	"node(s) didn't match PersistentVolume's node affinity":                                       kubernetes + "pkg/scheduler/framework/plugins/volumebinding/binder.go",
	"Multi-Attach error":                                                                          kubernetes + "pkg/controller/volume/attachdetach/reconciler/reconciler.go",
	"node(s) exceed max volume count":                                                             kubernetes + "pkg/scheduler/framework/plugins/nodevolumelimits/csi.go",
	"driver name diskplugin.csi.alibabacloud.com not found in the list of registered CSI drivers": kubernetes + "pkg/volume/csi/csi_client.go",
	"AttachVolume.Attach failed":                                                                  kubernetes + "pkg/volume/util/operationexecutor/operation_generator.go",
	"Terminating":                                                                                 kubernetes + "pkg/printers/internalversion/printers.go",
	"held back because ECS throttles":                                                             "diskdriver/ecs/ratelimit/*.go",
	"ECSDoesNotAnswer":                                                                            "cmd/disk-driver/*.go",
	"disk without PersistentVolume":                                                               "provisioner/*.go",
	"VolumeKept":                                                                                  "provisioner/deletion/*.go",
	"nothing is provisioned or deleted yet":                                                       "provisioner/*.go",
	"PersistentVolume without disk":                                                               "provisioner/*.go",
}

// parts of messages that the text quotes.
var quoted = map[string]string{"ECS is at work on it": "diskdriver/testdata/*.txt", "position %d in the queue of the instance": "diskdriver/ecs/instancequeue/*.go"}

// U10: who searches the page for what the screen says finds it.
func TestTroubleshootingHasMessagesThatOccur(t *testing.T) {
	texts := pages(t)
	var headings []string
	for _, match := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(texts["docs/troubleshooting.md"], -1) {
		headings = append(headings, strings.Split(match[1], ", ")...)
	}
	for _, heading := range headings {
		if place, known := said[heading]; !known {
			t.Errorf("docs/troubleshooting.md: where %q is said is not known here", heading)
		} else {
			occurs(t, strings.Replace(heading, "diskplugin.csi.alibabacloud.com", "%s", 1), place)
		}
		if !strings.Contains(texts["docs/zh/troubleshooting.md"], heading) {
			t.Errorf("docs/zh/troubleshooting.md has no %q", heading)
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

// same are words of the English cells and of the Chinese ones that stand for them: a cell has both or none.
var same = map[string]string{"commas": "逗号", "stays as it is": "保持不变", "yes or no": "是或否", "a whole number": "整数", "multiAttach": "multiAttach", "GiB": "GiB"}

// U6: a row of the Chinese tables of parameters says what the English one says, as far as numbers, names and rules go.
func TestChineseParametersSayTheSame(t *testing.T) {
	number, texts := regexp.MustCompile(`[0-9]+`), pages(t)
	rows := func(page string) (all [][]string) {
		for line := range strings.Lines(texts[page]) {
			if cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|"); strings.HasPrefix(line, "| `") && len(cells) == 5 {
				all = append(all, cells)
			}
		}
		return all
	}
	english, chinese := rows("docs/parameters.md"), rows("docs/zh/parameters.md")
	if len(english) < 25 || len(english) != len(chinese) {
		t.Fatalf("%d rows and %d", len(english), len(chinese))
	}
	for n, want := range english {
		got := chinese[n]
		if got[0] != want[0] || got[4] != want[4] {
			t.Errorf("%s by %s: the Chinese row is %s by %s", want[0], want[4], got[0], got[4])
		}
		for _, column := range []int{2, 3} {
			a, b := number.FindAllString(want[column], -1), number.FindAllString(got[column], -1)
			slices.Sort(a)
			slices.Sort(b)
			if !slices.Equal(a, b) {
				t.Errorf("%s by %s: numbers %q, in Chinese %q", want[0], want[4], a, b)
			}
			for word, translation := range same {
				if strings.Contains(want[column], word) != strings.Contains(got[column], translation) {
					t.Errorf("%s by %s: %q in %q and %q in %q: one has it, the other not", want[0], want[4], word, want[column], translation, got[column])
				}
			}
		}
	}
}
