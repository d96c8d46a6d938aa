// Package provisioner turns PersistentVolumeClaims into CreateVolume calls and
// PersistentVolumes, and Released PersistentVolumes into DeleteVolume calls.
// It runs beside its CSI driver, in the same Pod, on one unix socket.
//
// A file holds one decision or one verb: resolve.go (what has to be read for a
// request), outcome.go (what an answer means for the claim), volume.go (saving the
// PersistentVolume), journal.go (which creates may be under way). Package request says
// what the driver is asked and what a PersistentVolume says, source what volumes are
// filled from, deletion which disks are deleted; library.go alone knows the controller
// library underneath, and package csiconn the driver's socket.
package provisioner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/topodisk/topodisk/provisioner/capacity"
	"github.com/topodisk/topodisk/provisioner/deletion"
	"github.com/topodisk/topodisk/provisioner/journal"
	"github.com/topodisk/topodisk/provisioner/source"
	"github.com/topodisk/topodisk/provisioner/stock"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// Driver is what the provisioner asks of the CSI driver.
type Driver interface {
	capacity.Driver
	deletion.Driver
	// CreateVolume makes a volume or finds the one of the same name. An error
	// that outcome.go calls final says that none exists or comes to exist, from
	// earlier calls neither; AlreadyExists, that the one that does is another.
	CreateVolume(ctx context.Context, in *csi.CreateVolumeRequest, opts ...grpc.CallOption) (*csi.CreateVolumeResponse, error)
	// ListVolumes lists what the driver can see, with the CSI volume name in
	// the context of each. It is called only if Config.DriverListsVolumes.
	ListVolumes(ctx context.Context, in *csi.ListVolumesRequest, opts ...grpc.CallOption) (*csi.ListVolumesResponse, error)
}

// Topology is what the provisioner asks of the cluster's zones.
type Topology interface {
	// Require says where a volume may be, in the order of preference; nil says anywhere.
	Require(topology.Question) (*csi.TopologyRequirement, error)
	// Carried says whether a node with the driver has the term's labels.
	Carried(*csi.Topology) bool
}

// Provisioner provisions one claim at a time per UID and holds what must be
// remembered between the attempts for it.
type Provisioner struct {
	config      Config
	client      kubernetes.Interface
	driver      Driver
	topology    Topology
	journal     *orders
	waiting     *waiting
	objects     *watch.Objects
	sources     *source.Reader
	protection  *source.Protection
	deleter     *deletion.Deleter
	secrets     *secrets
	metadata    metadata.Interface
	refusals    *stock.Refusals
	waitingPods *waitingPods
	claims      cache.Indexer // PersistentVolumeClaims, trimmed
	classes     cache.Store   // StorageClasses
	volumes     cache.Indexer // PersistentVolumes, trimmed
	namespaces  cache.Store   // Namespaces, trimmed; nil without Config.NamespaceLabelTags
	firstCalls  *firstCalls
	events      record.EventRecorder
	metrics     *metrics
	now         func() time.Time

	// look has a claim looked at now.
	look func(*v1.PersistentVolumeClaim)
	// lookAgain has a claim looked at again if it is no longer what it was.
	lookAgain func(*v1.PersistentVolumeClaim)
}

// provision brings one claim a step further: it makes or finds the claim's
// volume and saves its PersistentVolume. The Outcome says what to do with the
// claim if there is an error.
func (p *Provisioner) provision(ctx context.Context, claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, node string) (*v1.PersistentVolume, Outcome, error) {
	pv, outcome, err := p.attempt(ctx, claim, class, node)
	if outcome == Reschedule {
		p.metrics.reschedules.WithLabelValues(rescheduleReason(err)).Inc()
	}
	if err != nil && p.journal.find(claim.UID) == nil {
		p.journal.cancel(claim.UID) // if it was foreseen, it has not come to that
	}
	p.objects.SubscribeError(string(claim.UID), err, func() { p.look(claim) })
	if errors.Is(err, journal.ErrFull) {
		p.journal.store.AwaitRoom(string(claim.UID), func() { p.look(claim) })
	}
	return pv, outcome, err
}

func (p *Provisioner) attempt(ctx context.Context, claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, node string) (*v1.PersistentVolume, Outcome, error) {
	o, outcome, err := p.order(ctx, claim, class, node)
	if err != nil {
		return nil, outcome, err
	}
	if outcome, err := p.create(ctx, o); err != nil {
		return nil, outcome, err
	}
	pv := o.PersistentVolume(p.config.Options, o.made)
	if err := p.save(ctx, o, pv); err != nil {
		return nil, p.outcomeOfSave(ctx, o, err), err
	}
	if o.foundAgain || p.isForgotten(claim) {
		p.metrics.leaks.WithLabelValues(endSaved).Inc()
	}
	p.journal.closeSaved(pv)
	p.firstCalls.forget(claim.UID)
	p.metrics.bound(claim, p.now())
	return pv, Finished, nil
}

// order returns the order under way for the claim, unchanged from the first
// attempt on, or works out a new one.
func (p *Provisioner) order(ctx context.Context, claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, node string) (*order, Outcome, error) {
	if o := p.journal.find(claim.UID); o != nil {
		if err := p.endAsRequested(o); err != nil {
			return nil, Finished, err
		}
		return o, Unchanged, p.refreshSecrets(ctx, o)
	}
	if volume := p.journal.volumeOf(claim.UID); volume != "" {
		if outcome, err := p.stillWanting(ctx, claim, volume); err != nil {
			return nil, outcome, err
		}
	}
	return p.newOrder(ctx, claim, class, node)
}

// create asks the driver for the order's volume, unless it has answered with
// one before, and files the order in the journal for as long as its end is
// unknown.
func (p *Provisioner) create(ctx context.Context, o *order) (Outcome, error) {
	if o.made != nil {
		return Finished, nil
	}
	if p.journal.find(o.Claim.UID) == nil {
		if err := p.refusals.Ask(stockWant(o.Request)); err != nil {
			p.metrics.skipped.Inc()
			if o.MayReschedule() {
				p.tellOfTie(ctx, o)
			}
			return outcomeOfWant(o.MayReschedule()), err
		}
		if err := p.open(ctx, o); err != nil {
			return Unchanged, err
		}
	}
	response, err := p.call(ctx, o)
	if err != nil {
		outcome := p.outcomeOf(o, err)
		if outcome == Reschedule && status.Code(err) == codes.ResourceExhausted {
			p.tellOfTie(ctx, o)
		}
		p.settle(o, outcome, maybeMade(err))
		return outcome, fmt.Errorf("CreateVolume %s: %w", o.Create.Name, err)
	}
	if err := o.Check(response); err != nil {
		outcome := p.cleanUp(ctx, o, response, err)
		p.settle(o, outcome, true)
		return outcome, err
	}
	o.made = response.Volume
	return Finished, nil
}

// isForgotten says whether the cache no longer has the claim, or shows it on its way out.
func (p *Provisioner) isForgotten(claim *v1.PersistentVolumeClaim) bool {
	object, exists, err := p.claims.Get(claim)
	if err != nil {
		return false
	}
	return !exists || object.(*v1.PersistentVolumeClaim).UID != claim.UID || object.(*v1.PersistentVolumeClaim).DeletionTimestamp != nil
}

// open makes sure of what the order needs, before the driver hears of it.
func (p *Provisioner) open(ctx context.Context, o *order) error {
	if err := p.protection.Protect(ctx, o.Claim); err != nil {
		return err
	}
	if err := p.journal.begin(ctx, o); err != nil {
		p.protection.Unprotect(o.Claim.UID)
		return fmt.Errorf("the driver is not asked before the journal has it: %w", err)
	}
	return nil
}

// call makes the call, and remembers where the driver has no volume to give.
func (p *Provisioner) call(ctx context.Context, o *order) (*csi.CreateVolumeResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	asked := p.now()
	response, err := p.driver.CreateVolume(p.firstCalls.begin(ctx, o), o.WithSecrets(o.secrets))
	p.firstCalls.end(o, err)
	switch {
	case err == nil:
		p.refusals.Served(stockWant(o.Request))
	case status.Code(err) == codes.ResourceExhausted:
		p.refusals.Refused(stockWant(o.Request), asked)
	case p.outcomeOf(o, err) == Reschedule:
		p.refusals.RefusedClaim(stockWant(o.Request), asked)
	}
	return response, err
}

// settle records what an attempt without a volume says of the next one.
func (p *Provisioner) settle(o *order, outcome Outcome, maybeMade bool) {
	p.metrics.outcome(o.Class.Name, outcome)
	switch {
	case outcome == Background && maybeMade:
		p.journal.markUnknown(o)
		return
	case outcome == Background, outcome == Unchanged && o.unknown:
		return
	}
	p.journal.close(o.Claim.UID)
	p.lookAgain(o.Claim)
}
