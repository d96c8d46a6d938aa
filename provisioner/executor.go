package provisioner

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/internal/leader"
	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/csiconn"
	"github.com/topodisk/topodisk/provisioner/internal/liveness"
	"github.com/topodisk/topodisk/provisioner/journal"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
)

// waitForJournal is how many claims may wait for the journal beside those that are
// worked on: so many of them share a write.
const waitForJournal = 1000

// errEnding is the answer to a call that was not begun because this process ends.
var errEnding = errors.New("disk-provisioner ends before it has called the driver")

// executor carries out the actions of the Records. A worker gets a claim from the queue,
// passes its events to the Record, and carries out actions until none has a result; the
// queue keeps two workers from working on one claim.
type executor struct {
	p        *Provisioner
	table    *attempt.Table
	queue    workqueue.TypedDelayingInterface[types.UID]
	slots    slots // one is taken for each claim worked on, but for those that wait for the journal
	liveness *liveness.Monitor
	// trace is called before every action.
	trace func(claim types.UID, action attempt.Action)
}

func newExecutor(p *Provisioner) *executor {
	e := &executor{
		p: p, liveness: liveness.New(p.now), slots: newSlots(p.config.Workers, p.config.SaveWorkers),
		trace: func(claim types.UID, action attempt.Action) {
			klog.V(5).InfoS("Action", "claim", claim, "action", action)
		},
		queue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.UID]{Name: "claims"}),
	}
	e.table = attempt.NewTable(attempt.Limits{
		RetryStart: p.config.RetryStart, RetryMax: p.config.RetryMax, NodeGrace: p.config.NodeGrace, SiblingWait: siblingWait,
		RescheduleCodes: p.config.RescheduleCodes,
	}, e.enqueue)
	return e
}

func (e *executor) enqueue(claim types.UID) {
	e.liveness.Queued(string(claim))
	e.queue.Add(claim)
}

// run works until ctx ends, and returns when no worker is at work: what is queued then is left to the next leader. A claim's
// worker is a goroutine of its own: one that waits for the next claim would keep the stack that the last one needed.
func (e *executor) run(ctx context.Context) {
	e.liveness.Start()
	defer e.liveness.Stop()
	defer context.AfterFunc(ctx, e.queue.ShutDown)()
	var workers errgroup.Group
	workers.SetLimit(e.p.config.Workers + e.p.config.SaveWorkers + waitForJournal)
	for {
		claim, shutdown := e.queue.Get()
		if shutdown || e.queue.ShuttingDown() { // Get returns what is queued all the same
			break
		}
		workers.Go(func() error {
			defer e.queue.Done(claim)
			e.work(context.WithoutCancel(ctx), claim)
			return nil
		})
	}
	_ = workers.Wait() // no worker fails
}

// work carries out the claim's actions until none has a result.
func (e *executor) work(ctx context.Context, claim types.UID) {
	slot := e.slots.take()
	defer slot.giveBack()
	if e.queue.ShuttingDown() { // it was waiting for its slot
		return
	}
	e.liveness.Worked(string(claim))
	actions := e.table.Next(claim, e.p.now())
	defer e.table.Done(claim)
	for {
		slot.exchange(actions)
		result := e.do(ctx, claim, actions)
		if result == nil {
			return
		}
		actions = e.table.Result(claim, result, e.p.now())
	}
}

// withoutSlot lets another claim be worked on while this one, which has no volume, waits.
func (e *executor) withoutSlot(wait func()) {
	<-e.slots.working
	defer func() { e.slots.working <- struct{}{} }()
	wait()
}

// do carries out the actions and returns the result of the last one, if it has one.
func (e *executor) do(ctx context.Context, claim types.UID, actions []attempt.Action) (result attempt.Event) {
	for _, action := range actions {
		e.trace(claim, action)
		result = e.doOne(ctx, claim, action)
	}
	return result
}

// doOne carries out an action, within a time that does not depend on the API server, and returns its result if it has one.
// DeleteUnowned reads all PersistentVolumes, so it bounds each of its requests. A
// panic fails the action: its outcome is then unknown.
func (e *executor) doOne(ctx context.Context, claim types.UID, action attempt.Action) (result attempt.Event) {
	if _, pages := action.(attempt.DeleteUnowned); !pages {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.p.config.actionTimeout())
		defer cancel()
	}
	defer e.liveness.Progressed()
	withResult, hasResult := action.(attempt.ResultAction)
	defer func() {
		if r := recover(); r != nil {
			klog.ErrorS(nil, "A panic while provisioning", "action", action, "panic", r, "stack", string(debug.Stack()))
			if hasResult {
				result = withResult.Failed(fmt.Errorf("internal error: %v", r))
			}
		}
	}()
	if hasResult {
		return e.act(ctx, withResult)
	}
	e.handle(ctx, claim, action)
	return nil
}

// act carries out an action that has a result.
func (e *executor) act(ctx context.Context, action attempt.ResultAction) attempt.Event {
	p := e.p
	switch a := action.(type) {
	case attempt.Resolve:
		return p.resolver.resolve(ctx, a.Claim)
	case attempt.CheckVolume:
		return checkVolume(ctx, p.client, a)
	case attempt.CheckNode:
		return attempt.NodeChecked{Gone: isNodeGone(ctx, p.client, a.Name)}
	case attempt.Protect:
		err := p.protection.Protect(ctx, a.Request.Claim)
		return attempt.Protected{Err: err, WaitsFor: waitsFor(err)}
	case attempt.WriteJournal:
		return e.writeJournal(ctx, a.Request)
	case attempt.ReadSecrets:
		secrets, err := watch.ReadSecret(ctx, p.client, a.Request.Secrets.Provisioner)
		return attempt.SecretsRead{Secrets: secrets, Err: err, WaitsFor: waitsFor(err)}
	case attempt.CallDriver:
		if e.queue.ShuttingDown() { // it was waiting for the journal
			return attempt.Answer{Sent: p.now(), Err: errEnding, NotAsked: true}
		}
		return p.createVolume(ctx, a)
	case attempt.CheckSiblings:
		return attempt.SiblingsChecked{Siblings: p.judge(a.Request, a.Volume)}
	case attempt.SaveVolume:
		return p.saveVolume(ctx, a)
	case attempt.DeleteUnowned:
		if e.queue.ShuttingDown() { // it was waiting for the driver
			return attempt.VolumeDeleted{ID: a.ID, Err: errEnding}
		}
		return p.deleteUnowned(ctx, a, e.liveness.Progressed)
	case attempt.CheckClaim:
		return attempt.ClaimChecked{Gone: isClaimGone(ctx, p.client, a.Claim)}
	case attempt.RemoveSelectedNode:
		return attempt.NodeRemoved{Err: removeSelectedNode(ctx, p.client, a.Claim, a.Node)}
	}
	panic(fmt.Sprintf("nobody knows how to do %T", action))
}

// handle carries out an action that has no result.
func (e *executor) handle(ctx context.Context, claim types.UID, action attempt.Action) {
	p, key := e.p, string(claim)
	switch a := action.(type) {
	case attempt.Prefetch:
		if record := p.resolver.prefetch(ctx, a.Claim); record != nil {
			p.store.Prefetch(key, record)
		}
	case attempt.CancelPrefetch:
		p.store.Cancel(key)
	case attempt.EraseJournal:
		if a.Lazily {
			p.store.DeleteLazily(key)
		} else {
			p.store.Delete(key)
		}
	case attempt.Unprotect:
		p.protection.Unprotect(claim)
	case attempt.Subscribe:
		e.subscribe(claim, a.To)
	case attempt.Unsubscribe:
		p.objects.Unsubscribe(key)
		p.store.Cancel(key)
	case attempt.RequeueAfter:
		e.queue.AddAfter(claim, a.Pause)
	case attempt.ReportConflict:
		p.conflicts.report(ctx, a.Request)
	case attempt.NoteServed:
		p.refusals.Served(stockWant(a.Request))
	case attempt.NoteRefusal:
		if a.OfClaim {
			p.refusals.RefusedClaim(stockWant(a.Request), a.Sent)
		} else {
			p.refusals.Refused(stockWant(a.Request), a.Sent)
		}
	case attempt.ReportKept:
		p.reportKept(a)
	case attempt.ReportEnd:
		e.reportEnd(claim, a)
	case attempt.WakeSiblings:
		p.siblings.wake(a.Claim)
	default:
		p.report(action)
	}
}

// subscribe wakes the claim when the object of the error changes, or the journal has room.
func (e *executor) subscribe(claim types.UID, to error) {
	wake := func() { e.table.Post(claim, attempt.Woken{}) }
	e.p.objects.SubscribeError(string(claim), to, wake)
	if full, ok := errors.AsType[*journal.FullError](to); ok {
		e.p.store.AwaitRoom(full, wake)
	} else {
		e.p.store.Cancel(string(claim)) // it may have waited for room before
	}
}

// waitsFor returns the error if it says what must change, otherwise nil.
func waitsFor(err error) error {
	if _, full := errors.AsType[*journal.FullError](err); full || watch.NotReadyObject(err) != (watch.Object{}) {
		return err
	}
	return nil
}

// isTransient says whether the error is expected to end soon without a change of the
// claim: the driver is not on its socket, or another process is about to lead.
func isTransient(err error) bool {
	return csiconn.IsNotAsked(err) || errors.Is(err, leader.ErrLost) || errors.Is(err, journal.ErrTakenOver)
}

// writeJournal returns once the journal has the request and the claim has a slot again.
func (e *executor) writeJournal(ctx context.Context, r *request.Request) attempt.Written {
	begun := e.p.now()
	var err error
	e.withoutSlot(func() { err = putRequest(ctx, e.p.store, r) })
	return attempt.Written{
		Err: err, WaitsFor: waitsFor(err), Transient: isTransient(err), Refusal: e.p.refusals.RefusedSince(stockWant(r), begun),
	}
}

// putRequest returns nil once the journal has the request.
func putRequest(ctx context.Context, s store, r *request.Request) error {
	record, err := r.Encode()
	if err == nil {
		err = s.Put(ctx, string(r.Claim.UID), record)
	}
	if err != nil {
		return fmt.Errorf("the driver is not called before the journal has the request: %w", err)
	}
	return nil
}

// ShouldStart says whether to begin the first attempt for a claim that is this provisioner's.
func (e *executor) ShouldStart(claim *v1.PersistentVolumeClaim) bool {
	switch e.table.Phase(claim.UID) {
	case attempt.New, attempt.Prefetched:
		e.p.notifyPopulator(claim)
		return request.ShouldProvision(claim) && !e.queue.ShuttingDown()
	}
	return false
}

// Start begins the first attempt for a claim.
func (e *executor) Start(claim *v1.PersistentVolumeClaim) {
	e.table.Begin(claim.UID, attempt.Started{Claim: claim.DeepCopy()})
}
