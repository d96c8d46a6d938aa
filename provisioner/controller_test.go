package provisioner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/cache"

	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

func TestAVolumeIsRememberedUntilItsClaimIsBound(t *testing.T) {
	for what, test := range map[string]struct {
		claim *v1.PersistentVolumeClaim // as the cache shows it; nil for none
		want  attempt.Phase
	}{
		"a claim that is still shown without": {testClaim(), attempt.Saved},
		"a claim that is not shown at all":    {nil, attempt.Saved},
		"a claim that is shown bound":         {testClaim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "d-1" }), attempt.New},
		"another claim of the same name":      {testClaim(func(c *v1.PersistentVolumeClaim) { c.UID, c.Spec.VolumeName = "other", "d-0" }), attempt.Saved},
	} {
		b := newBench(t, nil)
		if test.claim != nil {
			if err := b.claims.Add(test.claim); err != nil {
				t.Fatal(err)
			}
		}
		b.handlers().postVolume(testVolume("d-1", func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeAvailable }))
		b.exec.work(t.Context(), "0f1e")
		if got := b.attempts.Phase("0f1e"); got != test.want {
			t.Errorf("%s: the Record is %v, want %v", what, got, test.want)
		}
	}
}

func TestDuplicatesAreReportedForTheUnboundVolume(t *testing.T) {
	b := newBench(t, nil)
	h := b.handlers()
	h.deletion = b.exec.newDeletion(cache.NewIndexer(cache.MetaNamespaceKeyFunc, watch.AttachmentIndexers()))
	first, second := testVolume("d-1"), testVolume("d-2")
	for _, err := range []error{
		b.claims.Add(testClaim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "d-1" })), b.volumes.Add(first), b.volumes.Add(second),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		pv   *v1.PersistentVolume
		want int
	}{{first, 0}, {second, 1}} {
		if h.volumeChanged(step.pv); len(b.drained()) != step.want {
			t.Errorf("not %d events after that of %s", step.want, step.pv.Name)
		}
	}
}

// listedClaims is a cache of claims that changes just after it was listed.
type listedClaims struct {
	cache.Indexer
	listed func()
}

func (l listedClaims) List() []any {
	defer l.listed()
	return l.Indexer.List()
}

func TestAClaimThatGoesAsALeaderBeginsHasNoRecord(t *testing.T) {
	b, c := newLeader(t)
	must(t, b.resolver.classes.Add(testClass(nil)))
	must(t, b.api.Tracker().Add(testClaim()))
	must(t, c.caches.Fill(t.Context()))
	deleted := sync.OnceFunc(func() {
		must(t, b.api.Tracker().Delete(v1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), "shop", "data"))
		must(t, b.api.Tracker().Add(testClaim(func(c *v1.PersistentVolumeClaim) { c.Name, c.UID = "later", "later" })))
		eventually(t, "a later claim was seen", func() bool {
			for b.exec.queue.Len() > 0 {
				b.exec.workOnNext(t.Context())
			}
			return b.attempts.Phase("later") == attempt.Prefetched
		})
	})
	b.claims = listedClaims{c.caches.Claims.GetIndexer(), deleted}
	must(t, b.handlers().lead(c.caches))
	deleted()
	for b.exec.queue.Len() > 0 {
		b.exec.workOnNext(t.Context())
	}
	if phase := b.attempts.Phase("0f1e"); phase != attempt.New {
		t.Errorf("the Record is %v", phase)
	}
}

func TestARecoveredClaimThatGoesBeforeTheLeadIsGone(t *testing.T) {
	b, c := newLeader(t)
	must(t, b.claims.Add(testClaim()))
	c.recovered = []*request.Request{plannedRequest(t, b)}
	c.recover(c.recovered[0])
	must(t, b.claims.Delete(testClaim()))
	c.postGone()
	b.driver.creates = []answer{refused(codes.InvalidArgument)}
	for b.exec.queue.Len() > 0 {
		b.exec.workOnNext(t.Context())
	}
	if phase := b.attempts.Phase("0f1e"); phase != attempt.New {
		t.Errorf("after the driver's refusal the Record is %v", phase)
	}
}

// BenchmarkBoundVolume measures an event of a volume that is in use, among others.
func BenchmarkBoundVolume(b *testing.B) {
	for _, others := range []int{1000, 100000} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			bench := newBench(b, nil)
			h := bench.handlers()
			h.deletion = bench.exec.newDeletion(cache.NewIndexer(cache.MetaNamespaceKeyFunc, watch.AttachmentIndexers()))
			var volumes []*v1.PersistentVolume
			for i := range others {
				id, name, uid := fmt.Sprint("d-", i), fmt.Sprint("data-", i), uuid.NewUUID()
				pv := testVolume(id, func(pv *v1.PersistentVolume) {
					pv.Status.Phase, pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID = v1.VolumeBound, name, uid
				})
				claim := testClaim(func(c *v1.PersistentVolumeClaim) { c.Name, c.UID, c.Spec.VolumeName = name, uid, id })
				if err := errors.Join(bench.claims.Add(claim), bench.volumes.Add(pv)); err != nil {
					b.Fatal(err)
				}
				volumes = append(volumes, pv)
			}
			for i := 0; b.Loop(); i++ {
				h.volumeChanged(volumes[i*7919%others])
			}
		})
	}
}

// What an informer delivers again wakes no claim, however many nodes there are.
func TestAResyncWakesNoClaim(t *testing.T) {
	b := newBench(t, nil)
	b.config.RetryStart, b.config.RetryMax = time.Hour, time.Hour
	b.restart()
	b.zones.err = &topology.Error{Reason: topology.NoTopology}
	class, claim := testClass(nil), testClaim()
	claim.Spec.StorageClassName = &class.Name
	if err := b.resolver.classes.Add(class); err != nil {
		t.Fatal(err)
	}
	b.exec.table.Begin(claim.UID, attempt.Started{Claim: claim})
	b.exec.workOnNext(t.Context())
	if phase := b.attempts.Phase(claim.UID); phase != attempt.Waiting {
		t.Fatalf("the Record is %v", phase)
	}
	node := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: storagev1.CSINodeSpec{
		Drivers: []storagev1.CSINodeDriver{{Name: driverName, TopologyKeys: []string{topology.ZoneKey}}}}}
	other := class.DeepCopy()
	other.ResourceVersion = "other"
	h := b.handlers()
	h.index = topology.NewIndex(driverName)
	for _, step := range []struct {
		what string
		do   func()
		want int
	}{
		{"a new CSINode", func() { h.csiNodeChanged(node) }, 1},
		{"the same CSINode", func() { h.csiNodeChanged(node) }, 0},
		{"no CSINode any more", func() { h.csiNodeGone(node) }, 1},
		{"another class", func() { h.classChanged(class, other) }, 1},
		{"the same class", func() { h.classChanged(class, class.DeepCopy()) }, 0},
	} {
		if step.do(); b.exec.queue.Len() != step.want {
			t.Errorf("%s: %d claims are woken, want %d", step.what, b.exec.queue.Len(), step.want)
		}
		for range b.exec.queue.Len() {
			b.exec.workOnNext(t.Context())
		}
	}
}

func TestDiskTypeLabelsWakeNoClaim(t *testing.T) {
	const prefix = "node.csi.alibabacloud.com/disktype."
	zoned := func(more ...string) map[string]string {
		labels := map[string]string{"topology.kubernetes.io/zone": "zone-a"}
		for _, key := range more {
			labels[key] = "available"
		}
		return labels
	}
	for _, test := range []struct {
		what   string
		prefix string
		a, b   map[string]string
		want   bool
	}{
		{"a type that the node takes", prefix, zoned(), zoned(prefix + "cloud_essd"), true},
		{"one more, one less", prefix, zoned(prefix + "cloud_ssd"), zoned(prefix + "cloud_essd"), true},
		{"no labels at all before", prefix, nil, map[string]string{prefix + "cloud_essd": "available"}, true},
		{"a zone beside a type", prefix, map[string]string{}, zoned(prefix + "cloud_essd"), false},
		{"another label", prefix, zoned(), zoned("team"), false},
		{"a label without its prefix", prefix, zoned(), zoned("cloud_essd"), false},
		{"no prefix is passed on", "", zoned(), zoned(prefix + "cloud_essd"), false},
	} {
		if got := equalIgnoringPrefix(test.prefix, test.a, test.b); got != test.want {
			t.Errorf("%s: the same but for the types: %t", test.what, got)
		}
	}
}

// workOnNext works on the queue's next claim.
func (e *executor) workOnNext(ctx context.Context) {
	claim, _ := e.queue.Get()
	defer e.queue.Done(claim)
	e.work(ctx, claim)
}
