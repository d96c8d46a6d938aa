package watch

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
)

func secretIn(name string) Object { return Object{Secrets, "vault", name} }

func notReady(name, version string) error {
	return fmt.Errorf("wrapped: %w", &NotReadyError{errors.New("missing"), secretIn(name), version})
}

func secretNamed(name, version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "vault", Name: name, ResourceVersion: version},
	}
}

// subscriptions is how many subscriptions there are.
func (o *Objects) subscriptions() (n int) {
	for _, w := range o.watches {
		n += len(w.subscribers)
	}
	return n
}

// checkWatches checks how many watches of Secrets were begun.
func checkWatches(t *testing.T, client *metadatafake.FakeMetadataClient, want int) {
	t.Helper()
	synctest.Wait()
	watches := 0
	for _, action := range client.Actions() {
		if action.Matches("watch", "secrets") {
			watches++
		}
	}
	if watches != want {
		t.Fatalf("%d watches, want %d", watches, want)
	}
}

func TestSubscribersAreNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := provisionertest.MetadataClient()
		o := NewObjects(client)
		defer o.Stop()
		notified := make(chan string, 10)
		subscribe := func(subscriber string, err error) {
			o.SubscribeError(subscriber, "shop", err, func() { notified <- subscriber })
		}
		subscribe("one", notReady("keys", ""))
		subscribe("two", notReady("keys", ""))
		subscribe("elsewhere", notReady("other", ""))
		subscribe("content", notReady("keys", ""))
		subscribe("content", errors.New("it waits for no object any more"))
		checkWatches(t, client, 2)
		secrets := client.Resource(Secrets).Namespace("vault").(metadatafake.MetadataClient)
		if _, err := secrets.CreateFake(secretNamed("keys", "7"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		got := map[string]bool{<-notified: true, <-notified: true}
		if !got["one"] || !got["two"] || len(notified) > 0 {
			t.Errorf("notified: %v and %d more", got, len(notified))
		}
		if len(o.watches) != 1 || o.subscriptions() != 1 {
			t.Errorf("%d watches, %d subscriptions", len(o.watches), o.subscriptions())
		}
		o.Unsubscribe("elsewhere")
		o.Stop()
		if subscribe("late", notReady("keys", "")); len(o.watches)+o.subscriptions() != 0 {
			t.Error("there is a subscription after Stop")
		}
	})
}

func TestWatchesAreBounded(t *testing.T) {
	o := NewObjects(provisionertest.MetadataClient())
	defer o.Stop()
	for i := range maxWatches + 10 {
		o.SubscribeError(fmt.Sprint(i), fmt.Sprint("namespace-", i), notReady(fmt.Sprint(i), ""), func() {})
	}
	if len(o.watches) != maxWatches || o.subscriptions() != maxWatches {
		t.Errorf("%d watches, %d subscriptions", len(o.watches), o.subscriptions())
	}
}

// However many objects the claims of a few namespaces wait for, that of another one is watched.
func TestEachNamespaceGetsWatches(t *testing.T) {
	o := NewObjects(provisionertest.MetadataClient())
	defer o.Stop()
	subscribe := func(namespace string, n int) bool {
		name := fmt.Sprint(namespace, "-", n)
		o.SubscribeError(name, namespace, notReady(name, ""), func() {})
		return o.watches[secretIn(name)] != nil
	}
	for n := range maxWatches {
		for _, greedy := range []string{"one", "two", "three"} {
			subscribe(greedy, n)
		}
	}
	if !subscribe("shop", 0) {
		t.Errorf("of %d watches none is left for a fourth namespace", len(o.watches))
	}
	for n := range maxWatches {
		o.Unsubscribe(fmt.Sprint("one-", n))
	}
	if !subscribe("two", maxWatches) {
		t.Error("what is free again is not used")
	}
}

// P16: the object may change between the subscriber's read and its subscription. P5: a watch begins with the objects that exist, which is no
// change to who has read them.
func TestAWatchTellsOfWhatWasNotRead(t *testing.T) {
	for what, object := range map[string]Object{
		"secrets":         secretIn("keys"),
		"referencegrants": {Resource: ReferenceGrants, Namespace: "vault"}, // all of them
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, changes := provisionertest.MetadataClient(), apiwatch.NewFake()
				client.PrependWatchReactor(what, clienttesting.DefaultWatchReactor(changes, nil))
				o := NewObjects(client)
				defer o.Stop()
				notified := make(chan string, 10)
				subscribe := func(subscriber, version string) {
					o.SubscribeError(subscriber, "shop", &NotReadyError{errors.New("no"), object, version}, func() { notified <- subscriber })
				}
				subscribe("first", "100")
				subscribe("read it later", "101")
				subscribe("saw that it is deleted", "")
				for _, version := range []string{"7", "99", "100"} {
					changes.Add(secretNamed("keys", version))
				}
				if synctest.Wait(); len(notified) > 0 {
					t.Fatalf("%s was notified of what existed", <-notified)
				}
				if subscribe("read it before", "99"); len(notified) != 1 || <-notified != "read it before" {
					t.Error("who has not seen what the first has seen waits for it")
				}
				changes.Modify(secretNamed("keys", "102"))
				if synctest.Wait(); len(notified) != 3 || len(o.watches) != 0 {
					t.Errorf("%d were notified, %d objects are watched", len(notified), len(o.watches))
				}
			})
		})
	}
}

func TestWhatIsAChange(t *testing.T) {
	for name, test := range map[string]struct {
		event        apiwatch.EventType
		now, version string
		want         bool
	}{
		"it was absent, and is there":   {apiwatch.Added, "7", "", true},
		"it was absent, and is deleted": {apiwatch.Deleted, "7", "", false},
		"it was there, and is deleted":  {apiwatch.Deleted, "8", "7", true},
		"it was there, and is the same": {apiwatch.Added, "7", "7", false},
		"it was there, and is another":  {apiwatch.Modified, "10", "9", true},
		"it was newer":                  {apiwatch.Added, "9", "10", false},
	} {
		if got := isChange(test.event, test.now, test.version); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// An object is watched again after a watch that has failed or ended.
func TestABrokenWatchGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, watches := provisionertest.MetadataClient(), 0
		client.PrependWatchReactor("secrets", func(clienttesting.Action) (bool, apiwatch.Interface, error) {
			events := apiwatch.NewFakeWithChanSize(1, false)
			switch watches++; watches {
			case 1:
				return true, nil, apierrors.NewInternalError(errors.New("etcd is slow"))
			case 2:
				events.Stop()
			case 3:
				events.Error(&apierrors.NewResourceExpired("it was long ago").ErrStatus)
			default:
				events.Modify(secretNamed("keys", "8"))
			}
			return true, events, nil
		})
		o := NewObjects(client)
		defer o.Stop()
		notified := make(chan time.Time, 1)
		start := time.Now()
		o.SubscribeError("claim", "shop", notReady("keys", "7"), func() { notified <- time.Now() })
		if took := (<-notified).Sub(start); watches != 4 || took != 7*time.Second {
			t.Errorf("after %s and %d watches", took, watches)
		}
	})
}
