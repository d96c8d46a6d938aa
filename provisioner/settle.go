package provisioner

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/topodisk/topodisk/provisioner/deletion"
)

// newDeletion returns the controller that deletes volumes.
func (p *Provisioner) newDeletion(attachments cache.Indexer, observe func(class string, start time.Time, err error)) *deletion.Controller {
	options := deletion.Options{Request: p.config.Options, Workers: p.config.Workers, RetryStart: p.config.RetryStart, RetryMax: p.config.RetryMax}
	return deletion.New(options, deletion.Dependencies{
		Client: p.client, Volumes: p.volumes, Attachments: attachments, Objects: p.objects, Deleter: p.deleter, Secrets: p.secrets,
		Attempts: &settler{p}, Events: p.events, Now: p.now, Observe: observe,
	})
}

// settler is the deletion.Attempts of a Provisioner.
type settler struct{ p *Provisioner }

// Settle returns nil once the journal has no order of the claim, and wakes one that
// is under way: its end is known, since its PersistentVolume is there.
func (s *settler) Settle(ctx context.Context, claim types.UID) error {
	err := s.p.journal.isOver(ctx, claim)
	if errors.Is(err, errUnderWay) {
		if o := s.p.journal.find(claim); o != nil {
			s.p.look(o.Claim)
		}
	}
	return err
}
