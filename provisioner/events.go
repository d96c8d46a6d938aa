package provisioner

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/lru"
)

// Reasons of events, upstream csi-provisioner's where it has one.
const (
	reasonCleanupFailed = "ProvisioningCleanupFailed"
	reasonFailed        = "ProvisioningFailed"
	reasonSucceeded     = "ProvisioningSucceeded"
	reasonTopology      = "ProvisioningTopology"
	reasonPopulator     = "ExternalPopulator"
	reasonMigration     = "ProvisioningRefused"
	reasonConflict      = "ProvisioningTied"
	reasonDuplicates    = "ProvisionedTwice"
)

const (
	// foldFor is how long the same event is only counted before it is written again.
	foldFor = time.Minute
	// maxFolded bounds the memory of what was written.
	maxFolded = 4096
)

// eventFold stands before the API server and lets the same event through once
// a foldFor: the count that is written then has all in between.
type eventFold struct {
	corev1client.EventInterface
	memory *eventMemory
}

type eventMemory struct {
	mu      sync.Mutex
	written *lru.Cache // event name -> time
	now     func() time.Time
}

func newEventMemory(now func() time.Time) *eventMemory {
	return &eventMemory{written: lru.New(maxFolded), now: now}
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

// foldedEvents returns the events of a client, folded.
func foldedEvents(client kubernetes.Interface, memory *eventMemory) func(namespace string) corev1client.EventInterface {
	return func(namespace string) corev1client.EventInterface {
		return &eventFold{EventInterface: client.CoreV1().Events(namespace), memory: memory}
	}
}

// CreateWithEventNamespace writes an event for the first time.
func (f *eventFold) CreateWithEventNamespace(event *v1.Event) (*v1.Event, error) {
	if !f.memory.isDue(event) {
		return event, nil
	}
	created, err := f.CreateWithEventNamespaceWithContext(context.Background(), event)
	if err != nil {
		f.memory.wasNotWritten(event)
	}
	return created, err
}

// PatchWithEventNamespace writes that an event has happened again. NotFound has
// the caller write it for the first time.
func (f *eventFold) PatchWithEventNamespace(event *v1.Event, data []byte) (*v1.Event, error) {
	if !f.memory.isDue(event) {
		return event, nil
	}
	patched, err := f.PatchWithEventNamespaceWithContext(context.Background(), event, data)
	if err != nil {
		f.memory.wasNotWritten(event)
	}
	return patched, err
}

// PodReference names the Pod of this process, for events. kubectl describe shows
// those that have its UID.
func PodReference(namespace, name, uid string) *v1.ObjectReference {
	return &v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name, UID: types.UID(uid)}
}
