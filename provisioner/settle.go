package provisioner

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/deletion"
)

// newDeletion returns the controller that deletes volumes.
func (e *executor) newDeletion(attachments cache.Indexer) *deletion.Controller {
	p := e.p
	options := deletion.Options{Request: p.config.Options, Workers: p.config.Workers, RetryStart: p.config.RetryStart, RetryMax: p.config.RetryMax}
	return deletion.New(options, deletion.Dependencies{
		Client: p.client, Volumes: p.volumes, Attachments: attachments, Objects: p.objects, Deleter: p.deleter,
		Attempts: e, Events: p.events, Now: p.now, Observe: p.metrics.deleted,
	})
}

// Settle returns nil once no attempt is under way and the journal has no record of the
// claim: after a crash, a record would have a deleted volume made again. While an attempt
// is under way it fails, and retry is called at its end.
func (e *executor) Settle(ctx context.Context, claim types.UID, pv string, retry func()) error {
	if !e.table.Settled(claim, pv, retry) {
		e.table.Post(claim, attempt.Woken{}) // its outcome is known: its volume exists
		return deletion.ErrUnderWay
	}
	e.p.store.Cancel(string(claim))
	return e.p.store.Flush(ctx, string(claim))
}
