package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// classTable is a kind of class in files/parameters.json.
type classTable struct {
	Values                  string
	Names, Others, Prefixes []string
	Choices                 map[string]struct {
		Words   []string
		Alone   string
		List    bool
		AnyCase bool
	}
}

func classTables(t *testing.T) []classTable {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repo, chartDir, "files/parameters.json"))
	if err != nil {
		t.Fatal(err)
	}
	var tables []classTable
	if err := json.Unmarshal(text, &tables); err != nil {
		t.Fatal(err)
	}
	return tables
}

// The tables are made from those that disk-driver and disk-provisioner read parameters by.
func TestParametersAreThoseOfTheCode(t *testing.T) {
	command := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-run", "^TestTheChartsParametersPageIsCurrent$", "-v", "./diskdriver/params")
	command.Dir = repo
	output, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "--- PASS: TestTheChartsParametersPageIsCurrent") {
		t.Errorf("%s: %v\n%s", strings.Join(command.Args, " "), err, output)
	}
}

// parametersOf are sets of parameters that a kind of class takes: every name, and every word of those that take words.
func (c classTable) parametersOf() (sets []map[string]string) {
	for _, name := range append(append([]string{"csi.storage.k8s.io/any-secret-name"}, c.Names...), c.Others...) {
		choice, limited := c.Choices[name]
		if !limited {
			sets = append(sets, map[string]string{name: "any"})
			continue
		}
		words := append([]string{""}, choice.Words...)
		if choice.Alone != "" {
			words = append(words, choice.Alone)
		}
		if choice.List {
			words = append(words, strings.Join(choice.Words, ", "))
		}
		if choice.AnyCase {
			words = append(words, strings.ToUpper(choice.Words[0]))
		}
		for _, word := range words {
			sets = append(sets, map[string]string{name: word})
		}
	}
	for _, prefix := range c.Prefixes {
		sets = append(sets, map[string]string{prefix + "any": ""})
	}
	return sets
}

func TestWhatTheDriverTakesIsRendered(t *testing.T) {
	for _, table := range classTables(t) {
		values := preset(t, "minimal", "csiSnapshotter: {enabled: true}")
		var classes []any
		for n, parameters := range table.parametersOf() {
			all := map[string]any{}
			for name, value := range parameters {
				all[name] = value
			}
			classes = append(classes, map[string]any{"name": fmt.Sprintf("class-%d", n), "parameters": all})
		}
		if len(classes) < 7 {
			t.Errorf("%s: only %d classes to try", table.Values, len(classes))
		}
		values[table.Values] = classes
		if _, _, err := Render(repo, values, Release{Name: "topodisk", Namespace: "kube-system"}); err != nil {
			t.Errorf("%s: %v", table.Values, err)
		}
	}
}

// Where the driver passes unknown parameters over, so does the chart.
func TestUnknownParametersAreRenderedLeniently(t *testing.T) {
	for _, class := range []string{"storageClasses", "volumeSnapshotClasses"} {
		values := preset(t, "minimal", "{diskDriver: {unknownParameters: warn}, csiSnapshotter: {enabled: true}, "+class+": [{name: a, parameters: {no-such-parameter: x}}]}")
		if _, _, err := Render(repo, values, Release{Name: "topodisk", Namespace: "kube-system"}); err != nil {
			t.Errorf("%s: %v", class, err)
		}
	}
}

// IDs and names that are in use are taken.
func TestIDsInUseAreTaken(t *testing.T) {
	for _, over := range []string{
		"clusterID: c0123456789abcdef0123456789abcdef", "clusterID: c0123456-89ab-cdef-0123-456789abcdef", "clusterID: c1", "clusterID: c0123456789abcdef",
		"clusterID: production.eu-1", "clusterID: cafe", "region: ap-southeast-1", "region: cn-wulanchabu", "region: cn-zhengzhou-jva",
		"region: cn-north-2-gov-1", "region: us-east-1", "region: cn-hangzhou-finance", "image: {repository: topodisk}",
		"image: {repository: 'localhost:5000/topodisk'}", "image: {repository: registry-vpc.cn-hangzhou.cr.example.com/a_b/topodisk}",
	} {
		if _, _, err := Render(repo, preset(t, "minimal", over), Release{Name: "topodisk", Namespace: "kube-system"}); err != nil {
			t.Errorf("%s: %v", over, err)
		}
	}
}
