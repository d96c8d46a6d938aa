package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/metadata"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/internal/errorinfo"
	"github.com/topodisk/topodisk/internal/outofstock"
	"github.com/topodisk/topodisk/internal/unused"
	"github.com/topodisk/topodisk/provisioner/csiconn"
	"github.com/topodisk/topodisk/provisioner/deletion"
	"github.com/topodisk/topodisk/provisioner/journal"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/stock"
)

// firstCallKey is gRPC metadata that says that no volume of the name exists or comes to exist from an earlier CreateVolume: the driver then
// need not look for one.
const firstCallKey = "topodisk-first-call"

// maxClockSkew bounds the difference between the synchronized clocks of two nodes.
const maxClockSkew = 2 * time.Second

// errEnding is the answer to a call that was not begun because this process ends.
var errEnding = &csiconn.NotAsked{Err: errors.New("disk-provisioner ends before it has called the driver")}

// prepare works out what the driver is asked for, and returns nil once the journal has it, so that no crash loses a volume. An open request
// stays what it is, but for its secrets.
func (t *task) prepare() error {
	if t.mayBeDeleted() && !t.isUnneeded() { // the same request finds out whether it is
		t.volume = nil
	}
	if t.volume != nil {
		return nil
	}
	if t.request != nil {
		return t.readSecrets(t.request)
	}
	if err := t.checkVolume(); err != nil {
		return err
	}
	asked, err := t.resolve()
	if err != nil {
		return err
	}
	if err := t.readSecrets(asked); err != nil {
		return err
	}
	passed := t.Now()
	if err := t.checkStock(asked, t.Refusals.Ask(wantOf(asked))); err != nil {
		return err
	}
	if err = t.protect(asked); err == nil {
		err = t.record(asked, passed)
	}
	if err != nil {
		t.Refusals.EndTrial(wantOf(asked))
	}
	return err
}

// checkVolume asks the API server whether the claim is without the PersistentVolume that it has had and that the cache doesn't show: it
// doesn't yet, or it doesn't any more.
func (t *task) checkVolume() error {
	if t.pv == "" {
		return nil
	}
	var lacks bool
	err := t.unlocked(func(ctx context.Context) (err error) {
		lacks, err = t.api.lacksVolume(ctx, t.claim, t.pv)
		return err
	})
	switch {
	case t.isUnneeded():
		return errChanged
	case err != nil:
		return err
	case !lacks: // or the claim is gone or bound, which its watch is about to show
		return errBehind
	}
	t.pv, t.nameMayBeTaken = "", true
	t.claim = t.cached()
	return nil
}

// readSecrets reads the Secret that the driver is called with.
func (t *task) readSecrets(asked *request.Request) error {
	ref := asked.Secrets[request.ProvisionerSecret]
	if ref == nil {
		t.secrets = nil
		return nil
	}
	var secrets map[string]string
	err := t.unlocked(func(ctx context.Context) (err error) {
		secrets, err = t.api.readSecret(ctx, ref)
		return err
	})
	switch {
	case err == nil:
		t.secrets = secrets
	case t.request == nil || t.secrets == nil: // without secrets the driver would use other keys
		return err
	}
	return nil
}

// checkStock returns why the driver is not called: it has just refused an equal request.
func (t *task) checkStock(asked *request.Request, refusal error) error {
	var before *stock.RefusedBefore
	switch {
	case refusal == nil:
		return nil
	case t.isUnneeded():
		return errChanged
	}
	t.metrics.skipped.Inc()
	if errors.As(refusal, &before) && before.OfClaim {
		return &failure{kind: reschedules, err: refusal}
	}
	return t.outOfStock(asked, refusal)
}

// protect keeps the source of the volume from being deleted.
func (t *task) protect(asked *request.Request) error {
	if !hasSource(asked) {
		return nil
	}
	err := t.unlocked(func(ctx context.Context) error { return t.Protection.Protect(ctx, asked.Claim) })
	if t.isUnneeded() {
		err = errChanged
	}
	if err != nil {
		t.Protection.Unprotect(t.uid)
	}
	return err
}

// record opens the request, which has passed the refusals that are remembered at the given time: it returns nil once the journal has it.
func (t *task) record(asked *request.Request, passed time.Time) error {
	encoded, err := asked.Encode()
	if err == nil {
		err = t.checkShare(len(encoded))
	}
	t.request, t.bytes = asked, len(encoded)
	if err == nil {
		err = t.unlocked(func(ctx context.Context) error { return t.Journal.Put(ctx, string(t.uid), encoded) })
	}
	switch refusal := t.Refusals.RefusedSince(wantOf(asked), passed); {
	case err != nil:
		t.endRequest()
		return fmt.Errorf("the driver is not called before the journal has the request: %w", err)
	case t.isUnneeded():
		t.endRequest()
		return errChanged
	case refusal != nil:
		t.endRequest()
		return t.checkStock(asked, refusal)
	}
	return nil
}

// checkShare returns an error if the journal is half full and the records of the claim's namespace would take more of it than they leave free:
// so however many namespaces fill it, another one finds room.
func (t *task) checkShare(bytes int) error {
	size := t.Journal.Size()
	if size < journal.Limit/2 {
		return nil
	}
	own := 0
	for _, other := range t.claims {
		if other.namespace == t.namespace {
			own += other.bytes
		}
	}
	if own+bytes <= journal.Limit-size-bytes {
		return nil
	}
	return &failure{kind: failed, most: longestWait, err: fmt.Errorf(
		"the journal is half full, and namespace %s may have no more of it than it leaves free; this claim waits until others have their volumes", t.namespace)}
}

// create calls the driver with the open request, and returns nil once it has made the volume.
func (t *task) create() error {
	if t.volume != nil {
		return nil
	}
	asked, secrets, called := t.request, t.secrets, t.Now()
	defer func() { t.Refusals.EndTrial(wantOf(asked)) }()
	isFirst := t.isYoung(asked.Claim) && !t.nameMayBeTaken
	var response *csi.CreateVolumeResponse
	err := t.unlocked(func(ctx context.Context) (err error) {
		if t.queue.ShuttingDown() { // it was waiting for the journal
			return errEnding
		}
		ctx, cancel := context.WithTimeout(ctx, t.Timeout)
		defer cancel()
		if isFirst {
			ctx = metadata.AppendToOutgoingContext(ctx, firstCallKey, "true")
		}
		response, err = t.Driver.CreateVolume(ctx, asked.WithSecrets(secrets))
		return err
	})
	if err != nil {
		return t.afterError(err, called)
	}
	t.nameMayBeTaken, t.maybeMade = true, true
	if err := asked.Check(response); err != nil {
		return t.discardMisfit(response.GetVolume().GetVolumeId(), err)
	}
	t.volume, t.since, t.failure = response.GetVolume(), t.Now(), nil
	t.Refusals.Served(wantOf(asked), called)
	t.siblings.wakeSiblings(t.claim)
	return nil
}

// IsYoung says what isYoung does, to those who don't hold s.mu.
func (s *Syncer) IsYoung(claim *v1.PersistentVolumeClaim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isYoung(claim)
}

// isYoung says whether the claim was created after this process began to lead, so that nobody has called the driver for it before.
func (s *Syncer) isYoung(claim *v1.PersistentVolumeClaim) bool {
	return !s.leadingSince.IsZero() && claim.CreationTimestamp.After(s.leadingSince.Add(maxClockSkew))
}

// afterError returns what the driver's answer means if it is no volume.
func (t *task) afterError(err error, called time.Time) error {
	if t.saved() != nil { // an earlier call has made it
		return errChanged
	}
	asked := t.request
	meaning := outcomeOf(err, !csiconn.IsNotAsked(err), asked.MayReschedule(), t.RescheduleCodes)
	noStock := outofstock.Is(err) && meaning != notSent
	switch {
	case noStock:
		info, _ := errorinfo.Of(err)
		t.Refusals.Refused(wantOf(asked), info.MoreTypesFrom, called)
	case meaning == otherNode:
		t.Refusals.RefusedClaim(wantOf(asked), called)
	}
	t.metrics.answered(asked.Class.Name, meaning)
	f := &failure{kind: failed, err: fmt.Errorf("CreateVolume %s: %w", asked.Create.Name, err)}
	switch meaning {
	case maybeVolume:
		t.nameMayBeTaken, t.maybeMade = true, true
		f.kind = unknown
		switch {
		case noStock:
			f.wait = min(t.RetryMax, longestWait) // only the proof that there is none is waited for
		case isPending(err):
			f.most = longestWait
		}
		return f
	case notSent:
		if !t.maybeMade {
			t.endRequest()
		}
		f.kind, f.quiet = unsent, true
		return f
	}
	t.nameMayBeTaken = isAnotherVolume(err)
	t.endRequest()
	switch {
	case meaning == otherNode && noStock:
		return t.outOfStock(asked, f.err)
	case meaning == otherNode:
		f.kind = reschedules
	case isInvalid(err):
		f.kind, f.wait = invalid, t.RetryMax // a change of the claim or its class begins an attempt at once
	}
	return f
}

// outOfStock returns what follows if no volume is to be had in the request's zones.
func (t *task) outOfStock(asked *request.Request, err error) error {
	if !asked.MayReschedule() {
		return err
	}
	if t.isWanted() {
		_ = t.unlocked(func(ctx context.Context) error { t.reportConflict(ctx, asked); return nil })
	}
	return &failure{kind: reschedules, err: err}
}

// discardMisfit deletes a volume that is not the one asked for.
func (t *task) discardMisfit(id string, misfit error) error {
	f := &failure{kind: unknown, err: misfit}
	if id == "" {
		t.metrics.answered(t.request.Class.Name, maybeVolume)
		return f
	}
	left := t.deleteUnowned(id, t.recovered, t.metrics.deleted)
	switch {
	case left == nil:
	case (isKept(left) || isOwned(left)) && !t.isWanted(): // nobody needs another one
		if isKept(left) {
			t.reportKept(id, left)
		}
		t.endRequest()
		return errChanged
	default:
		t.metrics.answered(t.request.Class.Name, maybeVolume)
		left = fmt.Errorf("%w; volume %s could not be deleted again: %w", misfit, id, left)
		if t.isOwnersBusiness(&failure{kind: unknown, err: left}) {
			t.Events.Event(t.claim, v1.EventTypeWarning, reasonCleanupFailed, left.Error())
		}
		return f
	}
	t.metrics.answered(t.request.Class.Name, noVolume)
	t.nameMayBeTaken = false
	t.endRequest()
	f.kind = failed
	return f
}

// keptError says that a volume is kept for good although no PersistentVolume stands for it, because it may have been used.
type keptError struct{ err error }

func (e *keptError) Error() string { return e.err.Error() }

// deleteUnowned deletes a volume that was made for the claim, and returns a *deletion.OwnedError if a PersistentVolume stands for it, and a
// *keptError if it may have been used: needsProof says that it is kept unless the driver proves that it was not.
func (t *task) deleteUnowned(id string, needsProof bool, count prometheus.Counter) error {
	if needsProof && !t.DriverKnowsUse {
		return &keptError{fmt.Errorf("driver %s does not tell whether it was ever used", t.DriverName)}
	}
	secrets := t.secrets
	err := t.unlocked(func(context.Context) error { // it reads all PersistentVolumes, and bounds each request
		if t.queue.ShuttingDown() { // it was waiting for the driver
			return errEnding
		}
		return t.Deleter.DeleteUnowned(t.ctx, id, secrets, t.liveness.Progressed)
	})
	owned, isOwned := errors.AsType[*deletion.OwnedError](err)
	switch {
	case unused.IsRefused(err):
		return &keptError{err}
	case isOwned:
		klog.InfoS("A volume is kept, because a PersistentVolume stands for it", "volume", id, "persistentVolume", owned.PersistentVolume)
		return owned
	case err != nil:
		klog.ErrorS(err, "Deleting a volume without a PersistentVolume failed", "volume", id)
		return err
	}
	klog.InfoS("A volume without a PersistentVolume was deleted", "volume", id)
	count.Inc()
	return nil
}

// wantOf returns what package stock knows a request by.
func wantOf(r *request.Request) stock.Want {
	return stock.Want{
		Class: r.Class, Requisite: r.Requisite(), Specifics: r.Specifics(), Bytes: r.Create.CapacityRange.GetRequiredBytes(), Claim: r.Claim.UID, Node: r.Node,
	}
}
