package provisioner

import (
	"context"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/lru"
)

// Reasons of events, upstream csi-provisioner's where it has one.
const (
	reasonCleanupFailed = "ProvisioningCleanupFailed"
	reasonDeleteFailed  = "VolumeFailedDelete"
	reasonBegun         = "Provisioning" // the library's, before every attempt
	reasonTopology      = "ProvisioningTopology"
	reasonPopulator     = "ExternalPopulator"
	reasonMigration     = "ProvisioningRefused"
	reasonTied          = "ProvisioningTied"
	reasonTwins         = "ProvisionedTwice"
	reasonKept          = "VolumeKept"
)

const (
	// foldFor is how long the same event is only counted before it is written again.
	foldFor = time.Minute
	// foldedEvents bounds the memory of what was written.
	foldedEvents = 4096
	// tellAfter is how long a wait that ends by itself lasts before it is told: the
	// driver is back sooner from a restart or an upgrade.
	tellAfter = 15 * time.Second
)

// eventFold stands before the API server and lets the same event through once
// a foldFor: the count that is written then has all in between. It writes
// nothing of what is told before every attempt, for the outcome is told anyway,
// and nothing of a wait that ends by itself until it has lasted.
type eventFold struct {
	corev1client.EventInterface
	memory *eventMemory
}

type eventMemory struct {
	mu      sync.Mutex
	written *lru.Cache // event name -> time
	waits   *lru.Cache // claim UID -> claimWait
	now     func() time.Time
}

// claimWait is the last wait of a claim for something that comes by itself.
type claimWait struct {
	since time.Time
	what  string
	over  bool
}

func newEventMemory(now func() time.Time) *eventMemory {
	return &eventMemory{written: lru.New(foldedEvents), waits: lru.New(foldedEvents), now: now}
}

// heard notes how an attempt for the claim ended, before it is told.
func (m *eventMemory) heard(claim types.UID, outcome Outcome, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.waits.Get(claim)
	wait, _ := known.(claimWait)
	switch {
	case outcome != Reschedule && endsByItself(err):
		if !ok || wait.over {
			wait.since = m.now()
		}
		m.waits.Add(claim, claimWait{since: wait.since, what: err.Error()})
	case ok:
		wait.over = true
		m.waits.Add(claim, wait)
	}
}

// isEarly says whether the event tells of a wait that had not lasted when it was made.
func (m *eventMemory) isEarly(event *v1.Event) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.waits.Get(event.InvolvedObject.UID)
	wait, _ := known.(claimWait)
	return ok && strings.HasSuffix(event.Message, wait.what) && event.LastTimestamp.Sub(wait.since) < tellAfter
}

// isDue says whether the event is to be written now, and takes it for written then.
func (m *eventMemory) isDue(event *v1.Event) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := event.Namespace + "/" + event.Name
	if at, ok := m.written.Get(key); ok && m.now().Sub(at.(time.Time)) < foldFor {
		return false
	}
	m.written.Add(key, m.now())
	return true
}

// wasNotWritten takes back that the event was written.
func (m *eventMemory) wasNotWritten(event *v1.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.written.Remove(event.Namespace + "/" + event.Name)
}

// eventsFolded returns the events of a client, folded.
func eventsFolded(client kubernetes.Interface, memory *eventMemory) func(namespace string) corev1client.EventInterface {
	return func(namespace string) corev1client.EventInterface {
		return &eventFold{EventInterface: client.CoreV1().Events(namespace), memory: memory}
	}
}

func isNoise(event *v1.Event) bool {
	return event.Type == v1.EventTypeNormal && event.Reason == reasonBegun
}

// CreateWithEventNamespace writes an event for the first time.
func (f *eventFold) CreateWithEventNamespace(event *v1.Event) (*v1.Event, error) {
	if isNoise(event) || f.memory.isEarly(event) || !f.memory.isDue(event) {
		return event, nil
	}
	return f.CreateWithEventNamespaceWithContext(context.Background(), event)
}

// PatchWithEventNamespace writes that an event has happened again. NotFound has
// the caller write it for the first time.
func (f *eventFold) PatchWithEventNamespace(event *v1.Event, data []byte) (*v1.Event, error) {
	if isNoise(event) || f.memory.isEarly(event) || !f.memory.isDue(event) {
		return event, nil
	}
	patched, err := f.PatchWithEventNamespaceWithContext(context.Background(), event, data)
	if apierrors.IsNotFound(err) {
		f.memory.wasNotWritten(event)
	}
	return patched, err
}
