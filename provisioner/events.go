package provisioner

import (
	"context"
	"fmt"
	"regexp"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/topodisk/topodisk/internal/errorinfo"
	"github.com/topodisk/topodisk/internal/escape"
)

// Reasons of events; package claim has those about claims.
const (
	reasonTwice          = "ProvisionedTwice"
	reasonJournalChanged = "JournalChanged"
	reasonRecovery       = "RecoveryFailed"
	reasonCapacity       = "CapacityUnknown"
)

const (
	// writeInterval is the time between two writes of the same event, which in between is only counted.
	writeInterval = time.Minute
	// maxWritten bounds the events whose last write is remembered.
	maxWritten = 4096
)

// longestEvent is the most bytes of an event's message, as of the API events.k8s.io.
const longestEvent = 1024

// boundedEvents cuts the messages of events: what a tenant has written may be in them, and they are kept in etcd.
type boundedEvents struct{ record.EventRecorder }

func (e boundedEvents) Event(object runtime.Object, kind, reason, message string) {
	e.EventRecorder.Event(object, kind, reason, escape.Line(message, longestEvent-len("...")))
}

func (e boundedEvents) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	e.Event(object, kind, reason, fmt.Sprintf(format, args...))
}

func (e boundedEvents) AnnotatedEventf(object runtime.Object, annotations map[string]string, kind, reason, format string, args ...any) {
	e.EventRecorder.AnnotatedEventf(object, annotations, kind, reason, "%s", escape.Line(fmt.Sprintf(format, args...), longestEvent-len("...")))
}

// aggregatedEvents writes the same event once in writeInterval. The count of each write
// includes the occurrences in between.
type aggregatedEvents struct {
	corev1client.EventInterface
	written *cache.LRUExpireCache // the events that were written within writeInterval, by namespace/name
}

func newAggregatedEvents(client kubernetes.Interface) *aggregatedEvents {
	return &aggregatedEvents{client.CoreV1().Events(metav1.NamespaceAll), cache.NewLRUExpireCache(maxWritten)}
}

// CreateWithEventNamespace writes an event for the first time.
func (a *aggregatedEvents) CreateWithEventNamespace(event *v1.Event) (*v1.Event, error) {
	return a.write(event, func() (*v1.Event, error) { return a.CreateWithEventNamespaceWithContext(context.Background(), event) })
}

// PatchWithEventNamespace writes that an event has happened again. After NotFound the
// caller creates it.
func (a *aggregatedEvents) PatchWithEventNamespace(event *v1.Event, data []byte) (*v1.Event, error) {
	return a.write(event, func() (*v1.Event, error) {
		return a.PatchWithEventNamespaceWithContext(context.Background(), event, data)
	})
}

// write writes an event unless it was written within writeInterval. It is called for one event after the other.
func (a *aggregatedEvents) write(event *v1.Event, write func() (*v1.Event, error)) (*v1.Event, error) {
	key := event.Namespace + "/" + event.Name
	if _, wasWritten := a.written.Get(key); wasWritten {
		return event, nil
	}
	written, err := write()
	if err == nil {
		a.written.Add(key, nil, writeInterval)
	}
	return written, err
}

// PodReference returns a reference to the Pod of this process, for events. kubectl
// describe shows those with its UID.
func PodReference(namespace, name, uid string) *v1.ObjectReference {
	return &v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name, UID: types.UID(uid)}
}

// requestIDs differ in texts that say the same.
var requestIDs = regexp.MustCompile(` \(request ID [\w-]+\)`)

// capacityUnknown says on the CSIDriver that the driver doesn't say how much there is.
func (c *Controller) capacityUnknown(err error) {
	driver := &v1.ObjectReference{APIVersion: storagev1.SchemeGroupVersion.String(), Kind: "CSIDriver", Name: c.config.DriverName}
	info, _ := errorinfo.Of(err)
	info.RequestID = ""
	c.events.AnnotatedEventf(driver, info.Annotations(), v1.EventTypeWarning, reasonCapacity,
		"How much storage there is is not known, and the CSIStorageCapacity objects stay as they are: %s", requestIDs.ReplaceAllString(err.Error(), ""))
}
