package provisioner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/deletion"
	"github.com/topodisk/topodisk/provisioner/journal"
	"github.com/topodisk/topodisk/provisioner/request"
)

// runStore returns the journal of a process that is writing it.
func runStore(t *testing.T, api *fake.Clientset, commits func()) *journal.Store {
	t.Helper()
	versions := 1 // client-go's fake gives none
	api.PrependReactor("*", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if write, ok := action.(clienttesting.CreateAction); ok { // an update, too
			versions++
			write.GetObject().(*v1.ConfigMap).ResourceVersion = strconv.Itoa(versions)
		}
		return false, nil, nil
	})
	objects := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
	objects.PrependReactor("get", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		configMap, err := api.CoreV1().ConfigMaps(action.GetNamespace()).Get(context.Background(), action.(clienttesting.GetAction).GetName(), metav1.GetOptions{})
		return true, &metav1.PartialObjectMetadata{ObjectMeta: configMap.ObjectMeta}, err
	})
	s := journal.New(api, objects, "kube-system", "journal", commits)
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

func requestFor(t *testing.T, n int) *request.Request {
	t.Helper()
	return newBench(t, nil).planned(t, claimOf(n, "20Gi"), testClass(nil)).Request
}

func TestTheJournalHasNoSecret(t *testing.T) {
	b := newBench(t, nil, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vault", Name: "x"}, Data: map[string][]byte{"key": []byte("hidden")}})
	class := testClass(map[string]string{"csi.storage.k8s.io/secret-name": "x", "csi.storage.k8s.io/secret-namespace": "vault"})
	class.Name = "essd"
	resolved := b.planned(t, testClaim(), class)
	store := &recordingStore{}
	b.store = store
	must(t, putRequest(t.Context(), b.store, resolved.Request))
	if resolved.Secrets["key"] != "hidden" || len(store.written) != 1 || !strings.Contains(store.written[0], "vault") {
		t.Fatalf("secrets %v, written %q", resolved.Secrets, store.written)
	}
	if strings.Contains(store.written[0], "hidden") || strings.Contains(store.written[0], "aGlkZGVu") {
		t.Error("the journal has a secret")
	}
}

// slowStore answers Put once so many wait for it.
type slowStore struct {
	noStore
	waiting sync.WaitGroup
}

func (s *slowStore) Put(context.Context, string, []byte) error {
	s.waiting.Done()
	s.waiting.Wait()
	return nil
}

// busyDriver notes how many calls it has at a time.
type busyDriver struct {
	*scriptedDriver
	volumes, calls, most atomic.Int32
}

func (d *busyDriver) CreateVolume(context.Context, *csi.CreateVolumeRequest, ...grpc.CallOption) (*csi.CreateVolumeResponse, error) {
	now := d.calls.Add(1)
	defer d.calls.Add(-1)
	for most := d.most.Load(); now > most && !d.most.CompareAndSwap(most, now); most = d.most.Load() {
	}
	time.Sleep(time.Second)
	return &csi.CreateVolumeResponse{Volume: made(fmt.Sprintf("d-%d", d.volumes.Add(1)), 20*gib, "zone-a").volume}, nil
}

// However many claims wait for the journal, as many as there are workers ask the driver.
func TestClaimsShareJournalCommits(t *testing.T) {
	const claims = 20
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.exec.trace = func(types.UID, attempt.Action) {}
		driver, store := &busyDriver{scriptedDriver: b.driver}, &slowStore{}
		b.Provisioner.driver, b.store = driver, store
		store.waiting.Add(claims)
		b.beginImmediate(t, claims)
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { b.exec.run(ctx) })
		time.Sleep(time.Minute)
		cancel()
		run.Wait()
		if n := driver.volumes.Load(); n != claims {
			t.Errorf("%d volumes for %d claims", n, claims)
		}
		if most, workers := driver.most.Load(), b.config.Workers; int(most) != workers {
			t.Errorf("the driver had %d calls at a time, want %d", most, workers)
		}
	})
}

// beginImmediate begins the attempts for as many claims of a class with binding mode Immediate.
func (b *bench) beginImmediate(t *testing.T, claims int) {
	t.Helper()
	class := testClass(nil)
	class.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
	must(t, b.resolver.classes.Add(class))
	for n := range claims {
		claim := claimOf(n, "20Gi")
		claim.Spec.StorageClassName = &class.Name
		b.attempts.Begin(claim.UID, attempt.Started{Claim: claim})
	}
}

// heldStore answers Put once it is released.
type heldStore struct {
	noStore
	release chan struct{}
}

func (s heldStore) Put(context.Context, string, []byte) error { <-s.release; return nil }

// What waits for a worker or for the journal at the end is left to the next leader; calls under way are answered, and their
// volumes saved.
func TestNoCallBeginsAfterTheEnd(t *testing.T) {
	const claims = 20
	for name, test := range map[string]struct {
		held bool // by the journal
		want int  // volumes
	}{"claims that are queued": {want: 2}, "claims that wait for the journal": {held: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, nil)
				b.exec.trace = func(types.UID, attempt.Action) {}
				driver, store := &busyDriver{scriptedDriver: b.driver}, heldStore{release: make(chan struct{})}
				b.Provisioner.driver, b.store = driver, store
				if !test.held {
					close(store.release)
				}
				b.beginImmediate(t, claims)
				ctx, cancel := context.WithCancel(t.Context())
				var run sync.WaitGroup
				run.Go(func() { b.exec.run(ctx) })
				time.Sleep(time.Second / 2)
				cancel()
				if synctest.Wait(); test.held {
					close(store.release)
				}
				run.Wait()
				saved, err := b.api.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
				if must(t, err); int(driver.volumes.Load()) != test.want || len(saved.Items) != test.want {
					t.Errorf("%d volumes were made and %d saved, want %d", driver.volumes.Load(), len(saved.Items), test.want)
				}
				if events := b.drained(); len(events) > test.want {
					t.Errorf("events %q", events)
				}
			})
		})
	}
}

// A later version's fields are passed over, and what it has written in another format nobody begins anew.
func TestARecordOfALaterVersionIsKept(t *testing.T) {
	known, err := requestFor(t, 0).Encode()
	must(t, err)
	records := map[string]string{
		"uid-0": strings.Replace(string(known), "{", `{"since":{"version":2},`, 1),
		"uid-1": `{"format":2}`,
	}
	api := fake.NewClientset(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "journal-0", ResourceVersion: "1"}, Data: records})
	s := journal.New(api, nil, "kube-system", "journal", func() {})
	requests, unknown, err := readRequests(t.Context(), s)
	if err != nil || unknown != 1 || len(requests) != 1 || requests[0].Claim.UID != "uid-0" {
		t.Fatalf("read %d requests, %d of another version, %v", len(requests), unknown, err)
	}
	b := newBench(t, nil)
	b.store = s
	if err := putRequest(t.Context(), b.store, requestFor(t, 1)); err == nil || !strings.Contains(err.Error(), "key uid-1 of ConfigMap kube-system/journal-0") {
		t.Errorf("the request of a later format was begun again: %v", err)
	}
}

// earlier is a record as versions with eight ConfigMaps write it.
const earlier = `{"request":"CgpkaXNrLXVpZC0xEgYIgICAgFAaFRoCCAESDwoEZXh0NBIHbm9hdGltZTpSCicKJQobdG9wb2xvZ3kua3ViZXJuZXRlcy5pby96b25lEgZ6b25lLWESJwolCht0b3BvbG9neS5rdWJlcm5ldGVzLmlvL3pvbmUSBnpvbmUtYQ==","node":"node-1","fsType":"ext4","secrets":{},"claim":{"namespace":"shop","name":"data","uid":"uid-1","selectedNode":"node-1","created":null,"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"20Gi"}},"storageClassName":"essd","volumeMode":"Filesystem"}},"class":{"name":"essd","uid":"","provisioner":"diskplugin.csi.alibabacloud.com","reclaimPolicy":"Delete","mountOptions":["noatime"],"bindingMode":"WaitForFirstConsumer"}}`

// An upgrade reads what those versions wrote, and they read what this one writes.
func TestRecordsAreCompatibleWithEarlierVersions(t *testing.T) {
	read, err := request.Decode([]byte(earlier))
	must(t, err)
	if read.Create.Name != "disk-uid-1" || read.Node != "node-1" || read.Claim.Name != "data" {
		t.Errorf("read %+v", read)
	}
	for what, r := range map[string]*request.Request{"as it was read": read, "made anew": requestFor(t, 1)} {
		if record, err := r.Encode(); err != nil || string(record) != earlier {
			t.Errorf("%s it is %s, %v", what, record, err)
		}
	}
}

// A claim whose record finds no room is looked at when there is some.
func TestAClaimWaitsForRoomInTheJournal(t *testing.T) {
	b := newBench(t, []answer{made("d-bp1", 0, "zone-a")})
	full := &fullStore{}
	b.store = full
	looked := func() int { return b.exec.queue.Len() }
	_, outcome, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
	if outcome != attempt.Unchanged || !strings.Contains(text(err), "the journal is full") || full.wake == nil {
		t.Fatalf("got %v, %v", outcome, err)
	}
	if creates, _ := b.driver.calls(); creates != 0 {
		t.Errorf("the driver was asked %d times", creates)
	}
	claim, _ := b.exec.queue.Get() // that it was started
	b.exec.queue.Done(claim)
	before := looked()
	if full.wake(); before != 0 || looked() != 1 {
		t.Errorf("with room %d claims are queued, before %d", looked(), before)
	}
}

// A claim that waits for room no more leaves it to the others.
func TestAClaimStopsWaitingForRoom(t *testing.T) {
	for what, do := range map[string]func(*bench){
		"it is gone": func(b *bench) { b.attempts.Post("0f1e", attempt.ClaimGone{}) },
		"it waits for its Secret": func(b *bench) {
			class := testClass(map[string]string{"csi.storage.k8s.io/secret-name": "keys", "csi.storage.k8s.io/secret-namespace": "vault"})
			must(t, b.resolver.classes.Add(class))
			b.attempts.Post("0f1e", attempt.ClassChanged{})
		},
	} {
		b := newBench(t, nil)
		full := &fullStore{}
		b.store = full
		if _, _, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); err == nil || full.wake == nil {
			t.Fatalf("%s: got %v", what, err)
		}
		do(b)
		if b.exec.work(t.Context(), "0f1e"); full.wake != nil {
			t.Errorf("%s: the claim still waits for room", what)
		}
	}
}

// fullStore has no room.
type fullStore struct {
	noStore
	wake func()
}

func (*fullStore) Put(context.Context, string, []byte) error     { return &journal.FullError{} }
func (f *fullStore) AwaitRoom(_ *journal.FullError, wake func()) { f.wake = wake }
func (f *fullStore) Cancel(string)                               { f.wake = nil }

// failingStore takes no record.
type failingStore struct{ noStore }

func (failingStore) Put(context.Context, string, []byte) error {
	return errors.New("the API server is away")
}

func TestTheJournalPrecedesCreateVolume(t *testing.T) {
	b := newBench(t, []answer{made("d-bp1", 0, "zone-a")})
	b.store = failingStore{}
	if _, outcome, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); outcome != attempt.Unchanged || err == nil {
		t.Errorf("got %v, %v", outcome, err)
	}
	if creates, _ := b.driver.calls(); creates != 0 {
		t.Error("the driver was asked")
	}
}

func TestAFailedJournalWriteLeavesNoRecord(t *testing.T) {
	for name, hasEffect := range map[string]bool{"no effect": false, "effect": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := fake.NewClientset()
				b := newBench(t, nil)
				b.store = runStore(t, api, func() {})
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
				if _, outcome, err := b.provision(t.Context(), claimOf(1, "20Gi"), testClass(nil), "node-1"); outcome != attempt.Unchanged || err == nil || b.open() != 0 {
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

func TestSettleWaitsForTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fake.NewClientset()
		b := newBench(t, []answer{unavailable(), refused(codes.Internal)})
		b.store = runStore(t, api, func() {})
		claim := claimOf(1, "20Gi")
		if _, outcome, _ := b.provision(t.Context(), claim, testClass(nil), "node-1"); outcome != attempt.Background {
			t.Fatalf("got %v", outcome)
		}
		taken, _ := b.exec.queue.Get() // that it was started
		b.exec.queue.Done(taken)
		retries := 0
		retry := func() { retries++ }
		if err := b.exec.Settle(t.Context(), claim.UID, "pv", retry); !errors.Is(err, deletion.ErrUnderWay) || b.exec.queue.Len() != 1 || retries != 0 {
			t.Errorf("while the attempt is under way: %v, %d claims are queued, %d retries", err, b.exec.queue.Len(), retries)
		}
		if b.exec.work(t.Context(), claim.UID); retries != 1 {
			t.Errorf("the deletion was retried %d times at the attempt's end, want once", retries)
		}
		if err := b.exec.Settle(t.Context(), claim.UID, "pv", retry); err != nil || len(recordsOf(t, api)) != 0 {
			t.Errorf("%v; the journal has %v, want nothing", err, recordsOf(t, api))
		}
		b.store = unflushedStore{}
		if err := b.exec.Settle(t.Context(), claim.UID, "pv", retry); err == nil {
			t.Error("no error, though the journal can't be written")
		}
	})
}

// unflushedStore can't be written.
type unflushedStore struct{ noStore }

func (unflushedStore) Flush(context.Context, string) error { return errors.New("away") }

func TestSettleCancelsAPrefetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fake.NewClientset()
		b := newBench(t, nil)
		b.store = runStore(t, api, func() {})
		must(t, b.resolver.classes.Add(testClass(nil)))
		b.store.Prefetch("uid-1", b.resolver.prefetch(t.Context(), claimOf(1, "20Gi")))
		time.Sleep(time.Second)
		if n := len(recordsOf(t, api)); n != 1 {
			t.Fatalf("%d records, want the one that was prefetched", n)
		}
		if err := b.exec.Settle(t.Context(), "uid-1", "pv", func() {}); err != nil || len(recordsOf(t, api)) != 0 {
			t.Errorf("%v; in the journal: %v", err, recordsOf(t, api))
		}
	})
}
