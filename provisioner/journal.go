package provisioner

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/stock"
)

// order is a request under way.
type order struct {
	*request.Request

	secrets    map[string]string // the values that CreateVolume needs, as last read
	foundAgain bool              // in the journal, after the process that made the order had ended
	unknown    bool              // an earlier call may have made the volume
	made       *csi.Volume       // the driver's answer, once there is one
	endReason  string            // why an operator wants it ended, empty if nobody does; orders.mu guards it
}

// stockWant is what a request wants of the stock.
func stockWant(r *request.Request) stock.Want {
	return stock.Want{Class: r.Class, Requisite: r.Requisite(), Bytes: r.Create.CapacityRange.GetRequiredBytes(), Claim: r.Claim.UID, Node: r.Node}
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
	// Cancel deletes a record that was prefetched and not put, and ends its wait
	// for room.
	Cancel(key string)
	// Delete deletes a record within seconds.
	Delete(key string)
	// DeleteLazily deletes a record together with whatever is written next.
	DeleteLazily(key string)
	// Expedite has a record that was deleted lazily deleted within seconds.
	Expedite(key string)
	// AwaitRoom calls wake once there may be room for a record that Put refused
	// with journal.ErrFull.
	AwaitRoom(key string, wake func())
	// RejectEnd takes an operator's request to end a record back.
	RejectEnd(key string)
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
func (noStore) AwaitRoom(string, func())                  {}
func (noStore) RejectEnd(string)                          {}
func (noStore) Flush(context.Context, string) error       { return nil }
func (noStore) Size() int                                 { return 0 }

func newOrders(s store) *orders {
	return &orders{open: map[types.UID]*order{}, had: lru.New(rememberedVolumes), twins: lru.New(rememberedTwins), store: s, closed: func(types.UID) {}}
}

// begin files an order before the driver hears of it: what is not in the store
// is not asked for, so no crash can make anybody forget a disk.
func (j *orders) begin(ctx context.Context, o *order) error {
	record, err := o.Encode()
	if err != nil {
		return err
	}
	if err := j.store.Put(ctx, string(o.Claim.UID), record); err != nil {
		j.store.Delete(string(o.Claim.UID)) // it may have been written all the same, and nobody will be asked for it
		return err
	}
	j.file(o)
	return nil
}

// prefetch has the store write a request that the driver will probably be asked soon.
func (j *orders) prefetch(r *request.Request) {
	if record, err := r.Encode(); err == nil {
		j.store.Prefetch(string(r.Claim.UID), record)
	}
}

// cancel deletes an order that was prefetched and is not to be begun.
func (j *orders) cancel(claim types.UID) { j.store.Cancel(string(claim)) }

// file takes an order up that is in the store already.
func (j *orders) file(o *order) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.open[o.Claim.UID] = o
}

// close ends an order of which no PersistentVolume tells.
func (j *orders) close(claim types.UID) { j.end(claim, j.store.Delete) }

// closeSaved ends an order by its PersistentVolume. As long as that stands, the
// order in the store means nothing: who reads it finds the PersistentVolume. So
// it may stay in the store for a while if the PersistentVolume can't go without us.
func (j *orders) closeSaved(pv *v1.PersistentVolume) {
	remove := j.store.Delete
	if request.HasFinalizer(pv) {
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
		if o.Class.Name == name {
			return o.Class
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
