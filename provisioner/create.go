package provisioner

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/metadata"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/internal/unused"
	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/csiconn"
	"github.com/topodisk/topodisk/provisioner/deletion"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/stock"
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
		answer.Siblings = p.siblings.judge(a.Request)
	}
	return answer
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
