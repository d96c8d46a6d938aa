package provisioner

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/topodisk/topodisk/provisioner/journal"
)

// keepStore returns the journal of a process that is writing it.
func keepStore(t *testing.T, api *fake.Clientset, commits func()) *journal.Store {
	t.Helper()
	versions := 1 // client-go's fake gives none
	api.PrependReactor("*", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if write, ok := action.(clienttesting.CreateAction); ok { // an update, too
			versions++
			write.GetObject().(*v1.ConfigMap).ResourceVersion = strconv.Itoa(versions)
		}
		return false, nil, nil
	})
	s := journal.New(api, "kube-system", "journal", commits)
	_, err := s.Load(t.Context())
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { s.Run(ctx, func(err error) { t.Error(err) }); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

// recordsOf returns what the journal's first ConfigMap has.
func recordsOf(t *testing.T, api *fake.Clientset) map[string]string {
	t.Helper()
	list, err := api.CoreV1().ConfigMaps("kube-system").List(context.Background(), metav1.ListOptions{})
	must(t, err)
	records := map[string]string{}
	for _, configMap := range list.Items {
		maps.Copy(records, configMap.Data)
	}
	return records
}

func orderOf(t *testing.T, n int) *order {
	t.Helper()
	o, _, err := newBench(t, nil).newOrder(t.Context(), claimOf(n, "20Gi"), testClass(nil), "node-1")
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestAnOrderReadFromTheBookIsTheOrder(t *testing.T) {
	b := newBench(t, nil, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vault", Name: "x"}, Data: map[string][]byte{"key": []byte("hush")}})
	class := testClass(map[string]string{
		"type": "cloud_essd", fsTypeKey: "xfs",
		"csi.storage.k8s.io/secret-name": "x", "csi.storage.k8s.io/secret-namespace": "vault",
	})
	class.UID = "class-uid"
	o, _, err := b.newOrder(t.Context(), testClaim(), class, "node-1")
	if err != nil {
		t.Fatal(err)
	}
	data, err := encode(o)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), "hush") || strings.Contains(string(data), "aHVzaA") {
		t.Error("the book has a secret")
	}
	read, err := decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(o.request, read.request, protocmp.Transform()); diff != "" {
		t.Errorf("request (-written +read):\n%s", diff)
	}
	if !read.unknown || read.node != "node-1" || !isOurs(read.claim, driverName) || read.claim.Annotations[annSelectedNode] != "node-1" || read.class.Name != class.Name || read.class.UID != class.UID {
		t.Errorf("read %+v", read)
	}
	o.claim.ResourceVersion = "" // that of the claim is told as far as it is known
	o.made, read.made = made("d-bp1", 20*gib, "zone-a").volume, made("d-bp1", 20*gib, "zone-a").volume
	if diff := cmp.Diff(b.volume(o), b.volume(read)); diff != "" {
		t.Errorf("PersistentVolume (-written +read):\n%s", diff)
	}
}

// A later version's fields are passed over, and what it has written in another format nobody begins anew.
func TestAnOrderOfALaterVersionStays(t *testing.T) {
	known, err := encode(orderOf(t, 0))
	must(t, err)
	records := map[string]string{
		"uid-0": strings.Replace(string(known), "{", `{"since":{"version":2},`, 1),
		"uid-1": `{"format":2}`,
	}
	api := fake.NewClientset(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "journal-0", ResourceVersion: "1"}, Data: records})
	s := journal.New(api, "kube-system", "journal", func() {})
	orders, unknown, err := readOrders(t.Context(), s)
	if err != nil || unknown != 1 || len(orders) != 1 || orders[0].claim.UID != "uid-0" {
		t.Fatalf("read %d orders, %d of another version, %v", len(orders), unknown, err)
	}
	if err := newOrders(s).begin(t.Context(), orderOf(t, 1)); err == nil || !strings.Contains(err.Error(), "key uid-1 of ConfigMap kube-system/journal-0") {
		t.Errorf("the order of a later format was begun anew: %v", err)
	}
}

// failingStore takes no record.
type failingStore struct{ noStore }

func (failingStore) Put(context.Context, string, []byte) error {
	return errors.New("the API server is away")
}

func TestTheDriverIsNotAskedBeforeTheJournalHasTheOrder(t *testing.T) {
	b := newBench(t, []answer{made("d-bp1", 0, "zone-a")})
	b.journal.store = failingStore{}
	if _, outcome, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); outcome != Unchanged || err == nil {
		t.Errorf("got %v, %v", outcome, err)
	}
	if creates, _ := b.driver.calls(); creates != 0 {
		t.Error("the driver was asked")
	}
}

func TestAnOrderThatCouldNotBeWrittenIsNotInTheJournal(t *testing.T) {
	for name, hasEffect := range map[string]bool{"no effect": false, "effect": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := fake.NewClientset()
				j := newOrders(keepStore(t, api, func() {}))
				failed := false
				api.PrependReactor("create", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
					if failed {
						return false, nil, nil
					}
					failed = true
					if hasEffect {
						configMap := action.(clienttesting.CreateAction).GetObject().(*v1.ConfigMap).DeepCopy()
						configMap.ResourceVersion = "1"
						must(t, api.Tracker().Create(action.GetResource(), configMap, action.GetNamespace()))
					}
					return true, nil, errors.New("away")
				})
				if err := j.begin(t.Context(), orderOf(t, 1)); err == nil || j.find("uid-1") != nil {
					t.Fatal("begun, though the journal could not be written")
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if records := recordsOf(t, api); len(records) != 0 {
					t.Errorf("the journal has volumes that nobody was asked for: %v", records)
				}
			})
		})
	}
}

func TestTheDiskStaysUntilTheJournalHasForgottenIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fake.NewClientset()
		pv := testVolume("d-bp1")
		b, r := reclaimBench(t, pv, nil, pv.DeepCopy())
		defer r.queue.ShutDown()
		b.journal.store = keepStore(t, api, func() {})
		o := orderOf(t, 1)
		o.claim.UID = pv.Spec.ClaimRef.UID
		must(t, b.journal.begin(t.Context(), o))
		looked := false
		b.look = func(*v1.PersistentVolumeClaim) { looked = true }
		if err := r.reclaim(t.Context(), "d-bp1"); !errors.Is(err, errUnderWay) || !looked || len(b.driver.deleted) > 0 {
			t.Errorf("while the order is under way: %v, looked at again %v, deleted %v", err, looked, b.driver.deleted)
		}
		b.journal.close(o.claim.UID)
		left := -1
		b.driver.onDelete = func() { left = len(recordsOf(t, api)) }
		if err := r.reclaim(t.Context(), "d-bp1"); err != nil || left != 0 {
			t.Errorf("%v; when the disk was deleted the journal had %d records, want none", err, left)
		}
	})
}

func TestWhatWasPrefetchedIsOutBeforeADiskGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fake.NewClientset()
		j := newOrders(keepStore(t, api, func() {}))
		j.prefetch(orderOf(t, 1))
		time.Sleep(time.Second)
		if n := len(recordsOf(t, api)); n != 1 {
			t.Fatalf("%d records, want the one that was prefetched", n)
		}
		if err := j.isOver(t.Context(), "uid-1"); err != nil || len(recordsOf(t, api)) != 0 {
			t.Errorf("%v; in the journal: %v", err, recordsOf(t, api))
		}
	})
}

// Whatever a record says, it is an order that is written again as it was read, or an error.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{``, `{}`, `null`, `[]`, `{"format":1}`, `{"format":2}`, `{"request":"CgR2b2wx","claim":{"uid":"u"}}`,
		`{"request":"CgR2b2wx","node":"n","fsType":"xfs","secrets":{"csi.storage.k8s.io/provisioner-secret":{"name":"x","namespace":"y"}},"claim":{"namespace":"shop","name":"data","uid":"u","created":"2026-01-01T00:00:00Z"},"class":{"name":"essd","provisioner":"p"}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		o, err := decode(record)
		if err != nil {
			return
		}
		if !o.unknown || o.claim.UID == "" || o.request.GetName() == "" || o.class == nil {
			t.Fatalf("%q is %+v", record, o)
		}
		again, err := encode(o)
		if err != nil {
			t.Fatalf("%q can't be written again: %v", record, err)
		}
		if !json.Valid(again) {
			t.Fatalf("%q is written as %q", record, again)
		}
		read, err := decode(again)
		must(t, err)
		if diff := cmp.Diff(o.request, read.request, protocmp.Transform()); diff != "" || read.claim.UID != o.claim.UID || read.node != o.node || read.class.Name != o.class.Name || read.class.UID != o.class.UID {
			t.Errorf("%q is another order when it is read again: %s", record, diff)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
