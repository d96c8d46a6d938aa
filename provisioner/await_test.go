package provisioner

import (
	"errors"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
)

func waitsFor(err error) object {
	var want *wanting
	if errors.As(err, &want) {
		return want.object
	}
	return object{}
}

func wantOf(name, version string) error {
	return fmt.Errorf("wrapped: %w", &wanting{errors.New("missing"), object{secretsResource, "vault", name}, version})
}

func secretNamed(name, version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "vault", Name: name, ResourceVersion: version},
	}
}

func awaitWatches(t *testing.T, client *metadatafake.FakeMetadataClient, n int) {
	t.Helper()
	eventually(t, "the objects were watched", func() bool {
		watches := 0
		for _, action := range client.Actions() {
			if action.Matches("watch", "secrets") {
				watches++
			}
		}
		return watches == n
	})
}

func TestWhoWaitsForAnObjectIsWokenWhenItChanges(t *testing.T) {
	client := metadatafake.NewSimpleMetadataClient(metadataScheme())
	a := newAwaiting(client)
	defer a.stop()
	woken := make(chan string, 10)
	wait := func(who string, err error) { a.heed(who, err, func() { woken <- who }) }
	wait("one", wantOf("keys", ""))
	wait("two", wantOf("keys", ""))
	wait("seen", wantOf("keys", "7")) // what comes is what it has seen
	wait("elsewhere", wantOf("other", ""))
	wait("content", wantOf("keys", ""))
	wait("content", errors.New("it wants nothing any more"))
	awaitWatches(t, client, 2)
	secrets := client.Resource(secretsResource).Namespace("vault").(metadatafake.MetadataClient)
	if _, err := secrets.CreateFake(secretNamed("keys", "7"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{<-woken: true, <-woken: true}
	if !got["one"] || !got["two"] || len(woken) > 0 {
		t.Errorf("woken: %v and %d more", got, len(woken))
	}
	a.forget("elsewhere")
	if len(a.watched) != 1 || len(a.waits) != 1 {
		t.Errorf("%d watches, %d waits", len(a.watched), len(a.waits))
	}
	a.stop()
	if wait("late", wantOf("keys", "")); len(a.watched)+len(a.waits) != 0 {
		t.Error("somebody waits after the end")
	}
}

func TestWatchesAreBounded(t *testing.T) {
	a := newAwaiting(metadatafake.NewSimpleMetadataClient(metadataScheme()))
	defer a.stop()
	for i := range mostWatches + 10 {
		a.heed(fmt.Sprint(i), wantOf(fmt.Sprint(i), ""), func() {})
	}
	if len(a.watched) != mostWatches || len(a.waits) != mostWatches {
		t.Errorf("%d watches, %d waits", len(a.watched), len(a.waits))
	}
}

func TestAClaimThatLacksItsSecretIsTriedWhenTheSecretComes(t *testing.T) {
	b := newBench(t, nil)
	woken := make(chan struct{}, 1)
	b.awaiting, b.look = newAwaiting(b.metadata), func(*v1.PersistentVolumeClaim) { woken <- struct{}{} }
	defer b.awaiting.stop()
	class := testClass(map[string]string{reservedPrefix + "provisioner-secret-name": "keys", reservedPrefix + "provisioner-secret-namespace": "vault"})
	if _, outcome, err := b.provision(t.Context(), testClaim(), class, "node-1"); outcome != Unchanged || waitsFor(err) != (object{secretsResource, "vault", "keys"}) {
		t.Fatalf("got %v, %v", outcome, err)
	}
	awaitWatches(t, b.metadata, 1)
	if err := b.metadata.Tracker().Add(secretNamed("keys", "7")); err != nil {
		t.Fatal(err)
	}
	<-woken
}

// P16: what a waiter waits for may have happened between its look and its registration.
func TestAWaiterThatComesTooLateIsWokenAtOnce(t *testing.T) {
	client := metadatafake.NewSimpleMetadataClient(metadataScheme())
	a := newAwaiting(client)
	defer a.stop()
	woken := make(chan string, 10)
	wait := func(who, version string) { a.heed(who, wantOf("keys", version), func() { woken <- who }) }
	wait("has seen it", "8") // keeps the watch
	wait("first", "7")
	awaitWatches(t, client, 1)
	secrets := client.Resource(secretsResource).Namespace("vault").(metadatafake.MetadataClient)
	_, err := secrets.CreateFake(secretNamed("keys", "8"), metav1.CreateOptions{})
	must(t, err)
	if who := <-woken; who != "first" {
		t.Fatalf("%s was woken", who)
	}
	for who, version := range map[string]string{"saw what was before": "7", "saw that it wasn't there": ""} {
		wait(who, version)
		select {
		case got := <-woken:
			if got != who {
				t.Errorf("%s was woken, want %s", got, who)
			}
		default:
			t.Errorf("who %s waits for what has happened already", who)
		}
	}
	wait("saw it later", "9")
	must(t, secrets.Delete(t.Context(), "keys", metav1.DeleteOptions{}))
	eventually(t, "the watch has shown that it is gone", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return !a.watched[object{secretsResource, "vault", "keys"}].there
	})
	if wait("saw that it is gone", ""); len(woken) > 0 {
		t.Errorf("%s was woken", <-woken)
	}
}

// P5: a watch begins with what is there, which is no change to who has seen it in a list.
func TestWhatWasListedIsNoChange(t *testing.T) {
	client := metadatafake.NewSimpleMetadataClient(metadataScheme())
	replayed := watch.NewFake()
	client.PrependWatchReactor("referencegrants", clienttesting.DefaultWatchReactor(replayed, nil))
	a := newAwaiting(client)
	defer a.stop()
	woken := make(chan string, 10)
	all := object{resource: grantsResource, namespace: "vault"}
	a.heed("claim", &wanting{errors.New("none allows it"), all, "100"}, func() { woken <- "claim" })
	a.heed("another", &wanting{errors.New("none allows it"), all, "1000"}, func() {}) // keeps the watch
	for _, version := range []string{"7", "99", "100"} {
		replayed.Add(secretNamed("unrelated", version))
	}
	if len(woken) > 0 {
		t.Fatal("woken by what was there")
	}
	replayed.Add(secretNamed("new", "101"))
	<-woken
}
