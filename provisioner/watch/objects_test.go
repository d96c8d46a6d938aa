package watch

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

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
		subscribe("seen", notReady("keys", "7")) // the version that it has seen
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
		o.Unsubscribe("elsewhere")
		if len(o.watches) != 1 || len(o.subscriptions) != 1 {
			t.Errorf("%d watches, %d subscriptions", len(o.watches), len(o.subscriptions))
		}
		o.Stop()
		if subscribe("late", notReady("keys", "")); len(o.watches)+len(o.subscriptions) != 0 {
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
	if len(o.watches) != maxWatches || len(o.subscriptions) != maxWatches {
		t.Errorf("%d watches, %d subscriptions", len(o.watches), len(o.subscriptions))
	}
}

// However many objects the claims of a few namespaces wait for, that of another one is watched.
func TestEachNamespaceGetsWatches(t *testing.T) {
	o := NewObjects(provisionertest.MetadataClient())
	defer o.Stop()
	subscribe := func(namespace string, n int) bool {
		name := fmt.Sprint(namespace, "-", n)
		o.SubscribeError(name, namespace, notReady(name, ""), func() {})
		_, is := o.subscriptions[name]
		return is
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

// P16: the object may change between the subscriber's read and its subscription.
func TestALateSubscriberIsNotifiedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := provisionertest.MetadataClient()
		o := NewObjects(client)
		defer o.Stop()
		notified := make(chan string, 10)
		subscribe := func(subscriber, version string) {
			o.Subscribe(subscriber, "shop", secretIn("keys"), version, func() { notified <- subscriber })
		}
		subscribe("has seen it", "8") // keeps the watch
		subscribe("first", "7")
		checkWatches(t, client, 1)
		secrets := client.Resource(Secrets).Namespace("vault").(metadatafake.MetadataClient)
		if _, err := secrets.CreateFake(secretNamed("keys", "8"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if subscriber := <-notified; subscriber != "first" {
			t.Fatalf("%s was notified", subscriber)
		}
		for subscriber, version := range map[string]string{"saw the version before": "7", "saw that it was absent": ""} {
			subscribe(subscriber, version)
			select {
			case got := <-notified:
				if got != subscriber {
					t.Errorf("%s was notified, want %s", got, subscriber)
				}
			default:
				t.Errorf("who %s waits for a change that has happened", subscriber)
			}
		}
		subscribe("saw it later", "9")
		if err := secrets.Delete(t.Context(), "keys", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if o.watches[secretIn("keys")].exists {
			t.Fatal("the watch has not shown that it is deleted")
		}
		if subscribe("saw that it is deleted", ""); len(notified) > 0 {
			t.Errorf("%s was notified", <-notified)
		}
	})
}

// P5: a watch begins with the objects that exist, which is no change to who has listed them.
func TestListedObjectsNotifyNobody(t *testing.T) {
	client := provisionertest.MetadataClient()
	replayed := apiwatch.NewFake()
	client.PrependWatchReactor("referencegrants", clienttesting.DefaultWatchReactor(replayed, nil))
	o := NewObjects(client)
	defer o.Stop()
	notified := make(chan string, 10)
	all := Object{Resource: ReferenceGrants, Namespace: "vault"}
	o.Subscribe("claim", "shop", all, "100", func() { notified <- "claim" })
	o.Subscribe("another", "shop", all, "1000", func() {}) // keeps the watch
	for _, version := range []string{"7", "99", "100"} {
		replayed.Add(secretNamed("unrelated", version))
	}
	if len(notified) > 0 {
		t.Fatal("notified of what existed")
	}
	replayed.Add(secretNamed("new", "101"))
	<-notified
}
