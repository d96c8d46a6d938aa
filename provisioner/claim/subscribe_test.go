package claim

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/provisioner/watch"
)

func TestANewSecretWakesItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.Now, b.RetryStart, b.RetryMax = time.Now, time.Hour, time.Hour
		b.Objects = watch.NewObjects(b.metadata)
		defer b.Objects.Stop()
		class := testClass(map[string]string{"csi.storage.k8s.io/secret-name": "keys", "csi.storage.k8s.io/secret-namespace": "vault"})
		missing := watch.Object{Resource: watch.Secrets, Namespace: "vault", Name: "keys"}
		if _, meaning, err := b.provision(t.Context(), testClaim(), class, "node-1"); meaning != notSent || watch.NotReadyObject(err) != missing {
			t.Fatalf("got %v, %v", meaning, err)
		}
		for b.queue.Len() > 0 { // it was queued to begin with
			uid, _ := b.queue.Get()
			b.queue.Done(uid)
		}
		synctest.Wait() // the watch is established
		secret := &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "vault", Name: "keys", ResourceVersion: "7"},
		}
		if err := b.metadata.Tracker().Add(secret); err != nil {
			t.Fatal(err)
		}
		added := time.Now()
		if claim, _ := b.queue.Get(); claim != "0f1e" || time.Since(added) > time.Minute {
			t.Errorf("claim %q was woken after %v", claim, time.Since(added))
		}
	})
}
