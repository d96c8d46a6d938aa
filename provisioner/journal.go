package provisioner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/topodisk/topodisk/provisioner/stock"
)

// order is one volume asked of the driver. It is fixed at the first attempt:
// every retry sends the same bytes, whatever has become of the claim, its
// class or its node in the meantime.
type order struct {
	claim   *v1.PersistentVolumeClaim
	class   *storagev1.StorageClass
	node    string                   // the selected node; empty for Immediate
	request *csi.CreateVolumeRequest // without secrets
	secrets map[string]string        // as last read
	refs    secretRefs               // for the other calls, into the PersistentVolume
	fsType  string

	foundAgain bool // in the journal, after the process that made the order had ended

	unknown bool        // an earlier call may have made the volume
	made    *csi.Volume // the driver's answer, once there is one
}

func (o *order) mayReschedule() bool {
	return o.node != "" && o.request.AccessibilityRequirements != nil
}

// isSavedAs says whether the PersistentVolume stands for the order's volume.
func (o *order) isSavedAs(pv *v1.PersistentVolume) bool {
	return pv.Annotations[annVolumeName] == o.request.Name
}

func (o *order) requisite() []*csi.Topology {
	return o.request.AccessibilityRequirements.GetRequisite()
}

// want is what the order wants of the stock.
func (o *order) want() stock.Want {
	return stock.Want{Class: o.class, Requisite: o.requisite(), Bytes: o.request.CapacityRange.GetRequiredBytes(), Claim: o.claim.UID, Node: o.node}
}

func (o *order) requestWithSecrets() *csi.CreateVolumeRequest {
	if len(o.secrets) == 0 {
		return o.request
	}
	request := proto.Clone(o.request).(*csi.CreateVolumeRequest)
	request.Secrets = o.secrets
	return request
}

// check returns an error if the driver's answer is not the volume asked for.
func (o *order) check(response *csi.CreateVolumeResponse) error {
	switch volume := response.GetVolume(); {
	case volume.GetVolumeId() == "":
		return fmt.Errorf("CreateVolume %s: the driver answered without a volume ID", o.request.Name)
	case volume.CapacityBytes != 0 && volume.CapacityBytes < o.request.CapacityRange.RequiredBytes:
		return fmt.Errorf("CreateVolume %s: volume %s has %d bytes, %d are required",
			o.request.Name, volume.VolumeId, volume.CapacityBytes, o.request.CapacityRange.RequiredBytes)
	case o.request.VolumeContentSource != nil && volume.ContentSource == nil:
		return fmt.Errorf("CreateVolume %s: volume %s is empty, it was to be filled from %v", o.request.Name, volume.VolumeId, o.request.VolumeContentSource)
	}
	return nil
}

// rememberedVolumes is how many claims with a PersistentVolume are remembered
// beyond the life of that PersistentVolume in the cache.
const rememberedVolumes = 20000

// rememberedTwins is how many claims with several PersistentVolumes are told of
// once and not again.
const rememberedTwins = 1024

// orders knows the orders under way: sent, and not yet known to have ended.
// It also remembers which claims have had a PersistentVolume, for a cache may
// still show such a claim without one.
type orders struct {
	mu    sync.Mutex
	open  map[types.UID]*order
	had   *lru.Cache
	twins *lru.Cache // claims whose several PersistentVolumes were told of
	store store

	closed func(claim types.UID) // hears of every order that has come to its end
}

// store is where orders outlive the process. A key is a claim's UID.
type store interface {
	// Put returns once the record can be read again after a crash.
	Put(ctx context.Context, key string, record []byte) error
	// Prefetch writes a record that will probably be put soon. Nobody is asked for
	// it before it was put.
	Prefetch(key string, record []byte)
	// Cancel deletes a record that was prefetched and not put.
	Cancel(key string)
	// Delete deletes a record within seconds.
	Delete(key string)
	// DeleteLazily deletes a record together with whatever is written next.
	DeleteLazily(key string)
	// Expedite has a record that was deleted lazily deleted within seconds.
	Expedite(key string)
	// Flush returns nil once a record that was deleted can't be read any more.
	Flush(ctx context.Context, key string) error
	// Size is the size of all records.
	Size() int
}

// noStore forgets everything, for a process without a namespace.
type noStore struct{}

func (noStore) Put(context.Context, string, []byte) error { return nil }
func (noStore) Prefetch(string, []byte)                   {}
func (noStore) Cancel(string)                             {}
func (noStore) Delete(string)                             {}
func (noStore) DeleteLazily(string)                       {}
func (noStore) Expedite(string)                           {}
func (noStore) Flush(context.Context, string) error       { return nil }
func (noStore) Size() int                                 { return 0 }

func newOrders(s store) *orders {
	return &orders{open: map[types.UID]*order{}, had: lru.New(rememberedVolumes), twins: lru.New(rememberedTwins), store: s, closed: func(types.UID) {}}
}

// begin files an order before the driver hears of it: what is not in the store
// is not asked for, so no crash can make anybody forget a disk.
func (j *orders) begin(ctx context.Context, o *order) error {
	record, err := encode(o)
	if err != nil {
		return err
	}
	if err := j.store.Put(ctx, string(o.claim.UID), record); err != nil {
		j.store.Delete(string(o.claim.UID)) // it may have been written all the same, and nobody will be asked for it
		return err
	}
	j.file(o)
	return nil
}

// prefetch has the store write an order that will probably be begun soon.
func (j *orders) prefetch(o *order) {
	if record, err := encode(o); err == nil {
		j.store.Prefetch(string(o.claim.UID), record)
	}
}

// cancel deletes an order that was prefetched and is not to be begun.
func (j *orders) cancel(claim types.UID) { j.store.Cancel(string(claim)) }

// file takes an order up that is in the store already.
func (j *orders) file(o *order) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.open[o.claim.UID] = o
}

// close ends an order of which no PersistentVolume tells.
func (j *orders) close(claim types.UID) { j.end(claim, j.store.Delete) }

// closeSaved ends an order by its PersistentVolume. As long as that stands, the
// order in the store means nothing: who reads it finds the PersistentVolume. So
// it may stay in the store for a while if the PersistentVolume can't go without us.
func (j *orders) closeSaved(pv *v1.PersistentVolume) {
	remove := j.store.Delete
	if hasFinalizer(pv) {
		remove = j.store.DeleteLazily
	}
	j.end(pv.Spec.ClaimRef.UID, remove)
}

func (j *orders) end(claim types.UID, remove func(string)) {
	j.mu.Lock()
	_, ok := j.open[claim]
	delete(j.open, claim)
	j.mu.Unlock()
	if ok {
		remove(string(claim))
		j.closed(claim)
	}
}

// volumeGoes hears that a claim's PersistentVolume is about to go, or can go
// without us: no order may lean on it any more.
func (j *orders) volumeGoes(pv *v1.PersistentVolume) {
	if pv.Spec.ClaimRef != nil {
		j.store.Expedite(string(pv.Spec.ClaimRef.UID))
	}
}

// errUnderWay says that a claim's order has not come to its end.
var errUnderWay = errors.New("the volume of this claim is still being made")

// isOver returns once no crash can have the claim's volume made again, or
// errUnderWay.
func (j *orders) isOver(ctx context.Context, claim types.UID) error {
	if j.find(claim) != nil {
		return errUnderWay
	}
	j.cancel(claim)
	return j.store.Flush(ctx, string(claim))
}

// find returns the order under way for a claim, or nil.
func (j *orders) find(claim types.UID) *order {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.open[claim]
}

// class returns a class of that name as an order under way was made from it,
// or nil: the order must come to its end without the class, too.
func (j *orders) class(name string) *storagev1.StorageClass {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, o := range j.open {
		if o.class.Name == name {
			return o.class
		}
	}
	return nil
}

// all returns the orders under way.
func (j *orders) all() []*order {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Collect(maps.Values(j.open))
}

// underWay returns the number of orders under way, and how many of them have
// an unknown outcome behind them.
func (j *orders) underWay() (all, unknown int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, o := range j.open {
		if o.unknown {
			unknown++
		}
	}
	return len(j.open), unknown
}

// markUnknown files that an earlier call of the order may have made the volume.
func (j *orders) markUnknown(o *order) {
	j.mu.Lock()
	defer j.mu.Unlock()
	o.unknown = true
}

func (j *orders) rememberVolume(claim types.UID, name string) { j.had.Add(claim, name) }

// volumeOf returns the name of the PersistentVolume that a claim has had, or nothing.
func (j *orders) volumeOf(claim types.UID) string {
	name, _ := j.had.Get(claim)
	volume, _ := name.(string)
	return volume
}

// firstTwins says whether the claim's several PersistentVolumes are to be told of.
func (j *orders) firstTwins(claim types.UID) bool {
	if _, told := j.twins.Get(claim); told {
		return false
	}
	j.twins.Add(claim, nil)
	return true
}
