package provisioner

import (
	"context"
	"errors"

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
		Client: p.client, Volumes: p.volumes, Attachments: attachments, Objects: p.objects, Deleter: p.deleter, Secrets: p.secrets,
		Attempts: e, Events: p.events, Now: p.now, Observe: p.metrics.deleted,
	})
}

// errUnderWay says that the volume of a claim is still being made.
var errUnderWay = errors.New("the volume of this claim is still being made")

// Settle returns nil once no crash can have a volume of the claim made again: its disk
// goes only when nobody will look for it any more.
func (e *executor) Settle(ctx context.Context, claim types.UID) error {
	if !e.table.IsSettled(claim) {
		e.table.Post(claim, attempt.Woken{}) // its end is known, since its volume is there
		return errUnderWay
	}
	e.p.store.Cancel(string(claim))
	return e.p.store.Flush(ctx, string(claim))
}
