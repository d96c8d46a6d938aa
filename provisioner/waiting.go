package provisioner

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// waiting remembers since when a claim's selected node has been without the
// driver, and which claims an event of a Node or CSINode may help.
type waiting struct {
	mu     sync.Mutex
	claims map[types.UID]wait
}

type wait struct {
	claim *v1.PersistentVolumeClaim
	node  string
	since time.Time
}

func newWaiting() *waiting { return &waiting{claims: map[types.UID]wait{}} }

// add files the claim as waiting for the node and returns for how long it has been.
func (w *waiting) add(claim *v1.PersistentVolumeClaim, node string, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	entry, ok := w.claims[claim.UID]
	if !ok || entry.node != node {
		entry = wait{node: node, since: now}
	}
	entry.claim = claim
	w.claims[claim.UID] = entry
	return now.Sub(entry.since)
}

func (w *waiting) remove(claim types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.claims, claim)
}

func (w *waiting) all() []*v1.PersistentVolumeClaim {
	w.mu.Lock()
	defer w.mu.Unlock()
	claims := make([]*v1.PersistentVolumeClaim, 0, len(w.claims))
	for _, entry := range w.claims {
		claims = append(claims, entry.claim)
	}
	return claims
}
