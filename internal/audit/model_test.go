package audit

import (
	"context"
	"testing"
)

// interleavings is how many clusters at work are audited.
const interleavings = 3000

// clusterFirst reads the cluster before ECS.
type clusterFirst struct{ *world }

func (s clusterFirst) readAndCompare() (*Report, error) {
	c, _ := s.Cluster(context.Background())
	l, _ := s.Listing(context.Background())
	return Compare(l, c, ofThisCluster)
}

// An audit of a cluster at work finds what was planted and nothing else.
func TestClusterAtWork(t *testing.T) {
	busy := 0
	for seed := range uint64(interleavings) {
		w := newWorld(seed)
		began := len(w.disks)
		r, err := Run(t.Context(), w, ofThisCluster, w.pause)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if missed, wrong := w.judge(r); len(missed) > 0 || len(wrong) > 0 {
			t.Fatalf("seed %d: missed %q, named falsely %q", seed, missed, wrong)
		}
		if len(w.disks) > began {
			busy++
		}
	}
	if busy < interleavings/2 {
		t.Errorf("only in %d of %d audits a disk was made meanwhile", busy, interleavings)
	}
}

// Less than that doesn't do: each part of how Run reads is needed.
func TestOtherOrdersNameFalsely(t *testing.T) {
	for name, run := range map[string]func(w *world) (*Report, error){
		"one comparison": func(w *world) (*Report, error) { return readAndCompare(context.Background(), w, ofThisCluster) },
		"without a pause": func(w *world) (*Report, error) {
			return Run(context.Background(), w, ofThisCluster, func(context.Context, int) error { return nil })
		},
		"the cluster first": func(w *world) (*Report, error) {
			first, err := clusterFirst{w}.readAndCompare()
			if err != nil {
				return nil, err
			}
			if err := w.pause(context.Background(), 0); err != nil {
				return nil, err
			}
			second, err := clusterFirst{w}.readAndCompare()
			if err != nil {
				return nil, err
			}
			return Confirm(first, second), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(interleavings) {
				w := newWorld(seed)
				r, err := run(w)
				if err != nil {
					t.Fatal(err)
				}
				if _, wrong := w.judge(r); len(wrong) > 0 {
					t.Logf("seed %d: names falsely %q", seed, wrong)
					return
				}
			}
			t.Errorf("it names nothing falsely in %d interleavings", interleavings)
		})
	}
}
