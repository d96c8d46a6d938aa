package claim

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/provisioner/journal"
)

// countedJournal counts the bytes of its records.
type countedJournal struct {
	noJournal
	mu      sync.Mutex
	records map[string]int
}

func (j *countedJournal) Put(_ context.Context, key string, record []byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.records[key] = len(record)
	return nil
}

func (j *countedJournal) Delete(key string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.records, key)
}

func (j *countedJournal) Size() (size int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, bytes := range j.records {
		size += bytes
	}
	return size
}

// claimIn makes the nth of a namespace's claims.
func claimIn(namespace string, n int) *v1.PersistentVolumeClaim {
	claim := claimOf(n, "20Gi")
	claim.Namespace, claim.UID = namespace, types.UID(fmt.Sprintf("%03d-%s", n, namespace))
	return claim
}

// While the journal is half full, a namespace whose open records have half of it waits, and the others go on.
func TestNoNamespaceKeepsOthersFromTheJournal(t *testing.T) {
	large := testClass(map[string]string{"note": strings.Repeat("x", 11_000)})
	large.Name = "large"
	for name, restarted := range map[string]bool{"records of this process": false, "records of an earlier process": true} {
		t.Run(name, func(t *testing.T) {
			written := &countedJournal{records: map[string]int{}}
			begin := func() *bench {
				b := newBench(t, []answer{unavailable()})
				b.Journal, b.RetryStart, b.RetryMax = written, time.Hour, time.Hour
				return b
			}
			b := begin()
			for n := 0; written.Size() < journal.Limit/2; n++ {
				if _, meaning, err := b.provision(t.Context(), claimIn("crowd", n), large, ""); meaning != maybeVolume {
					t.Fatalf("claim %d, while the journal has %d bytes: %v, %v", n, written.Size(), meaning, err)
				}
				b.drained()
			}
			for n := range 3 {
				if _, meaning, err := b.provision(t.Context(), claimIn("other", n), large, ""); meaning != maybeVolume {
					t.Fatalf("the other namespace: %v, %v", meaning, err)
				}
			}
			if restarted {
				open := b.Requests()
				b = begin()
				must(t, b.Classes.Add(large))
				for _, r := range open {
					must(t, b.Claims.Add(r.Claim.DeepCopy()))
					r.Claim.ResourceVersion = ""
					b.Recover(r)
				}
			}
			before, _ := b.driver.Calls()
			b.said()
			waiting := claimIn("crowd", 5_000)
			_, meaning, err := b.provision(t.Context(), waiting, testClass(nil), "")
			if after, _ := b.driver.Calls(); meaning != notSent || err == nil || after != before || b.state(waiting.UID) != "waiting" {
				t.Errorf("%v, %v; the driver is asked %d times; the claim is %s", meaning, err, after-before, b.state(waiting.UID))
			}
			const want = "the journal is half full, and namespace crowd may have no more of it than it leaves free"
			if events := b.drained(); len(events) != 1 || !strings.Contains(events[0], "ProvisioningFailed") || !strings.Contains(events[0], want) {
				t.Errorf("events %q", events)
			}
			if _, ok := written.records[string(waiting.UID)]; ok {
				t.Error("the journal has its record")
			}

			b.driver.Creates = []answer{made("d-shop", 20*gib, "zone-a")}
			if pv, _, err := b.provision(t.Context(), claimIn("shop", 0), testClass(nil), ""); err != nil || pv == nil {
				t.Errorf("another namespace gets %v, %v", pv, err)
			}
			b.clock = b.clock.Add(longestWait)
			if pv, meaning, err := b.attempt(t.Context(), waiting.UID); pv != nil || meaning != notSent || !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("after a while: %v, %v, %v", pv, meaning, err)
			}

			for n := range 3 {
				b.driver.Creates = []answer{{Err: status.Error(codes.InvalidArgument, "no volume exists")}}
				gone := claimIn("crowd", n).UID
				b.Wake(gone)
				if _, meaning, err := b.attempt(t.Context(), gone); meaning != noVolume || b.state(gone) != "waiting" {
					t.Fatalf("%v, %v; the claim is %s", meaning, err, b.state(gone))
				}
			}
			if written.Size() < journal.Limit/2 {
				t.Fatal("the journal is not half full any more")
			}
			b.driver.Creates = []answer{made("d-crowd", 20*gib, "zone-a")}
			b.clock = b.clock.Add(longestWait)
			if pv, _, err := b.attempt(t.Context(), waiting.UID); err != nil || pv == nil || b.state(waiting.UID) != "saved" {
				t.Errorf("once some records are gone: %v, %v; the claim is %s", pv, err, b.state(waiting.UID))
			}
		})
	}
}

// However many namespaces fill the journal, the next one finds room.
func TestManyNamespacesDoNotFillTheJournal(t *testing.T) {
	large := testClass(map[string]string{"note": strings.Repeat("x", 11_000)})
	large.Name = "large"
	b := newBench(t, []answer{unavailable()})
	b.Journal, b.RetryStart, b.RetryMax = &countedJournal{records: map[string]int{}}, time.Hour, time.Hour
	for _, namespace := range []string{"one", "two", "three", "four", "five"} {
		first := b.Journal.Size()
		for n := 0; ; n++ {
			_, meaning, err := b.provision(t.Context(), claimIn(namespace, n), large, "")
			b.drained()
			if meaning == notSent {
				break
			}
			if meaning != maybeVolume {
				t.Fatalf("claim %d of namespace %s: %v, %v", n, namespace, meaning, err)
			}
		}
		if has, free := b.Journal.Size()-first, journal.Limit-b.Journal.Size(); has < free*9/10 || has > free+12_000 { // one record more, until the journal is half full
			t.Errorf("namespace %s has %d bytes of the journal and leaves %d", namespace, has, free)
		}
	}
}
