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

	foundAgain bool // in the book, after the process that made the order had ended

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

// journal knows the orders under way: sent, and not yet known to have ended.
// It also remembers which claims have had a PersistentVolume, for a cache may
// still show such a claim without one.
type journal struct {
	mu     sync.Mutex
	orders map[types.UID]*order
	had    *lru.Cache
	twins  *lru.Cache // claims whose several PersistentVolumes were told of
	book   book

	closed func(claim types.UID) // hears of every order that has come to its end
}

// book is where a journal outlives its process.
type book interface {
	// write returns once the order can be read again after a crash.
	write(ctx context.Context, o *order) error
	// foresee writes an order that will probably be written soon, so that nobody
	// has to wait then. Nobody is asked for it before it was written.
	foresee(o *order)
	// dismiss takes out an order that was foreseen and is not to be.
	dismiss(claim types.UID)
	// strike takes an order out, some time later.
	strike(claim types.UID)
	// retire takes an order out together with whatever is written next.
	retire(claim types.UID)
	// hurry has an order that was retired taken out some time later.
	hurry(claim types.UID)
	// flush returns once an order that was taken out can't be read any more.
	flush(ctx context.Context, claim types.UID) error
	// bytes is the size of what is in it.
	bytes() int
}

// noBook forgets everything, for tests that have no crash.
type noBook struct{}

func (noBook) write(context.Context, *order) error    { return nil }
func (noBook) foresee(*order)                         {}
func (noBook) dismiss(types.UID)                      {}
func (noBook) strike(types.UID)                       {}
func (noBook) retire(types.UID)                       {}
func (noBook) hurry(types.UID)                        {}
func (noBook) flush(context.Context, types.UID) error { return nil }
func (noBook) bytes() int                             { return 0 }

func newJournal(b book) *journal {
	return &journal{orders: map[types.UID]*order{}, had: lru.New(rememberedVolumes), twins: lru.New(rememberedTwins), book: b, closed: func(types.UID) {}}
}

// open files an order before the driver hears of it: what is not in the book
// is not asked for, so no crash can make anybody forget a disk.
func (j *journal) open(ctx context.Context, o *order) error {
	if err := j.book.write(ctx, o); err != nil {
		j.book.strike(o.claim.UID) // it may have been written all the same, and nobody will be asked for it
		return err
	}
	j.file(o)
	return nil
}

// file takes an order up that is in the book already.
func (j *journal) file(o *order) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.orders[o.claim.UID] = o
}

// close ends an order of which no PersistentVolume tells.
func (j *journal) close(claim types.UID) { j.end(claim, j.book.strike) }

// closeSaved ends an order by its PersistentVolume. As long as that stands, the
// order in the book means nothing: who reads it finds the PersistentVolume. So
// it may stay in the book for a while if the PersistentVolume can't go without us.
func (j *journal) closeSaved(pv *v1.PersistentVolume) {
	out := j.book.strike
	if hasFinalizer(pv) {
		out = j.book.retire
	}
	j.end(pv.Spec.ClaimRef.UID, out)
}

func (j *journal) end(claim types.UID, out func(types.UID)) {
	j.mu.Lock()
	_, open := j.orders[claim]
	delete(j.orders, claim)
	j.mu.Unlock()
	if open {
		out(claim)
		j.closed(claim)
	}
}

// volumeGoes hears that a claim's PersistentVolume is about to go, or can go
// without us: no order may lean on it any more.
func (j *journal) volumeGoes(pv *v1.PersistentVolume) {
	if pv.Spec.ClaimRef != nil {
		j.book.hurry(pv.Spec.ClaimRef.UID)
	}
}

// errUnderWay says that a claim's order has not come to its end.
var errUnderWay = errors.New("the volume of this claim is still being made")

// isOver returns once no crash can have the claim's volume made again, or
// errUnderWay.
func (j *journal) isOver(ctx context.Context, claim types.UID) error {
	if j.find(claim) != nil {
		return errUnderWay
	}
	j.book.dismiss(claim)
	return j.book.flush(ctx, claim)
}

// find returns the order under way for a claim, or nil.
func (j *journal) find(claim types.UID) *order {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.orders[claim]
}

// class returns a class of that name as an order under way was made from it,
// or nil: the order must come to its end without the class, too.
func (j *journal) class(name string) *storagev1.StorageClass {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, o := range j.orders {
		if o.class.Name == name {
			return o.class
		}
	}
	return nil
}

// all returns the orders under way.
func (j *journal) all() []*order {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Collect(maps.Values(j.orders))
}

// underWay returns the number of orders under way, and how many of them have
// an unknown outcome behind them.
func (j *journal) underWay() (all, unknown int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, o := range j.orders {
		if o.unknown {
			unknown++
		}
	}
	return len(j.orders), unknown
}

// markUnknown files that an earlier call of the order may have made the volume.
func (j *journal) markUnknown(o *order) {
	j.mu.Lock()
	defer j.mu.Unlock()
	o.unknown = true
}

func (j *journal) rememberVolume(claim types.UID, name string) { j.had.Add(claim, name) }

// volumeOf returns the name of the PersistentVolume that a claim has had, or nothing.
func (j *journal) volumeOf(claim types.UID) string {
	name, _ := j.had.Get(claim)
	volume, _ := name.(string)
	return volume
}

// firstTwins says whether the claim's several PersistentVolumes are to be told of.
func (j *journal) firstTwins(claim types.UID) bool {
	if _, told := j.twins.Get(claim); told {
		return false
	}
	j.twins.Add(claim, nil)
	return true
}
