package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/node"
	"github.com/topodisk/topodisk/test/golden"
)

// owners are claims that are called as their disks are; what answers may do is up to it.
type owners func(context.Context) error

func (answer owners) Claim(ctx context.Context, id disk.ID) (*corev1.ObjectReference, error) {
	if err := answer(ctx); err != nil {
		return nil, err
	}
	if id == "d-of-nobody" {
		return nil, nil
	}
	return &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "shop", Name: string(id), UID: "u1"}, nil
}

func atOnce(context.Context) error { return nil }

// warned runs a test under a clock of its own, with what tells owners.
func warned(t *testing.T, answer owners, test func(e *claimEvents, recorder *record.FakeRecorder)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		recorder := record.NewFakeRecorder(2 * mostWarnings)
		e := tellClaims(recorder, answer)
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		go e.run(ctx)
		test(e, recorder)
	})
}

func TestAnOwnerIsToldOnceAnHour(t *testing.T) {
	warned(t, atOnce, func(e *claimEvents, recorder *record.FakeRecorder) {
		for _, step := range []struct {
			after          time.Duration
			volume, reason string
			told           int
		}{
			{0, "d-1", "A", 1}, {0, "d-1", "A", 0}, {time.Minute, "d-1", "B", 1}, {0, "d-2", "A", 1}, {0, "d-of-nobody", "A", 0},
			{58 * time.Minute, "d-1", "A", 0}, {time.Minute, "d-1", "A", 1}, {0, "d-1", "A", 0}, {0, "d-1", "B", 0}, {time.Minute, "d-1", "B", 1},
		} {
			time.Sleep(step.after)
			e.Warn(disk.ID(step.volume), step.reason, "message")
			synctest.Wait()
			if got := len(recorder.Events); got != step.told {
				t.Errorf("%+v: %d are told", step, got)
			}
			for len(recorder.Events) > 0 {
				if got, want := <-recorder.Events, "Warning "+step.reason+" message"; !strings.HasPrefix(got, want) {
					t.Errorf("the event is %q, want %q", got, want)
				}
			}
		}
		time.Sleep(2 * sayAgain)
		if e.Warn("d-3", "A", "message"); len(e.said) != 1 {
			t.Errorf("%d subjects are remembered", len(e.said))
		}
	})
}

// What goes wrong with the API server is no matter of who warns.
func TestAWarningIsNotWaitedFor(t *testing.T) {
	answers := false
	hangs := func(ctx context.Context) error {
		if answers {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
	warned(t, hangs, func(e *claimEvents, recorder *record.FakeRecorder) {
		began := time.Now()
		for i := range 3 * mostWarnings {
			e.Warn(disk.ID(fmt.Sprint("d-", i)), "A", "message")
			synctest.Wait()
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("warnings took %s", took)
		}
		time.Sleep((mostWarnings + 1) * findClaim)
		synctest.Wait()
		if len(recorder.Events) > 0 || len(e.said) > 0 {
			t.Errorf("%d are told, %d remembered, though nobody could be", len(recorder.Events), len(e.said))
		}
		answers = true
		e.Warn("d-1", "A", "message")
		synctest.Wait()
		if len(recorder.Events) != 1 {
			t.Errorf("%d are told once the API server answers", len(recorder.Events))
		}
	})
}

func TestAnOwnerThatIsNotFoundIsLookedForAgain(t *testing.T) {
	refused := errors.New("refused")
	warned(t, func(context.Context) error { return refused }, func(e *claimEvents, recorder *record.FakeRecorder) {
		e.Warn("d-1", "A", "message")
		synctest.Wait()
		refused = nil
		e.Warn("d-1", "A", "message")
		synctest.Wait()
		if len(recorder.Events) != 1 {
			t.Errorf("%d are told", len(recorder.Events))
		}
	})
}

func TestAnEventIsOnTheClaimAndHasABound(t *testing.T) {
	client := fake.NewClientset()
	e := newClaimEvents(client, "n1", owners(atOnce))
	go e.run(t.Context())
	e.Warn("d-1", "A", strings.Repeat("é", longestEvent))
	for limit := time.Now().Add(20 * time.Second); time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
		all, err := client.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(all.Items) == 0 {
			continue
		}
		got := all.Items[0]
		about := got.InvolvedObject
		if about.Kind != "PersistentVolumeClaim" || about.Name != "d-1" || about.UID != "u1" || got.Type != "Warning" || got.Reason != "A" || got.Source.Host != "n1" {
			t.Errorf("the event is %+v", got)
		}
		if got.Message != strings.Repeat("é", longestEvent/2) {
			t.Errorf("the message has %d bytes", len(got.Message))
		}
		return
	}
	t.Error("no event")
}

func TestMetricsOfANodeAreThoseOfThePage(t *testing.T) {
	dir := t.TempDir()
	server, err := node.New(node.Config{Driver: "disk.example.com", KubeletDir: dir, Facts: noFacts{}})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister((&nodePlugin{server: server, registration: node.NewRegistration("disk.example.com", dir, dir+"/csi.sock")}).metrics()...)
	gathered, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	served := golden.Families(gathered)
	golden.Metrics(t, "../../docs/monitoring.md", served)
	for _, name := range []string{"topodisk_node_registered", "topodisk_filesystems_not_grown"} {
		if served[name] == nil {
			t.Errorf("%s is not served", name)
		}
	}
}

type noFacts struct{}

func (noFacts) Node(context.Context, []string) (disk.Node, error) {
	return disk.Node{}, errors.New("none")
}
