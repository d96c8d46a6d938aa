// Package turns has work of several namespaces take turns, so that none keeps the others waiting.
package turns

import (
	"context"
	"slices"
	"sync"

	"k8s.io/client-go/util/workqueue"
)

// Turns starts work so that no namespace keeps the others waiting: those that wait take turns. One has no more than a number of works under way,
// and all have twice as many together, even if all of them wait for the driver; but a namespace without any may have one begin beyond that, up to
// eight times as many.
type Turns struct {
	each, all, most int

	mu      sync.Mutex
	total   int
	running map[string]int
	waiting map[string][]func()
	ring    []string // the namespaces of waiting, the next one first
	working sync.WaitGroup
}

// New returns Turns with so many works of one namespace under way.
func New(each int) *Turns {
	return &Turns{each: each, all: 2 * each, most: 8 * each, running: map[string]int{}, waiting: map[string][]func(){}}
}

// Add has the work done in a goroutine of its own once it is the namespace's turn. A goroutine that waited for the next work would keep
// the stack that the last one needed.
func (t *Turns) Add(namespace string, work func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting[namespace]) == 0 {
		t.ring = append(t.ring, namespace)
	}
	t.waiting[namespace] = append(t.waiting[namespace], work)
	t.start()
}

// start starts what may be under way. t.mu is held.
func (t *Turns) start() {
	for {
		namespace, work := t.next()
		if work == nil {
			return
		}
		t.total++
		t.running[namespace]++
		t.working.Go(func() {
			defer t.done(namespace)
			work()
		})
	}
}

// next takes the first work of the first namespace that may have more under way, which is then the last one. t.mu is held.
func (t *Turns) next() (namespace string, work func()) {
	if t.total >= t.most {
		return "", nil
	}
	for i, namespace := range t.ring {
		if !t.mayStart(t.running[namespace]) {
			continue
		}
		queue := t.waiting[namespace]
		t.ring = slices.Delete(t.ring, i, i+1)
		if len(queue) == 1 {
			delete(t.waiting, namespace)
		} else {
			t.waiting[namespace] = queue[1:]
			t.ring = append(t.ring, namespace)
		}
		return namespace, queue[0]
	}
	return "", nil
}

// mayStart says whether a namespace that has so much under way may have more begin. t.mu is held.
func (t *Turns) mayStart(running int) bool {
	return running < t.each && t.total < t.all || running == 0 && t.total < t.most
}

func (t *Turns) done(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total--
	if t.running[namespace]--; t.running[namespace] == 0 {
		delete(t.running, namespace)
	}
	t.start()
}

// Wait returns when nothing is under way or waits.
func (t *Turns) Wait() { t.working.Wait() }

// Serve has the work done for each item of a queue once it is the turn of its namespace. When ctx ends it shuts the queue down, and it returns
// when nothing is under way: ctx doesn't end the work, which need not do anything for an item that comes from a queue that shuts down.
func Serve[T comparable](ctx context.Context, t *Turns, queue workqueue.TypedInterface[T], namespaceOf func(T) string, work func(context.Context, T)) {
	defer context.AfterFunc(ctx, queue.ShutDown)()
	for {
		item, shutdown := queue.Get()
		if shutdown {
			break
		}
		t.Add(namespaceOf(item), func() {
			defer queue.Done(item)
			work(context.WithoutCancel(ctx), item)
		})
	}
	t.Wait()
}
