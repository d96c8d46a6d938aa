package plan

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/topodisk/topodisk/test/hostile"
)

// Annotations that say which Helm release an object is of are anybody's, and stand in commands.
func TestNoTextOfAClusterHarmsItsReader(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d facts: %v", len(files), err)
	}
	commands := hostile.NewCommands(t, "kubectl", "helm", "aliyun")
	shown := 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		facts, err := yaml.YAMLToJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		for changed, variant := range hostile.Variants(t, facts) {
			f := &Facts{}
			if json.Unmarshal(variant, f) != nil {
				continue // such as a quantity
			}
			for _, p := range everyPlan(f) {
				printed := textOf(t, p)
				if harm := hostile.Harm(printed); harm != "" {
					t.Fatalf("%s, %q: %s:\n%s", path, changed, harm, printed)
				}
				if strings.Contains(printed, "OWNED") {
					shown++
				}
				for _, step := range append(p.Steps, p.Back...) {
					for _, c := range step.Commands {
						commands.Run(c.String())
					}
				}
			}
		}
	}
	if shown < 200 || commands.Ran() < 20 {
		t.Errorf("only %d texts are shown, and only %d commands have one", shown, commands.Ran())
	}
}

// everyPlan returns all plans that can be made of facts.
func everyPlan(f *Facts) []*Plan {
	plans := []*Plan{Install(f, DefaultOptions()), Takeover(f, DefaultOptions())}
	if p, err := Drain(f, "cn-hangzhou-h"); err == nil {
		plans = append(plans, p)
	}
	if p, err := SoldOut(f, "cn-hangzhou-h", "cloud_essd"); err == nil {
		plans = append(plans, p)
	}
	return plans
}
