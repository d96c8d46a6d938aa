package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
)

// Selections follows which nodes the scheduler selects for the claims of a namespace, and which are taken back.
type Selections struct {
	watch watch.Interface
	ended chan struct{}

	mu      sync.Mutex
	byPVC   map[string][]string // a node per selection, "" for one that was taken back
	stopped bool                // by Stop: what the watch says from then on is about its own end
	err     error
}

// FollowSelections starts to follow; Stop ends it.
func (l *Lab) FollowSelections(ctx context.Context, namespace string) (*Selections, error) {
	claims := l.Client.CoreV1().PersistentVolumeClaims(namespace)
	list, err := claims.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	w, err := FollowFrom(ctx, list.ResourceVersion, claims.Watch)
	if err != nil {
		return nil, err
	}
	s := &Selections{watch: w, byPVC: map[string][]string{}, ended: make(chan struct{})}
	go s.follow()
	return s, nil
}

// FollowFrom watches from a resource version on, and goes on where it was when the API server ends a watch, as it does with
// one that falls behind.
func FollowFrom(ctx context.Context, resourceVersion string, watcher cache.WatchFuncWithContext) (watch.Interface, error) {
	return toolswatch.NewRetryWatcherWithContext(ctx, resourceVersion, &cache.ListWatch{WatchFuncWithContext: watcher})
}

func (s *Selections) follow() {
	defer close(s.ended)
	for event := range s.watch.ResultChan() {
		s.handle(event)
	}
}

func (s *Selections) handle(event watch.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch object := event.Object.(type) {
	case *corev1.PersistentVolumeClaim:
		s.note(object)
	case *metav1.Status:
		if !s.stopped {
			s.err = fmt.Errorf("watch of claims: %s", object.Message)
		}
	}
}

// note adds the selection of a claim if it is another than the last one.
func (s *Selections) note(claim *corev1.PersistentVolumeClaim) {
	seen, node := s.byPVC[claim.Name], claim.Annotations[SelectedNode]
	last := ""
	if len(seen) > 0 {
		last = seen[len(seen)-1]
	}
	if node != last {
		s.byPVC[claim.Name] = append(seen, node)
	}
}

// Of returns the nodes selected for a claim, in their order, with "" for each time that one was taken back.
func (s *Selections) Of(claim string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.byPVC[claim])
}

// Rescheduled returns the claims that had a selection taken back, sorted.
func (s *Selections) Rescheduled() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name, seen := range s.byPVC {
		if slices.Contains(seen, "") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Stop ends the watch and returns an error if it broke off before, for then selections may be missing.
func (s *Selections) Stop() error {
	s.mu.Lock()
	s.stopped = true
	broken := s.err
	select {
	case <-s.ended:
		broken = cmp.Or(broken, errors.New("the watch of claims ended early"))
	default:
	}
	s.mu.Unlock()
	s.watch.Stop()
	<-s.ended
	return broken
}
