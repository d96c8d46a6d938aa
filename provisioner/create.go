package provisioner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/metadata"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/internal/unused"
	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/csiconn"
	"github.com/topodisk/topodisk/provisioner/deletion"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/stock"
	"github.com/topodisk/topodisk/topology"
)

// firstCallKey is gRPC metadata that says that no volume of the name exists or comes to
// exist from an earlier CreateVolume: the driver then need not look for one.
const firstCallKey = "topodisk-first-call"

// createVolume calls CreateVolume.
func (p *Provisioner) createVolume(ctx context.Context, a attempt.CallDriver) attempt.Answer {
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	if a.First {
		ctx = metadata.AppendToOutgoingContext(ctx, firstCallKey, "true")
	}
	answer := attempt.Answer{Sent: p.now()}
	answer.Response, answer.Err = p.driver.CreateVolume(ctx, a.Request.WithSecrets(a.Secrets))
	answer.NotAsked = csiconn.IsNotAsked(answer.Err)
	if answer.Err == nil {
		answer.Siblings = p.judge(a.Request, answer.Response.GetVolume())
	}
	return answer
}

// errNodeChanged says that a volume was made for a node that is not the selected one any more.
var errNodeChanged = errors.New("another node was selected since")

// judge returns what the claims of the Pod and its node mean for a volume that was made: it is of no use to a Pod that was deleted meanwhile
// and came back for another zone, nor to one that can't run on the claim's node.
func (p *Provisioner) judge(r *request.Request, made *csi.Volume) attempt.Siblings {
	if err := cmp.Or(p.checkNode(r, made), p.resolver.placement.checkNow(r.Claim)); err != nil {
		return attempt.Siblings{State: attempt.Refused, Err: err}
	}
	return p.siblings.judge(r)
}

// checkNode returns an error if another node has been selected for the claim than the request is for, and it is in another zone than the
// volume. What the caches don't show is no reason.
func (p *Provisioner) checkNode(r *request.Request, made *csi.Volume) error {
	now := claimWithUID(p.claims, r.Claim.Namespace, r.Claim.Name, r.Claim.UID)
	if now == nil || r.Node == "" || !p.config.SupportsTopology {
		return nil
	}
	node := now.Annotations[request.AnnSelectedNode]
	if node == "" || node == r.Node {
		return nil
	}
	requirement, err := p.resolver.topology.Require(topology.Question{SelectedNode: node, Strict: true})
	if err != nil || len(requirement.GetRequisite()) != 1 {
		return nil //nolint:nilerr // an attempt for the node says what is wrong with it
	}
	zone, terms := topology.ZoneOfTerm(requirement.Requisite[0]), made.GetAccessibleTopology()
	isUsable := func(term *csi.Topology) bool { in := topology.ZoneOfTerm(term); return in == "" || in == zone }
	if zone == "" || len(terms) == 0 || slices.ContainsFunc(terms, isUsable) {
		return nil
	}
	return fmt.Errorf("%w, %s in zone %s", errNodeChanged, node, zone)
}

// stockWant returns what package stock knows a request by.
func stockWant(r *request.Request) stock.Want {
	return stock.Want{
		Class: r.Class, Requisite: r.Requisite(), Specifics: r.Specifics(), Bytes: r.Create.CapacityRange.GetRequiredBytes(), Claim: r.Claim.UID, Node: r.Node,
	}
}

// deleteUnowned deletes a volume, unless a PersistentVolume stands for it or it may have been used, as far as the driver can tell.
func (p *Provisioner) deleteUnowned(ctx context.Context, a attempt.DeleteUnowned, progressed func()) attempt.VolumeDeleted {
	if a.Proven && !p.config.DriverKnowsUse {
		return attempt.VolumeDeleted{ID: a.ID, Kept: fmt.Errorf("driver %s does not tell whether it was ever used", p.config.DriverName)}
	}
	err := p.deleter.DeleteUnowned(ctx, a.ID, a.Secrets, progressed)
	var owned *deletion.OwnedError
	switch {
	case unused.IsRefused(err):
		return attempt.VolumeDeleted{ID: a.ID, Kept: err}
	case errors.As(err, &owned):
		klog.InfoS("A volume is kept, because a PersistentVolume stands for it", "volume", a.ID, "persistentVolume", owned.PersistentVolume)
		return attempt.VolumeDeleted{ID: a.ID, Owner: owned.PersistentVolume}
	case err != nil:
		klog.ErrorS(err, "Deleting a volume without a PersistentVolume failed", "volume", a.ID)
		return attempt.VolumeDeleted{ID: a.ID, Err: err}
	}
	klog.InfoS("A volume without a PersistentVolume was deleted", "volume", a.ID)
	if a.Discards {
		p.metrics.discards.Inc()
	} else {
		p.metrics.leaks.WithLabelValues(resultDeleted).Inc()
	}
	return attempt.VolumeDeleted{ID: a.ID}
}
