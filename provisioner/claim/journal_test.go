package claim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/deletion"
	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/internal/turns"
	"github.com/topodisk/topodisk/provisioner/journal"
	"github.com/topodisk/topodisk/provisioner/request"
)

// runJournal returns the journal of a process that is writing it.
func runJournal(t *testing.T, api *fake.Clientset) *journal.Store {
	t.Helper()
	s := journal.New(api, provisionertest.ConfigMapMetadata(api), "kube-system", "journal", func() {})
	_, err := s.Load(t.Context())
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { s.Run(ctx, func(err error) { t.Error(err) }); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

// journaled returns what the journal's ConfigMaps have.
func journaled(t *testing.T, api *fake.Clientset) map[string]string {
	t.Helper()
	list, err := api.CoreV1().ConfigMaps("kube-system").List(context.Background(), metav1.ListOptions{})
	must(t, err)
	records := map[string]string{}
	for _, configMap := range list.Items {
		maps.Copy(records, configMap.Data)
	}
	return records
}

// writtenJournal keeps what is put.
type writtenJournal struct {
	noJournal
	written []string
}

func (j *writtenJournal) Put(_ context.Context, _ string, record []byte) error {
	j.written = append(j.written, string(record))
	return nil
}

func TestTheJournalHasNoSecret(t *testing.T) {
	secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vault", Name: "x"}, Data: map[string][]byte{"key": []byte("hidden")}}
	b := newBench(t, []answer{unavailable()}, secret)
	kept := &writtenJournal{}
	b.Journal = kept
	class := testClass(map[string]string{"csi.storage.k8s.io/secret-name": "x", "csi.storage.k8s.io/secret-namespace": "vault"})
	_, _, _ = b.provision(t.Context(), testClaim(), class, "node-1")
	if len(b.driver.Created) != 1 || b.driver.Created[0].Secrets["key"] != "hidden" || len(kept.written) != 1 || !strings.Contains(kept.written[0], "vault") {
		t.Fatalf("asked for %v, written %q", b.driver.Created, kept.written)
	}
	if strings.Contains(kept.written[0], "hidden") || strings.Contains(kept.written[0], "aGlkZGVu") {
		t.Error("the journal has a secret")
	}
}

// nthClaim returns the nth claim of a namespace.
func nthClaim(n int, namespace string) *v1.PersistentVolumeClaim {
	return testClaim(func(c *v1.PersistentVolumeClaim) {
		c.Namespace, c.Name, c.UID = namespace, fmt.Sprint("data-", n), types.UID(fmt.Sprintf("%s-%d", namespace, n))
	})
}

// startImmediate begins with so many claims of a namespace, of a class with binding mode Immediate.
func (b *bench) startImmediate(t *testing.T, namespace string, claims int) {
	t.Helper()
	class := testClass(nil)
	class.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
	must(t, b.Classes.Add(class))
	for n := range claims {
		claim := nthClaim(n, namespace)
		must(t, b.Claims.Add(claim))
		b.Start(claim)
	}
}

// runs has the claims worked on until end is called, which returns when none is.
func (b *bench) runs(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var run sync.WaitGroup
	run.Go(func() { b.Run(ctx) })
	return func() { cancel(); run.Wait() }
}

// savedVolumes returns how many PersistentVolumes the API server has.
func (b *bench) savedVolumes(t *testing.T) int {
	t.Helper()
	list, err := b.api.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	return len(list.Items)
}

// countingDriver takes a second for each volume, and notes how many calls it has at a time, of each namespace and of all.
type countingDriver struct {
	*provisionertest.ScriptedDriver
	volumes atomic.Int32

	counts sync.Mutex
	now    map[string]int
	most   map[string]int // the key of all is empty
}

func newCountingDriver(d *provisionertest.ScriptedDriver) *countingDriver {
	return &countingDriver{ScriptedDriver: d, now: map[string]int{}, most: map[string]int{}}
}

func (d *countingDriver) count(namespace string, more int) {
	d.counts.Lock()
	defer d.counts.Unlock()
	for _, key := range []string{namespace, ""} {
		d.now[key] += more
		d.most[key] = max(d.most[key], d.now[key])
	}
}

func (d *countingDriver) CreateVolume(_ context.Context, in *csi.CreateVolumeRequest, _ ...grpc.CallOption) (*csi.CreateVolumeResponse, error) {
	namespace, _, _ := strings.Cut(strings.TrimPrefix(in.Name, "disk-"), "-")
	d.count(namespace, 1)
	defer d.count(namespace, -1)
	time.Sleep(time.Second)
	return &csi.CreateVolumeResponse{Volume: made(fmt.Sprintf("d-%d", d.volumes.Add(1)), 20*gib, "zone-a").Volume}, nil
}

// sharedJournal answers Put once so many wait for it.
type sharedJournal struct {
	noJournal
	each int

	mu      sync.Mutex
	waiting []chan struct{}
}

func (j *sharedJournal) Put(context.Context, string, []byte) error {
	written := make(chan struct{})
	j.mu.Lock()
	if j.waiting = append(j.waiting, written); len(j.waiting) == j.each {
		for _, one := range j.waiting {
			close(one)
		}
		j.waiting = nil
	}
	j.mu.Unlock()
	<-written
	return nil
}

// All claims under way may wait for the journal at the same time, so that they share a write, and then all ask the driver.
func TestClaimsShareJournalCommits(t *testing.T) {
	const claims = 20
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.Now = time.Now
		b.Workers = 8
		b.turns = turns.New(b.Workers + b.Workers/4)
		driver := newCountingDriver(b.driver)
		b.Driver, b.Journal = driver, &sharedJournal{each: 2 * 10}
		for _, namespace := range []string{"one", "two"} {
			b.startImmediate(t, namespace, claims)
		}
		end := b.runs(t.Context())
		time.Sleep(time.Minute)
		end()
		if n := int(driver.volumes.Load()); n != 2*claims {
			t.Errorf("%d volumes for %d claims", n, 2*claims)
		}
		for namespace, want := range map[string]int{"one": 10, "two": 10, "": 20} {
			if most := driver.most[namespace]; most != want {
				t.Errorf("the driver had %d calls at a time of namespace %q, want %d", most, namespace, want)
			}
		}
	})
}

// heldAPI saves no PersistentVolume of a namespace until it is released.
type heldAPI struct {
	apiServer
	namespace string
	release   chan struct{}
	saving    atomic.Int32
}

func (h *heldAPI) save(ctx context.Context, pv *v1.PersistentVolume) error {
	if pv.Spec.ClaimRef.Namespace == h.namespace {
		h.saving.Add(1)
		defer h.saving.Add(-1)
		<-h.release
	}
	return h.apiServer.save(ctx, pv)
}

// While all claims of a namespace that may be under way wait for the API server, no more volumes are made for it, and those of another
// namespace go on.
func TestANamespaceThatIsNotSavedKeepsNoOther(t *testing.T) {
	const claims = 20
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.Now = time.Now
		driver, held := newCountingDriver(b.driver), &heldAPI{apiServer: b.Syncer.api, namespace: "held", release: make(chan struct{})}
		b.Driver, b.Syncer.api = driver, held
		b.startImmediate(t, "held", claims)
		end := b.runs(t.Context())
		time.Sleep(5 * time.Second) // a call takes one
		each := b.Workers + b.Workers/4
		if made, saving := int(driver.volumes.Load()), int(held.saving.Load()); made != each || saving != each {
			t.Errorf("%d volumes are made and %d being saved, want %d", made, saving, each)
		}
		b.startImmediate(t, "other", claims)
		time.Sleep(12 * time.Second)
		if saved, saving := b.savedVolumes(t), int(held.saving.Load()); saved != claims || saving != each {
			t.Errorf("%d volumes of the other namespace are saved and %d of the first are being saved, want %d and %d", saved, saving, claims, each)
		}
		close(held.release)
		time.Sleep(time.Minute)
		end()
		if saved := b.savedVolumes(t); saved != 2*claims {
			t.Errorf("%d volumes are saved for %d claims", saved, 2*claims)
		}
		for namespace, most := range driver.most {
			if most != each { // of all, too: the namespaces were not under way together
				t.Errorf("the driver had %d calls at a time of namespace %q, want %d", most, namespace, each)
			}
		}
	})
}

// heldJournal answers Put once it is released.
type heldJournal struct {
	noJournal
	release chan struct{}
}

func (j heldJournal) Put(context.Context, string, []byte) error { <-j.release; return nil }

// What waits for its turn or for the journal at the end is left to the next leader; calls under way are answered, and their volumes saved.
func TestNoCallBeginsAfterTheEnd(t *testing.T) {
	const claims = 20
	for name, test := range map[string]struct {
		held bool // by the journal
		want int  // volumes
	}{"claims that are queued": {want: 2}, "claims that wait for the journal": {held: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, nil)
				b.Now = time.Now
				driver, held := newCountingDriver(b.driver), heldJournal{release: make(chan struct{})}
				b.Driver, b.Journal = driver, held
				if !test.held {
					close(held.release)
				}
				b.startImmediate(t, "shop", claims)
				ctx, cancel := context.WithCancel(t.Context())
				end := b.runs(ctx)
				time.Sleep(time.Second / 2)
				cancel()
				if synctest.Wait(); test.held {
					close(held.release)
				}
				end()
				if n, saved := int(driver.volumes.Load()), b.savedVolumes(t); n != test.want || saved != test.want {
					t.Errorf("%d volumes were made and %d saved, want %d", n, saved, test.want)
				}
				if events := b.drained(); len(events) > test.want {
					t.Errorf("events %q", events)
				}
			})
		})
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
	if record, err := read.Encode(); err != nil || string(record) != earlier {
		t.Errorf("as it was read it is %s, %v", record, err)
	}
	b, kept := newBench(t, []answer{unavailable()}), &writtenJournal{}
	b.Journal = kept
	claim := testClaim(func(c *v1.PersistentVolumeClaim) { c.UID = "uid-1" })
	_, outcome, err := b.provision(t.Context(), claim, testClass(nil), "node-1")
	if outcome != maybeVolume || len(kept.written) != 1 || kept.written[0] != earlier {
		t.Errorf("made anew it is %s; %v, %v", kept.written, outcome, err)
	}
}

// fullJournal has no room until it is said to have some.
type fullJournal struct {
	noJournal
	hasRoom atomic.Bool
}

func (j *fullJournal) Put(context.Context, string, []byte) error {
	if j.hasRoom.Load() {
		return nil
	}
	return &journal.FullError{}
}

// A claim whose record finds no room is looked at soon after there is some, however long it has waited.
func TestAClaimWaitsForRoomInTheJournal(t *testing.T) {
	b := newBench(t, []answer{made("d-bp1", 0, "zone-a")})
	b.Journal = &fullJournal{}
	_, outcome, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
	if outcome != notSent || !strings.Contains(fmt.Sprint(err), "the journal is full") {
		t.Errorf("got %v, %v", outcome, err)
	}
	if creates, _ := b.driver.Calls(); creates != 0 || b.open() != 0 {
		t.Errorf("the driver was asked %d times, %d volumes are under way", creates, b.open())
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, []answer{made("d-bp1", 0, "zone-a")})
		b.Now, b.RetryMax = time.Now, time.Hour
		full := &fullJournal{}
		b.Journal = full
		b.startImmediate(t, "shop", 1)
		defer b.runs(t.Context())()
		time.Sleep(2 * time.Hour)
		if creates, _ := b.driver.Calls(); creates != 0 {
			t.Errorf("without room the driver was asked %d times", creates)
		}
		full.hasRoom.Store(true)
		time.Sleep(longestWait)
		synctest.Wait()
		if creates, saved := len(b.driver.Created), b.savedVolumes(t); creates != 1 || saved != 1 {
			t.Errorf("with room the driver was asked %d times, and %d volumes are saved", creates, saved)
		}
	})
}

// A claim whose record found no room leaves what its namespace may have to the others.
func TestAClaimWithoutARecordHasNoShare(t *testing.T) {
	for what, test := range map[string]struct {
		kept    Journal
		answers []answer
	}{
		"it finds no room":  {kept: &fullJournal{}},
		"it is not written": {kept: failingJournal{}},
		"it is answered":    {kept: noJournal{}, answers: []answer{refused(codes.Internal)}},
	} {
		b := newBench(t, test.answers)
		b.Journal = test.kept
		if _, _, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); err == nil {
			t.Fatalf("%s: no error", what)
		}
		if e := b.claims["0f1e"]; e.bytes != 0 {
			t.Errorf("%s: the claim has %d bytes of the journal", what, e.bytes)
		}
	}
}

// failingJournal takes no record.
type failingJournal struct{ noJournal }

func (failingJournal) Put(context.Context, string, []byte) error {
	return errors.New("the API server is away")
}

func TestTheJournalPrecedesCreateVolume(t *testing.T) {
	b := newBench(t, []answer{made("d-bp1", 0, "zone-a")})
	b.Journal = failingJournal{}
	if _, outcome, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); outcome != notSent || err == nil {
		t.Errorf("got %v, %v", outcome, err)
	}
	if creates, _ := b.driver.Calls(); creates != 0 {
		t.Error("the driver was asked")
	}
}

func TestAFailedJournalWriteLeavesNoRecord(t *testing.T) {
	for name, hasEffect := range map[string]bool{"no effect": false, "effect": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := fake.NewClientset()
				b := newBench(t, nil)
				b.Journal = runJournal(t, api)
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
				if _, outcome, err := b.provision(t.Context(), nthClaim(1, "shop"), testClass(nil), "node-1"); outcome != notSent || err == nil || b.open() != 0 {
					t.Fatal("begun, though the journal could not be written")
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if records := journaled(t, api); len(records) != 0 {
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
		b.Journal = runJournal(t, api)
		claim := nthClaim(1, "shop")
		if _, outcome, _ := b.provision(t.Context(), claim, testClass(nil), "node-1"); outcome != maybeVolume {
			t.Fatalf("got %v", outcome)
		}
		taken, _ := b.queue.Get() // that it was started
		b.queue.Done(taken)
		if err := b.Settle(t.Context(), claim.UID); !errors.Is(err, deletion.ErrUnderWay) || b.queue.Len() != 1 {
			t.Errorf("while the attempt is under way: %v, %d claims are queued", err, b.queue.Len())
		}
		b.work(t.Context(), claim.UID)
		if creates, _ := b.driver.Calls(); creates != 2 {
			t.Errorf("the driver was asked %d times, want 2: it is woken in its back-off", creates)
		}
		if err := b.Settle(t.Context(), claim.UID); err != nil || len(journaled(t, api)) != 0 {
			t.Errorf("%v; the journal has %v, want nothing", err, journaled(t, api))
		}
		b.Journal = unflushedJournal{}
		if err := b.Settle(t.Context(), claim.UID); err == nil {
			t.Error("no error, though the journal can't be written")
		}
	})
}

// unflushedJournal can't be written.
type unflushedJournal struct{ noJournal }

func (unflushedJournal) Flush(context.Context, string) error { return errors.New("away") }

// endingJournal has requests of an operator, by key, and notes which are taken back.
type endingJournal struct {
	noJournal
	reasons  map[string]string
	rejected []string
}

func (j *endingJournal) EndRequest(key string) string { return j.reasons[key] }

func (j *endingJournal) RejectEnd(key string) {
	delete(j.reasons, key)
	j.rejected = append(j.rejected, key)
}

// requestEnd is an operator's request to end a record.
func (b *bench) requestEnd(j *endingJournal, key, reason string) {
	j.reasons[key] = reason
	b.EndRequested(key, reason)
}

// mayBeMade leaves open whether an earlier call has made the volume.
var mayBeMade = answer{Err: status.Error(codes.Aborted, "it may have been made before")}

func TestAnOperatorEndsARecord(t *testing.T) {
	b, kept := newBench(t, []answer{mayBeMade}), &endingJournal{reasons: map[string]string{}}
	b.Journal = kept
	if _, outcome, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); err == nil || b.open() != 1 {
		t.Fatalf("%v, %v", outcome, err)
	}
	b.drained()
	must(t, b.Claims.Delete(testClaim()))
	b.ClaimGone(testClaim())
	b.requestEnd(kept, "0f1e", "the keys may not list disks")
	_, _, _ = b.attempt(t.Context(), "0f1e")
	if b.open() != 0 || len(kept.rejected) > 0 {
		t.Errorf("%d are open; rejected %q", b.open(), kept.rejected)
	}
	if creates, _ := b.driver.Calls(); creates != 1 {
		t.Errorf("the driver was asked %d times", creates)
	}
	const want = "ProvisioningEnded an operator has ended the record of disk-0f1e: the keys may not list disks"
	if events := b.drained(); len(events) != 1 || !strings.Contains(events[0], want) {
		t.Errorf("events %q", events)
	}
}

func TestARecordThatIsNeededIsNotEnded(t *testing.T) {
	for what, answered := range map[string]answer{
		"nobody knows of a volume": mayBeMade,
		"the volume is known":      made("d-bp1", 20*gib, "zone-a"),
	} {
		t.Run(what, func(t *testing.T) {
			b, kept := newBench(t, []answer{answered}), &endingJournal{reasons: map[string]string{}}
			b.Journal = kept
			b.refuseVolumes(errors.New("etcd is slow"))
			_, _, _ = b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
			b.drained()
			b.requestEnd(kept, "0f1e", "no proof")
			_, _, _ = b.attempt(t.Context(), "0f1e")
			events := b.said()
			told := strings.Contains(events, "ProvisioningNotEnded") && strings.Contains(events, "its claim still wants a volume")
			if b.open() != 1 || !told || len(kept.rejected) != 1 {
				t.Errorf("%d are open, events %q, rejected %q", b.open(), events, kept.rejected)
			}
			_, _, _ = b.attempt(t.Context(), "0f1e")
			if len(kept.rejected) != 1 {
				t.Errorf("one request was rejected twice: %q", kept.rejected)
			}
		})
	}
}

func TestAnEndRequestWithoutARecordIsRejected(t *testing.T) {
	b, kept := newBench(t, nil), &endingJournal{reasons: map[string]string{}}
	b.Journal = kept
	b.requestEnd(kept, "uid-9", "no proof")
	if len(kept.rejected) != 1 || kept.rejected[0] != "uid-9" {
		t.Errorf("rejected %q", kept.rejected)
	}
}
