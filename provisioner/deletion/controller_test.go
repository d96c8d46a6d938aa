package deletion

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/internal/affinity"
	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

var must = provisionertest.Must

// claims have attempts under way as long as err is set.
type claims struct{ err error }

func (c *claims) Settle(context.Context, types.UID) error { return c.err }

var errSuperseded = errors.New("the lease is lost")

// bench is a Controller with a cache of its own and an API server that may differ from it.
type bench struct {
	*Controller
	driver *provisionertest.DeletingDriver
	api    *fake.Clientset
	events *record.FakeRecorder
	claims *claims
}

func newBench(t *testing.T, cached *v1.PersistentVolume, attached []*storagev1.VolumeAttachment, live ...runtime.Object) *bench {
	t.Helper()
	b := &bench{driver: &provisionertest.DeletingDriver{}, api: fake.NewClientset(live...), events: record.NewFakeRecorder(100), claims: &claims{}}
	volumes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, watch.VolumeIndexers())
	attachments := cache.NewIndexer(cache.MetaNamespaceKeyFunc, watch.AttachmentIndexers())
	for _, a := range attached {
		must(t, attachments.Add(a))
	}
	must(t, volumes.Add(cached))
	b.Controller = New(Config{
		Request: request.Options{DriverName: provisionertest.DriverName, VolumeNamePrefix: "disk", PVNameSource: request.VolumeID},
		Workers: 2, RetryStart: time.Millisecond, RetryMax: time.Second,
		Client: b.api, Volumes: volumes, Attachments: attachments, Objects: watch.NewObjects(nil), Deleter: NewDeleter(b.api, b.driver, 10*time.Second),
		Claims: b.claims, Events: b.events, Observe: func(string, time.Time, error) {},
		IsSuperseded: func(err error) bool { return errors.Is(err, errSuperseded) },
	})
	t.Cleanup(b.queue.ShutDown)
	b.running.Store(true)
	return b
}

// next does what is queued next.
func (b *bench) next(ctx context.Context) {
	name, _ := b.queue.Get()
	defer b.queue.Done(name)
	b.attempt(ctx, name)
}

// steps lists what was done, in order.
func (b *bench) steps() []string {
	var list []string
	for _, action := range b.api.Actions() {
		switch a := action.(type) {
		case clienttesting.PatchAction:
			list = append(list, "patch "+a.GetName()+" "+string(a.GetPatch()))
		default:
			list = append(list, action.GetVerb()+" "+action.GetResource().Resource)
		}
	}
	return list
}

func TestNothingIsDoneDuringAnAttempt(t *testing.T) {
	for name, change := range map[string]func(*v1.PersistentVolume){
		"released": func(*v1.PersistentVolume) {},
		"retained and being deleted": func(pv *v1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy, pv.DeletionTimestamp = v1.PersistentVolumeReclaimRetain, ptr.To(metav1.Now())
		},
	} {
		t.Run(name, func(t *testing.T) {
			pv := provisionertest.Volume("d-bp1", change)
			b := newBench(t, pv, nil, pv.DeepCopy())
			b.claims.err = errors.New("under way")
			if err := b.sync(t.Context(), "d-bp1"); !errors.Is(err, b.claims.err) || len(b.steps()) != 0 || b.driver.Deletes() != 0 {
				t.Errorf("%v; done was %v, with %d calls of DeleteVolume", err, b.steps(), b.driver.Deletes())
			}
			b.claims.err = nil
			if err := b.sync(t.Context(), "d-bp1"); err != nil || len(b.steps()) == 0 {
				t.Errorf("%v; done was %v", err, b.steps())
			}
		})
	}
}

// A deletion that an attempt holds up for a moment is not reported, and one that is held up for longer is.
func TestALongWaitForAnAttemptIsReported(t *testing.T) {
	pv := provisionertest.Volume("d-bp1")
	b := newBench(t, pv, nil, pv.DeepCopy())
	b.claims.err = fmt.Errorf("settle: %w", ErrUnderWay)
	failures := 0
	b.Observe = func(string, time.Time, error) { failures++ }
	b.VolumeChanged(pv)
	for n := range quietRetries + 2 {
		b.next(t.Context())
		events := provisionertest.Events(b.events)
		if told := len(events) == 1 && strings.Contains(events[0], reasonDeleteFailed) && strings.Contains(events[0], "still under way"); told != (n >= quietRetries) {
			t.Errorf("attempt %d: events %q", n, events)
		}
	}
	if failures != 2 {
		t.Errorf("%d failures were counted, want 2", failures)
	}
}

// A deletion that an attempt has held up is tried again by itself, and made once the attempt has ended.
func TestADeletionFollowsTheAttempt(t *testing.T) {
	pv := provisionertest.Volume("d-bp1")
	b := newBench(t, pv, nil, pv.DeepCopy())
	b.claims.err = fmt.Errorf("settle: %w", ErrUnderWay)
	b.VolumeChanged(pv)
	for range 2 {
		b.next(t.Context())
	}
	if n := b.driver.Deletes(); n != 0 {
		t.Errorf("%d calls of DeleteVolume during the attempt", n)
	}
	b.claims.err = nil
	b.next(t.Context())
	if n := b.driver.Deletes(); n != 1 {
		t.Errorf("%d calls of DeleteVolume after the attempt", n)
	}
}

// deafDriver answers no DeleteVolume of a disk whose ID begins as given.
type deafDriver struct {
	*provisionertest.DeletingDriver
	begin string
	calls provisionertest.Crowd
}

func (d *deafDriver) DeleteVolume(ctx context.Context, in *csi.DeleteVolumeRequest, options ...grpc.CallOption) (*csi.DeleteVolumeResponse, error) {
	if strings.HasPrefix(in.VolumeId, d.begin) {
		defer d.calls.Enter()()
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return d.DeletingDriver.DeleteVolume(ctx, in, options...)
}

// Deletions of one namespace that all wait for the driver, as of an account that ECS throttles, keep those of another waiting no moment.
func TestDeletionsOfANamespaceDontWaitForThoseOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 50
		live := []runtime.Object{}
		for n := range many {
			live = append(live, provisionertest.Volume(fmt.Sprintf("d-crowd%d", n), func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef.Namespace = "crowd" }))
		}
		small := provisionertest.Volume("d-bp1")
		b := newBench(t, small, nil, append(live, small)...)
		for _, pv := range live {
			must(t, b.Volumes.Add(pv.(*v1.PersistentVolume).DeepCopy()))
		}
		driver := &deafDriver{DeletingDriver: b.driver, begin: "d-crowd"}
		b.Deleter = NewDeleter(b.api, driver, time.Minute)
		must(t, b.Volumes.Delete(small))
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { b.Run(ctx) })
		time.Sleep(time.Second)
		must(t, b.Volumes.Add(small))
		b.VolumeChanged(small)
		synctest.Wait()
		if n := b.driver.Deletes(); n != 1 {
			t.Errorf("the small namespace's volume was deleted %d times", n)
		}
		if most := int(driver.calls.Most.Load()); most != b.Workers {
			t.Errorf("the driver had %d calls of the large namespace at a time, want %d", most, b.Workers)
		}
		cancel()
		run.Wait()
	})
}

func TestEveryFailureIsReported(t *testing.T) {
	deleting := func(pv *v1.PersistentVolume) {
		pv.Spec.PersistentVolumeReclaimPolicy, pv.DeletionTimestamp = v1.PersistentVolumeReclaimRetain, ptr.To(metav1.Now())
	}
	guarded := func(pv *v1.PersistentVolume) { pv.Status.Phase, pv.Finalizers = v1.VolumeBound, nil }
	resource := v1.Resource("persistentvolumes")
	for name, test := range map[string]struct {
		change  func(*v1.PersistentVolume)
		settle  error
		patch   error // the API server's answer
		ignored bool
	}{
		"the journal can't be written":      {change: func(*v1.PersistentVolume) {}, settle: errors.New("away")},
		"its finalizer can't be removed":    {change: deleting, patch: apierrors.NewInternalError(errors.New("etcd is slow"))},
		"it can't be given the finalizer":   {change: guarded, patch: apierrors.NewForbidden(resource, "d-bp1", errors.New("no rule"))},
		"its finalizer meets a conflict":    {change: guarded, patch: apierrors.NewConflict(resource, "d-bp1", errors.New("modified"))},
		"it is gone":                        {change: guarded, patch: apierrors.NewNotFound(resource, "d-bp1"), ignored: true},
		"it is being deleted or another by": {change: guarded, patch: apierrors.NewInvalid(schema.GroupKind{}, "d-bp1", nil), ignored: true},
	} {
		t.Run(name, func(t *testing.T) {
			pv := provisionertest.Volume("d-bp1", test.change)
			b := newBench(t, pv, nil, pv.DeepCopy())
			b.claims.err = test.settle
			b.api.PrependReactor("patch", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
				return test.patch != nil, nil, test.patch
			})
			counted := 0
			b.Observe = func(_ string, _ time.Time, err error) {
				if err != nil {
					counted++
				}
			}
			b.VolumeChanged(pv)
			b.next(t.Context())
			want := 1
			if test.ignored {
				want = 0
			}
			events := provisionertest.Events(b.events)
			if len(events) != want || counted != want || b.queue.NumRequeues("d-bp1") != want || want > 0 && !strings.Contains(events[0], reasonDeleteFailed) {
				t.Errorf("events %q, %d failures counted, %d retries", events, counted, b.queue.NumRequeues("d-bp1"))
			}
		})
	}
}

// Once the Lease is lost, the next leader deletes what this process may not delete any more.
func TestTheLossOfTheLeaseIsNotReported(t *testing.T) {
	pv := provisionertest.Volume("d-bp1")
	b := newBench(t, pv, nil, pv.DeepCopy())
	b.claims.err = fmt.Errorf("settle: %w", errSuperseded)
	b.VolumeChanged(pv)
	b.next(t.Context())
	if events := provisionertest.Events(b.events); len(events) > 0 || b.queue.NumRequeues("d-bp1") != 1 {
		t.Errorf("the events are %q, and it is tried again %d times", events, b.queue.NumRequeues("d-bp1"))
	}
}

func TestRecheckAllQueuesOnlyWork(t *testing.T) {
	bound := func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeBound }
	b := newBench(t, provisionertest.Volume("d-bp0", bound), nil)
	queued := func() (names []string) {
		b.RecheckAll()
		for b.queue.Len() > 0 {
			name, _ := b.queue.Get()
			b.queue.Done(name)
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
	must(t, b.Volumes.Add(provisionertest.Volume("d-bp1")))
	must(t, b.Volumes.Add(provisionertest.Volume("d-bp2", bound, func(pv *v1.PersistentVolume) { pv.Finalizers = nil })))
	if got := queued(); !slices.Equal(got, []string{"d-bp1", "d-bp2"}) {
		t.Errorf("queued %v", got)
	}
	must(t, b.Volumes.Update(provisionertest.Volume("d-bp0")))
	must(t, b.Volumes.Update(provisionertest.Volume("d-bp2", bound)))
	if got := queued(); !slices.Equal(got, []string{"d-bp0", "d-bp1"}) {
		t.Errorf("queued %v", got)
	}
}

func TestOldestPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		since := func(ago time.Duration, phase v1.PersistentVolumePhase) func(*v1.PersistentVolume) {
			return func(pv *v1.PersistentVolume) {
				pv.Status = v1.PersistentVolumeStatus{Phase: phase, LastPhaseTransitionTime: ptr.To(metav1.NewTime(now.Add(-ago)))}
			}
		}
		retained := func(pv *v1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
		}
		b := newBench(t, provisionertest.Volume("in-use", since(4*time.Hour, v1.VolumeBound)), nil)
		must(t, b.Volumes.Add(provisionertest.Volume("retained", since(3*time.Hour, v1.VolumeReleased), retained)))
		must(t, b.Volumes.Add(provisionertest.Volume("unknown")))
		if got := b.OldestPending(); got != 0 {
			t.Errorf("nothing is to be deleted, yet something waits for %v", got)
		}
		must(t, b.Volumes.Add(provisionertest.Volume("released", since(time.Minute, v1.VolumeReleased))))
		must(t, b.Volumes.Add(provisionertest.Volume("stuck", since(time.Hour, v1.VolumeReleased))))
		if got := b.OldestPending(); got != time.Hour {
			t.Errorf("the oldest waits for %v, want an hour", got)
		}
	})
}

// BenchmarkRecheckAll measures what the driver's return costs among volumes that are in use.
func BenchmarkRecheckAll(b *testing.B) {
	for _, others := range []int{100, 10000, 100000} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			volumes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, watch.VolumeIndexers())
			c := New(Config{
				Request: request.Options{DriverName: provisionertest.DriverName}, RetryStart: time.Second, RetryMax: time.Second,
				Volumes: volumes,
			})
			defer c.queue.ShutDown()
			for i := range others {
				if err := volumes.Add(provisionertest.Volume(fmt.Sprint("d-", i), func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeBound })); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				c.RecheckAll()
			}
		})
	}
}

// P4: volumes come and go while this process stands by.
func TestAStandBysQueueDoesNotGrow(t *testing.T) {
	b := newBench(t, provisionertest.Volume("d-bp0"), nil)
	b.running.Store(false)
	for n := range 500 {
		pv := provisionertest.Volume(fmt.Sprintf("d-%d", n))
		must(t, b.Volumes.Add(pv))
		b.VolumeChanged(pv)
		must(t, b.Volumes.Delete(pv))
		b.VolumeDeleted(pv)
	}
	if left := b.queue.Len(); left > 0 {
		t.Errorf("%d volumes that are gone are queued", left)
	}
}

func TestTheDiskIsDeletedBeforeItsVolume(t *testing.T) {
	pv := provisionertest.Volume("d-bp1", func(pv *v1.PersistentVolume) {
		pv.Annotations[request.AnnDeletionSecretName], pv.Annotations[request.AnnDeletionSecretNamespace] = "x", "vault"
	})
	secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vault", Name: "x"}, Data: map[string][]byte{"k": []byte("v")}}
	b := newBench(t, pv, nil, pv.DeepCopy(), secret)
	before := 0
	b.driver.OnDelete = func() { before = len(b.api.Actions()) }
	if err := b.sync(t.Context(), "d-bp1"); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"get persistentvolumes", "get persistentvolumeclaims", "get secrets", "delete persistentvolumes",
		`patch d-bp1 {"metadata":{"uid":"uid-d-bp1","$deleteFromPrimitiveList/finalizers":["external-provisioner.volume.kubernetes.io/finalizer"]}}`,
	}
	if diff := cmp.Diff(want, b.steps()); diff != "" {
		t.Error(diff)
	}
	if before != 3 {
		t.Errorf("DeleteVolume came after %d API calls, want 3", before)
	}
	if got := b.driver.Deleted[0]; got.VolumeId != "d-bp1" || got.Secrets["k"] != "v" {
		t.Errorf("got %v", got)
	}
	// The cache shows it being deleted for a moment longer.
	still := pv.DeepCopy()
	still.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	if err := errors.Join(b.Volumes.Update(still), b.sync(t.Context(), "d-bp1")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, b.steps()); diff != "" {
		t.Errorf("what is over was asked for again: %s", diff)
	}
}

func TestADeletionReadsTheVolumeAgain(t *testing.T) {
	for name, live := range map[string]func(*v1.PersistentVolume){
		"the policy was changed to Retain": func(pv *v1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
		},
		"it is bound again":                  func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeBound },
		"it is another one of the same name": func(pv *v1.PersistentVolume) { pv.UID = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, provisionertest.Volume("d-bp1"), nil, provisionertest.Volume("d-bp1", live))
			if err := b.sync(t.Context(), "d-bp1"); err != nil {
				t.Fatal(err)
			}
			if deletes := b.driver.Deletes(); deletes != 0 {
				t.Error("the disk was deleted")
			}
		})
	}
	t.Run("it is gone", func(t *testing.T) {
		b := newBench(t, provisionertest.Volume("d-bp1"), nil)
		if err := b.sync(t.Context(), "d-bp1"); err != nil {
			t.Fatal(err)
		}
		if deletes := b.driver.Deletes(); deletes != 0 {
			t.Error("the disk was deleted")
		}
	})
}

func TestAnAttachedDiskIsNotDeleted(t *testing.T) {
	attachment := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-1"},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: provisionertest.DriverName, NodeName: "node-1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("d-bp1")},
		},
	}
	b := newBench(t, provisionertest.Volume("d-bp1"), []*storagev1.VolumeAttachment{attachment}, provisionertest.Volume("d-bp1"))
	failures := 0
	b.Observe = func(string, time.Time, error) { failures++ }
	err := b.sync(t.Context(), "d-bp1")
	if err == nil || !strings.Contains(err.Error(), "node-1") {
		t.Errorf("got %v", err)
	}
	if deletes := b.driver.Deletes(); deletes != 0 {
		t.Error("the disk was deleted")
	}
	if events := provisionertest.Events(b.events); len(events) != 1 || !strings.HasPrefix(events[0], "Normal "+reasonAttached) || failures > 0 {
		t.Errorf("events %q, and %d failures are counted", events, failures)
	}
	b.AttachmentDeleted(attachment)
	if b.queue.Len() != 1 {
		t.Error("the end of the attachment did not have the volume looked at again")
	}
}

func TestAFailedDeletionLeavesThePersistentVolume(t *testing.T) {
	b := newBench(t, provisionertest.Volume("d-bp1"), nil, provisionertest.Volume("d-bp1"))
	b.driver.Answers = []error{status.Error(codes.FailedPrecondition, "in use")}
	if err := b.sync(t.Context(), "d-bp1"); err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff([]string{"get persistentvolumes", "get persistentvolumeclaims"}, b.steps()); diff != "" {
		t.Error(diff)
	}
	if events := provisionertest.Events(b.events); len(events) != 1 || !strings.Contains(events[0], "VolumeFailedDelete") || !strings.Contains(events[0], "in use") {
		t.Errorf("events %q", events)
	}
}

func TestARetainedVolumeKeepsItsDisk(t *testing.T) {
	pv := provisionertest.Volume("d-bp1", func(pv *v1.PersistentVolume) {
		pv.Spec.PersistentVolumeReclaimPolicy, pv.DeletionTimestamp = v1.PersistentVolumeReclaimRetain, ptr.To(metav1.Now())
	})
	b := newBench(t, pv, nil, pv.DeepCopy())
	if err := b.sync(t.Context(), "d-bp1"); err != nil {
		t.Fatal(err)
	}
	if got := b.steps(); len(got) != 1 || !strings.HasPrefix(got[0], "patch d-bp1") {
		t.Errorf("got %q", got)
	}
	if deletes := b.driver.Deletes(); deletes != 0 {
		t.Error("the disk was deleted")
	}
}

func TestABoundVolumeGetsTheFinalizer(t *testing.T) {
	pv := provisionertest.Volume("d-bp1", func(pv *v1.PersistentVolume) {
		pv.Status.Phase, pv.Finalizers = v1.VolumeBound, []string{"kubernetes.io/pv-protection"}
	})
	b := newBench(t, pv, nil, pv.DeepCopy())
	b.VolumeChanged(pv)
	b.next(t.Context())
	want := []string{`patch d-bp1 {"metadata":{"uid":"uid-d-bp1","finalizers":["external-provisioner.volume.kubernetes.io/finalizer"]}}`}
	if diff := cmp.Diff(want, b.steps()); diff != "" {
		t.Error(diff)
	}
	live, err := b.api.CoreV1().PersistentVolumes().Get(t.Context(), "d-bp1", metav1.GetOptions{})
	if err != nil || !request.HasFinalizer(live) || len(live.Finalizers) != 2 {
		t.Errorf("got %v, %v", live, err)
	}
}

func TestRunEndsWhenItsCallsAreAnswered(t *testing.T) {
	b := newBench(t, provisionertest.Volume("d-bp1"), nil, provisionertest.Volume("d-bp1"))
	entered, release := make(chan struct{}), make(chan struct{})
	b.driver.OnDelete = func() { close(entered); <-release }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { b.Run(ctx); close(done) }()
	b.VolumeChanged(provisionertest.Volume("d-bp1"))
	<-entered
	cancel()
	select {
	case <-done:
		t.Fatal("it ended with a call under way")
	case <-time.After(20 * time.Millisecond):
	}
	close(release)
	<-done
	if got := b.steps(); len(got) != 4 {
		t.Errorf("the volume under way was not brought to its end: %q", got)
	}
}

func TestRunBeginsNothingAfterItsEnd(t *testing.T) {
	const volumes = 20
	var live []runtime.Object
	for n := range volumes {
		live = append(live, provisionertest.Volume(fmt.Sprint("d-", n)))
	}
	b := newBench(t, provisionertest.Volume("d-0"), nil, live...)
	for _, pv := range live {
		must(t, b.Volumes.Update(pv.DeepCopyObject()))
	}
	entered, release := make(chan struct{}, volumes), make(chan struct{})
	b.driver.OnDelete = func() { entered <- struct{}{}; <-release }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { b.Run(ctx); close(done) }()
	<-entered
	cancel()
	for !b.queue.ShuttingDown() {
		goruntime.Gosched()
	}
	close(release)
	<-done
	if n := b.driver.Deletes(); n > b.Workers {
		t.Errorf("%d volumes were deleted, want those of the %d workers at most", n, b.Workers)
	}
}

func TestDeletionSecret(t *testing.T) {
	class := provisionertest.Class(map[string]string{
		"csi.storage.k8s.io/provisioner-secret-name": "${pv.name}-${pvc.name}", "csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}",
	})
	secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "disk-0f1e-data"}, Data: map[string][]byte{"k": []byte("v")}}
	old := func(pv *v1.PersistentVolume) {
		pv.Spec.StorageClassName, pv.Annotations[request.AnnVolumeName] = "essd", "disk-0f1e"
	}
	tests := map[string]struct {
		change func(*v1.PersistentVolume)
		live   []runtime.Object
		want   string // of the error; nothing: it is deleted
		waits  watch.Object
		secret string
	}{
		"of an old volume":     {change: old, live: []runtime.Object{class, secret}, secret: "v"},
		"the class names none": {change: old, live: []runtime.Object{provisionertest.Class(nil)}},
		"the class is gone":    {change: old, want: "class essd is gone"},
		"the Secret is gone": {
			change: old, live: []runtime.Object{class}, want: "secret shop/disk-0f1e-data",
			waits: watch.Object{Resource: watch.Secrets, Namespace: "shop", Name: "disk-0f1e-data"},
		},
		"the Secret has no data": { // with the driver's own keys the disk would be taken for deleted
			change: old, want: "secret shop/disk-0f1e-data has no data",
			live:  []runtime.Object{class, &v1.Secret{ObjectMeta: secret.ObjectMeta}},
			waits: watch.Object{Resource: watch.Secrets, Namespace: "shop", Name: "disk-0f1e-data"},
		},
		"no class": {change: func(*v1.PersistentVolume) {}},
		"the volume says none": {
			change: func(pv *v1.PersistentVolume) { old(pv); pv.Annotations[request.AnnDeletionSecretName] = "" },
			live:   []runtime.Object{class, secret},
		},
		"the volume says another": {
			change: func(pv *v1.PersistentVolume) {
				old(pv)
				pv.Annotations[request.AnnDeletionSecretName], pv.Annotations[request.AnnDeletionSecretNamespace] = "x", "vault"
			},
			live: []runtime.Object{class, secret}, want: "secret vault/x", waits: watch.Object{Resource: watch.Secrets, Namespace: "vault", Name: "x"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pv := provisionertest.Volume("d-bp1", test.change)
			b := newBench(t, pv, nil, append(test.live, pv.DeepCopy())...)
			err := b.sync(t.Context(), "d-bp1")
			if test.want != "" {
				if !strings.Contains(fmt.Sprint(err), test.want) || watch.NotReadyObject(err) != test.waits || len(b.driver.Deleted) > 0 {
					t.Errorf("got %v, waiting for %v, deleted %v", err, watch.NotReadyObject(err), b.driver.Deleted)
				}
				return
			}
			if err != nil || len(b.driver.Deleted) != 1 || b.driver.Deleted[0].Secrets["k"] != test.secret {
				t.Errorf("got %v, deleted %v", err, b.driver.Deleted)
			}
		})
	}
}

func TestAVolumeDeletedBeforeBinding(t *testing.T) {
	deleting := func(pv *v1.PersistentVolume) {
		pv.DeletionTimestamp, pv.Status.Phase, pv.Annotations[request.AnnVolumeName] = ptr.To(metav1.Now()), v1.VolumeAvailable, "disk-0f1e"
	}
	with := func(change func(*v1.PersistentVolume)) func(*v1.PersistentVolume) {
		return func(pv *v1.PersistentVolume) { deleting(pv); change(pv) }
	}
	for name, test := range map[string]struct {
		change            func(*v1.PersistentVolume)
		claim             *v1.PersistentVolumeClaim
		deleted, released bool
	}{
		"its claim is without it": {change: deleting, claim: provisionertest.Claim(), deleted: true, released: true},
		"it is pending": {
			change: with(func(pv *v1.PersistentVolume) { pv.Status.Phase = "" }),
			claim:  provisionertest.Claim(), deleted: true, released: true,
		},
		"its claim is about to be bound": {change: deleting, claim: provisionertest.Claim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "d-bp1" })},
		"its claim has another": {
			change: deleting,
			claim:  provisionertest.Claim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "d-bp2" }), deleted: true, released: true,
		},
		"its claim is gone, so it is released": {change: deleting},
		"its claim is another now":             {change: deleting, claim: provisionertest.Claim(func(c *v1.PersistentVolumeClaim) { c.UID = "x" })},
		"it was not made for this claim": {
			change: with(func(pv *v1.PersistentVolume) { pv.Annotations[request.AnnVolumeName] = "disk-old" }),
			claim:  provisionertest.Claim(), released: true,
		},
		"it is for any claim": {change: with(func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef = nil }), released: true},
		"it is retained": {change: with(func(pv *v1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
		}), claim: provisionertest.Claim(), released: true},
		"it is bound":       {change: with(func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeBound }), claim: provisionertest.Claim()},
		"it is not deleted": {change: with(func(pv *v1.PersistentVolume) { pv.DeletionTimestamp = nil }), claim: provisionertest.Claim()},
		"another driver's":  {change: with(func(pv *v1.PersistentVolume) { pv.Annotations[request.AnnProvisionedBy] = "other" }), claim: provisionertest.Claim()},
	} {
		t.Run(name, func(t *testing.T) {
			pv := provisionertest.Volume("d-bp1", test.change)
			live := []runtime.Object{pv.DeepCopy()}
			if test.claim != nil {
				live = append(live, test.claim)
			}
			b := newBench(t, pv, nil, live...)
			b.VolumeChanged(pv)
			for b.queue.Len() > 0 {
				b.next(t.Context())
			}
			if got := len(b.driver.Deleted) > 0; got != test.deleted {
				t.Errorf("its disk was deleted: %v", got)
			}
			patched := false
			for _, step := range b.steps() {
				patched = patched || strings.HasPrefix(step, "patch d-bp1")
			}
			if patched != test.released {
				t.Errorf("it was let go: %v", patched)
			}
		})
	}
}

// Whatever a PersistentVolume's status says, the disk of a claim that is bound to it is kept.
func TestTheDiskOfABoundClaimIsKept(t *testing.T) {
	claim := func(change ...func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
		bound := func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "d-bp1" }
		return provisionertest.Claim(append([]func(*v1.PersistentVolumeClaim){bound}, change...)...)
	}
	for name, test := range map[string]struct {
		claim   *v1.PersistentVolumeClaim
		noUID   bool // as a backup restores a PersistentVolume
		deleted bool
	}{
		"it is bound":           {claim: claim()},
		"it is bound by name":   {claim: claim(), noUID: true},
		"it is gone":            {deleted: true},
		"another has its name":  {claim: claim(func(c *v1.PersistentVolumeClaim) { c.UID = "other" }), deleted: true},
		"it has another volume": {claim: claim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "d-bp2" }), deleted: true},
	} {
		t.Run(name, func(t *testing.T) {
			pv := provisionertest.Volume("d-bp1")
			if test.noUID {
				pv.Spec.ClaimRef.UID = ""
			}
			live := []runtime.Object{pv.DeepCopy()}
			if test.claim != nil {
				live = append(live, test.claim)
			}
			b := newBench(t, pv, nil, live...)
			b.VolumeChanged(pv)
			b.next(t.Context())
			if got := b.driver.Deletes() == 1; got != test.deleted {
				t.Errorf("its disk was deleted: %v", got)
			}
			events := strings.Join(provisionertest.Events(b.events), "\n")
			if told := strings.Contains(events, "Warning "+reasonKept) && strings.Contains(events, "claim shop/data is bound to it"); told == test.deleted {
				t.Errorf("events %q", events)
			}
			if again := b.queue.NumRequeues("d-bp1") == 1; again == test.deleted {
				t.Error("it is looked at again only if it was kept")
			}
		})
	}
}

// A PersistentVolume that was made by hand names a class that need not exist.
func TestTheSecretOfAStaticVolume(t *testing.T) {
	static := func(pv *v1.PersistentVolume) { pv.Annotations, pv.Spec.StorageClassName = nil, "by-hand" }
	keys := func(pv *v1.PersistentVolume) {
		static(pv)
		pv.Spec.CSI.ControllerPublishSecretRef = &v1.SecretReference{Namespace: "vault", Name: "x"}
	}
	for name, test := range map[string]struct {
		change  func(*v1.PersistentVolume)
		deleted bool
	}{
		"without keys of its own": {static, true},
		"with keys of its own":    {keys, false},
	} {
		t.Run(name, func(t *testing.T) {
			pv := provisionertest.Volume("d-bp1", test.change)
			b := newBench(t, pv, nil, pv.DeepCopy())
			if err := b.sync(t.Context(), "d-bp1"); (err == nil) != test.deleted || (b.driver.Deletes() == 1) != test.deleted {
				t.Errorf("%v, after %d calls of DeleteVolume", err, b.driver.Deletes())
			}
		})
	}
}

// TestTheDriverIsToldWhereAVolumeIs by its PersistentVolume, so that it doesn't take a disk of another region for deleted.
func TestTheDriverIsToldWhereAVolumeIs(t *testing.T) {
	for name, test := range map[string]struct {
		key  string
		want affinity.Affinity
	}{
		"zonal":    {topology.WellKnownZoneKey, affinity.Affinity{Zones: []string{"a", "b"}}},
		"old":      {topology.ZoneKey, affinity.Affinity{Zones: []string{"a", "b"}}},
		"regional": {topology.RegionKey, affinity.Affinity{Regions: []string{"a", "b"}}},
		"anywhere": {"", affinity.Affinity{}},
	} {
		t.Run(name, func(t *testing.T) {
			pv := provisionertest.Volume("d-bp1", func(pv *v1.PersistentVolume) {
				pv.Spec.NodeAffinity = nil
				if test.key != "" {
					in := v1.NodeSelectorRequirement{Key: test.key, Operator: v1.NodeSelectorOpIn, Values: []string{"a", "b"}}
					pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{
						{MatchExpressions: []v1.NodeSelectorRequirement{in}},
					}}}
				}
			})
			b := newBench(t, pv, nil, pv.DeepCopy())
			driver := &askedDriver{}
			b.Deleter = NewDeleter(b.api, driver, time.Second)
			must(t, b.sync(t.Context(), "d-bp1"))
			if diff := cmp.Diff(test.want, driver.told); diff != "" || !driver.asked {
				t.Errorf("asked %v, told (-want +got):\n%s", driver.asked, diff)
			}
		})
	}
}

// askedDriver keeps what the last DeleteVolume came with.
type askedDriver struct {
	asked bool
	told  affinity.Affinity
}

func (d *askedDriver) DeleteVolume(ctx context.Context, _ *csi.DeleteVolumeRequest, _ ...grpc.CallOption) (*csi.DeleteVolumeResponse, error) {
	sent, _ := metadata.FromOutgoingContext(ctx)
	d.asked, d.told = true, affinity.Of(metadata.NewIncomingContext(ctx, sent))
	return &csi.DeleteVolumeResponse{}, nil
}
