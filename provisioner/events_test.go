package provisioner

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
)

func TestTheSameEventIsWrittenOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fake.NewClientset()
		events := corev1client.EventSinkImpl{Interface: newAggregatedEvents(api)}
		event := func(name, kind, reason string) *v1.Event {
			return &v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Type: kind, Reason: reason}
		}
		failed, other := event("a", v1.EventTypeWarning, "ProvisioningFailed"), event("b", v1.EventTypeWarning, "ProvisioningFailed")
		created := func(e *v1.Event) {
			t.Helper()
			if got, err := events.Create(e); err != nil || got.Name != e.Name {
				t.Errorf("got %v, %v", got, err)
			}
		}
		again := func(e *v1.Event) {
			t.Helper()
			if got, err := events.Patch(e, []byte(`{"count":2}`)); err != nil || got.Name != e.Name {
				t.Errorf("got %v, %v", got, err)
			}
		}
		count := func(want int) {
			t.Helper()
			if got := len(api.Actions()); got != want {
				t.Errorf("%d writes, want %d", got, want)
			}
		}
		created(failed)
		created(other)
		again(failed)
		count(2)
		time.Sleep(writeInterval + time.Nanosecond)
		again(failed)
		again(failed)
		count(3)
	})
}

// P13: an event that could not be written is written when it is tried again.
func TestAFailedEventIsWrittenAgain(t *testing.T) {
	for verb, write := range map[string]func(corev1client.EventSinkImpl, *v1.Event) (*v1.Event, error){
		"create": func(sink corev1client.EventSinkImpl, e *v1.Event) (*v1.Event, error) { return sink.Create(e) },
		"patch": func(sink corev1client.EventSinkImpl, e *v1.Event) (*v1.Event, error) {
			return sink.Patch(e, []byte(`{"count":2}`))
		},
	} {
		t.Run(verb, func(t *testing.T) {
			api := fake.NewClientset()
			event := &v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}, Type: v1.EventTypeWarning, Reason: "ProvisioningFailed"}
			if verb == "patch" {
				must(t, api.Tracker().Add(event.DeepCopy()))
			}
			away := true
			api.PrependReactor(verb, "events", func(clienttesting.Action) (bool, runtime.Object, error) {
				return away, nil, apierrors.NewInternalError(errors.New("etcd is slow"))
			})
			sink := corev1client.EventSinkImpl{Interface: newAggregatedEvents(api)}
			if _, err := write(sink, event); err == nil {
				t.Fatal("no error")
			}
			away = false
			_, err := write(sink, event)
			must(t, err)
			if writes := len(api.Actions()); writes != 2 {
				t.Errorf("%d writes were tried, want 2", writes)
			}
		})
	}
}

// A tenant may have written what is in an event, and an event is kept in etcd.
func TestAnEventIsBounded(t *testing.T) {
	recorder := record.NewFakeRecorder(3)
	events, claim, long := boundedEvents{recorder}, provisionertest.Claim(), strings.Repeat("x", 250_000)
	events.Event(claim, v1.EventTypeWarning, "Long", long)
	events.Eventf(claim, v1.EventTypeWarning, "Long", "%s: %d %%", long, 1)
	events.AnnotatedEventf(claim, nil, v1.EventTypeWarning, "Long", "%s: %d %%", long, 1)
	for range cap(recorder.Events) {
		event := <-recorder.Events
		if message := strings.TrimPrefix(event, "Warning Long "); len(message) > longestEvent || !strings.HasSuffix(message, "x...") {
			t.Errorf("%d bytes: %.40s", len(message), event)
		}
	}
}
