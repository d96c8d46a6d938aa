package provisioner

import (
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/watch"
)

func TestANewSecretWakesItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.objects = watch.NewObjects(b.metadata)
		defer b.objects.Stop()
		class := testClass(map[string]string{"csi.storage.k8s.io/secret-name": "keys", "csi.storage.k8s.io/secret-namespace": "vault"})
		missing := watch.Object{Resource: watch.Secrets, Namespace: "vault", Name: "keys"}
		if _, outcome, err := b.provision(t.Context(), testClaim(), class, "node-1"); outcome != attempt.Unchanged || watch.NotReadyObject(err) != missing {
			t.Fatalf("got %v, %v", outcome, err)
		}
		synctest.Wait() // the watch is established
		secret := &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "vault", Name: "keys", ResourceVersion: "7"},
		}
		if err := b.metadata.Tracker().Add(secret); err != nil {
			t.Fatal(err)
		}
		if claim, _ := b.exec.queue.Get(); claim != "0f1e" {
			t.Errorf("claim %q was woken", claim)
		}
	})
}
