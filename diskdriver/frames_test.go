package diskdriver

import (
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/topodisk/topodisk/ecssim"
)

// stacks notes, for each action, through which functions of its own the driver came to its call of ECS: the inner ones first.
type stacks struct {
	http.RoundTripper

	mu sync.Mutex
	of map[string][]string
}

func (s *stacks) RoundTrip(r *http.Request) (*http.Response, error) {
	text := make([]byte, 1<<20)
	text = text[:runtime.Stack(text, true)]
	for goroutine := range strings.SplitSeq(string(text), "\n\n") {
		if !strings.Contains(goroutine, "transport.(*Transport).once(") { // the SDK has a stack of its own
			continue
		}
		var own []string
		for line := range strings.SplitSeq(goroutine, "\n") {
			name, ours := strings.CutPrefix(line, "github.com/topodisk/topodisk/diskdriver")
			if !ours {
				continue
			}
			own = append(own, name[:strings.LastIndex(name, "(")])
			if strings.HasPrefix(name, ".(*controller).Controller") || strings.HasPrefix(name, "/volume.(*Controller).") {
				break // gRPC calls it
			}
		}
		s.mu.Lock()
		s.of[r.URL.Query().Get("Action")+r.Header.Get("X-Acs-Action")] = own
		s.mu.Unlock()
	}
	return s.RoundTripper.RoundTrip(r)
}

// Whoever follows a call from gRPC's handler to the SDK passes few functions.
func TestFewFunctionsLieBetweenAHandlerAndTheSDK(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, err := ecssim.New(ecssim.Config{
			Region: "cn-hangzhou", Zones: []string{"cn-hangzhou-h"}, LedgerSize: 1000,
			Instances: []ecssim.Instance{{ID: "i-0", Zone: "cn-hangzhou-h", Type: "ecs.g7.4xlarge"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		s := &stacks{RoundTripper: sim, of: map[string][]string{}}
		live(t, driverOn(t, s), "v-0", "i-0")
		for action, most := range map[string]int{"CreateDisk": 9, "DeleteDisk": 9, "ResizeDisk": 9, "TagResources": 9, "AttachDisk": 10, "DetachDisk": 11} {
			if own := s.of[action]; len(own) == 0 || len(own) > most {
				t.Errorf("%s: %d functions, want at most %d: %s", action, len(own), most, strings.Join(own, " "))
			}
		}
	})
}
