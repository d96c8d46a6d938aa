package collect

import (
	"slices"
	"sync"
	"testing"

	clienttesting "k8s.io/client-go/testing"

	"github.com/topodisk/topodisk/test/golden"
)

// The roles that docs/kubectl-topodisk.md has to be copied suffice to read everything, and grant nothing that isn't needed.
func TestTheRolesOfThePageSuffice(t *testing.T) {
	granted := golden.RightsOf(t, "../../docs/kubectl-topodisk.md", "kubectl-topodisk-why", "kubectl-topodisk-journal")
	var mu sync.Mutex // reads go on side by side
	used := golden.Rights{}
	for _, subject := range subjects {
		s := newScene(t)
		s.refuse(func(a clienttesting.Action) error {
			of := a.GetResource()
			right := golden.Right{Verb: a.GetVerb(), Group: of.Group, Resource: of.Resource, Namespace: a.GetNamespace()}
			if get, ok := a.(clienttesting.GetAction); ok {
				right.Name = get.GetName()
			}
			if !granted.Allow(right) {
				return errorsOf["forbidden"](of)
			}
			mu.Lock()
			defer mu.Unlock()
			used = append(used, right)
			return nil
		})
		if f := facts(t, s, subject.ref); len(f.Unread) > 0 {
			t.Errorf("%v: %v", subject.ref, f.Unread)
		}
	}
	for _, right := range granted {
		isUsed := func(u golden.Right) bool { return golden.Rights{right}.Allow(u) }
		if !slices.ContainsFunc(used, isUsed) {
			t.Errorf("%v is granted and never needed", right)
		}
	}
}
