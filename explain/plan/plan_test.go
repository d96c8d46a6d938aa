package plan

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/topodisk/topodisk/test/golden"
)

// factsOf reads facts that were written by hand.
func factsOf(t testing.TB, name string) *Facts {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	f := &Facts{}
	if err := yaml.UnmarshalStrict(text, f); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return f
}

// textOf is a plan as people read it.
func textOf(t testing.TB, p *Plan) string {
	t.Helper()
	var b strings.Builder
	if err := p.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPlansAsPeopleReadThem(t *testing.T) {
	install := func(f *Facts) (*Plan, error) { return Install(f, DefaultOptions()), nil }
	takeover := func(f *Facts) (*Plan, error) { return Takeover(f, DefaultOptions()), nil }
	for _, test := range []struct {
		name, facts string
		plan        func(*Facts) (*Plan, error)
		harms       bool
	}{
		{"takeover-chart", "takeover-chart", takeover, false},
		{"takeover-chart-back", "takeover-chart-back", takeover, false},
		{"takeover-ack-back", "takeover-ack-back", takeover, false},
		{"takeover-ack", "takeover-ack", takeover, true},
		{"takeover-disks-alone", "takeover-disks-alone", takeover, false},
		{"takeover-nothing", "install-fresh", takeover, false},
		{"install-fresh", "install-fresh", install, true},
		{"install-taken", "takeover-chart", install, true},
		{"drain", "drain", func(f *Facts) (*Plan, error) { return Drain(f, "cn-hangzhou-h") }, true},
		{"soldout", "soldout", func(f *Facts) (*Plan, error) { return SoldOut(f, "cn-hangzhou-h", "cloud_essd") }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := test.plan(factsOf(t, test.facts))
			if err != nil {
				t.Fatal(err)
			}
			if p.Harms() != test.harms {
				t.Errorf("harms: %t", p.Harms())
			}
			golden.Page(t, filepath.Join("testdata", test.name+".txt"), textOf(t, p))
		})
	}
}
