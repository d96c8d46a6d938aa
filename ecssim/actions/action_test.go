package actions

import (
	"testing"

	"github.com/topodisk/topodisk/ecssim/wire"
)

func TestActionsAreWellFormed(t *testing.T) {
	for name, a := range byName {
		if a.do == nil || a.Name != name || a.version == "" {
			t.Errorf("action %s is incomplete", name)
		}
		for i, p := range a.optional {
			if p == "" || wire.Numbered(p) != p {
				t.Errorf("action %s: parameter %q is not a name", name, a.optional[i])
			}
		}
	}
}
