// Package attempt decides what is done for a claim that wants a volume, and when.
//
// There is one [Record] per claim. It is a state machine without I/O, without a
// clock and without locks: [Record.Step] takes one event and returns the actions
// that follow from it. At most one of them has a result, which is the Record's
// next event. A [Table] holds the Records of all
// claims under one lock.
//
// A Record exists from the first event of a claim that concerns the provisioner
// until the claim is bound or gone and no volume can exist without a PersistentVolume.
package attempt

import (
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/provisioner/request"
)

// Phase is the state of a Record.
type Phase int

// The phases in which a Record waits for an event.
const (
	// New is the phase of a Record that has seen no event.
	New Phase = iota
	// Prefetched says that the claim's first attempt has not begun; the journal may have its request already.
	Prefetched
	// Waiting says that no volume is being created. The next attempt begins when something that the claim depends on changes,
	// or when its back-off ends.
	Waiting
	// Unselected says that no attempt can be made until the claim or its class changes: the claim has no selected node, or is not
	// for this provisioner at present.
	Unselected
	// Doubtful says that a volume may exist: the same request is repeated until an answer is final.
	Doubtful
	// Held says that the volume exists, and that its PersistentVolume is saved only once the other claims of the Pod have volumes.
	Held
	// Unsaved says that the volume exists, and that its PersistentVolume could not be saved yet.
	Unsaved
	// Saved says that the claim has a PersistentVolume, but is not bound to it yet.
	Saved
	// Ended says that nothing is left to do.
	Ended
)

// The phases in which an action is under way whose result is the next event that matters.
const (
	Resolving Phase = iota + Ended + 1
	CheckingNode
	CheckingVolume
	Protecting
	Journaling
	ReadingSecrets
	Calling
	CleaningUp
	CheckingSiblings
	Discarding
	Saving
	CheckingClaim
	Deleting
	Unselecting
)

var phaseNames = [...]string{
	"New", "Prefetched", "Waiting", "Unselected", "Doubtful", "Held", "Unsaved", "Saved", "Ended",
	"Resolving", "CheckingNode", "CheckingVolume", "Protecting", "Journaling", "ReadingSecrets", "Calling", "CleaningUp", "CheckingSiblings", "Discarding",
	"Saving", "CheckingClaim", "Deleting", "Unselecting",
}

// String returns the phase's name.
func (p Phase) String() string {
	if p < 0 || int(p) >= len(phaseNames) {
		return fmt.Sprintf("phase %d", int(p))
	}
	return phaseNames[p]
}

// inAction says whether an action is under way.
func (p Phase) inAction() bool { return p > Ended }

// Record is all that is known of the attempts for one claim.
type Record struct {
	limits *Limits
	phase  Phase

	claim    *v1.PersistentVolumeClaim // as last seen; nil if only its PersistentVolume was seen
	gone     bool                      // the claim no longer exists
	pv       string                    // the PersistentVolume that stands for the claim
	formerPV string                    // one that stood for it: the API server is asked before another volume is made

	attempted *v1.PersistentVolumeClaim // the claim as the attempt began with it
	began     time.Time                 // when it began
	request   *request.Request
	open      bool                 // from WriteJournal or Recovered until close: the journal may have the request, which is fixed
	secrets   map[string]string    // as last read
	volume    *csi.Volume          // that the driver has made
	cause     error                // why the attempt fails, while an action finds out what follows from that
	saved     *v1.PersistentVolume // seen to stand for the volume while an action was under way
	gonePV    string               // deleted while an action was under way

	prefetched      bool // the journal may have a request from before the claim's first attempt
	recovered       bool // the request is from the journal of an earlier process
	doubtful        bool // an earlier call of the open request may have made the volume; close resets it
	mayExist        bool // the same of all calls for the claim, or it has had a volume; a final answer or the volume's deletion resets it
	mayHaveBeenUsed bool // the driver does not delete the volume of the open request, for it may have been used
	sole            bool // as the last call that returned a volume left it: no other volume of the name can exist

	siblingChanged bool      // another claim of the Pod has got further while an action was under way
	keepsNode      bool      // the last attempt failed at the selected node, which could not be removed
	awaitsSibling  bool      // no attempt is made before another claim of the Pod has its volume
	awaitedSince   time.Time // since when, or since when the volume is held; zero: neither
	discards       int       // volumes that were deleted in a row because another claim of the Pod could not have one

	endReason string // why an operator wants the open request ended; empty if none does

	dirty          bool // something has changed while an action was under way
	failures       int  // since the last attempt that ended without one
	notBefore      time.Time
	subscribed     bool
	awaitsAnyNode  bool      // no node answers for the claim: a change of any may help
	node           string    // that has had no zone for the claim
	nodeSince      time.Time // since when
	transientSince time.Time // since when attempts fail by transient errors; zero: the last one did not
	deferred       error     // the last of them, until the claim's owner is notified

	now     time.Time // of the event
	actions []Action  // that it has led to
}

// Limits are the durations and gRPC codes that decisions depend on.
type Limits struct {
	// RetryStart and RetryMax bound the pause between two attempts, which doubles with every failure.
	RetryStart, RetryMax time.Duration
	// NodeGrace is how long a selected node may be without the driver.
	NodeGrace time.Duration
	// SiblingWait is how long a claim waits for the other claims of its Pod.
	SiblingWait time.Duration
	// RescheduleCodes are gRPC codes that send a claim to another node, besides ResourceExhausted.
	RescheduleCodes []codes.Code
	// LeadingSince returns when this process began to lead; zero: it doesn't lead.
	LeadingSince func() time.Time
}

const (
	// maxDoubtfulPause bounds the back-off while the driver answers that the operation is pending.
	maxDoubtfulPause = 20 * time.Second
	// notifyAfter is how long transient errors last before the claim's owner is notified: a restart or an upgrade of the driver
	// takes less.
	notifyAfter = 15 * time.Second
	// checkSavedInterval is how often a claim that isn't bound is checked for its PersistentVolume, in case an event was missed.
	checkSavedInterval = 15 * time.Minute
	// maxClockSkew bounds the difference between the synchronized clocks of two nodes.
	maxClockSkew = 2 * time.Second
)

// NewRecord returns a Record that has seen no event.
func NewRecord(limits *Limits) *Record { return &Record{limits: limits} }

// Phase returns the Record's phase.
func (r *Record) Phase() Phase { return r.phase }

// IsOpen says whether a volume may be under way for the claim: the journal may have its request.
func (r *Record) IsOpen() bool { return r.open }

// IsDoubtful says whether an earlier call of the open request may have made the volume.
func (r *Record) IsDoubtful() bool { return r.open && r.doubtful && r.volume == nil }

// Request returns the open request, or nil.
func (r *Record) Request() *request.Request {
	if !r.open {
		return nil
	}
	return r.request
}

// Step takes an event at the given time and returns the actions to do, in this order.
// The last one may have a result, which must be the Record's next event apart from those
// of the watches; no other action with a result is returned until then.
func (r *Record) Step(e Event, now time.Time) []Action {
	r.now, r.actions = now, nil
	e.apply(r)
	actions := r.actions
	r.actions = nil
	return actions
}

// steps takes several events.
func (r *Record) steps(events []Event, now time.Time) (actions []Action) {
	for _, e := range events {
		actions = append(actions, r.Step(e, now)...)
	}
	return actions
}

// do adds an action.
func (r *Record) do(a Action) { r.actions = append(r.actions, a) }

// act begins an action that has a result.
func (r *Record) act(phase Phase, a ResultAction) {
	r.phase = phase
	r.do(a)
}

// isWanted says whether the claim, as last seen, needs a volume.
func (r *Record) isWanted() bool {
	return !r.gone && r.claim != nil && request.NeedsVolume(r.claim)
}

// changed decides what a change of the claim means.
func (r *Record) changed() {
	switch {
	case r.phase == Held, r.phase == Unsaved && !r.isWanted():
		r.retry() // it may not be wanted any more
	case r.open, r.phase == Ended:
		// the request stays what it is
	case r.phase.inAction():
		r.dirty = true
	case r.phase == Saved && r.claim == nil && !r.gone:
		// it has not been seen yet
	case !r.isWanted():
		r.end()
	case r.phase == Saved && r.pv != "":
		// it is about to be bound
	case r.phase == New, r.phase == Prefetched:
		r.phase, r.prefetched = Prefetched, true
		r.do(Prefetch{Claim: r.claim})
	default:
		r.begin()
	}
}

// wake retries, since something has changed that the claim may wait for.
func (r *Record) wake() {
	switch {
	case r.phase.inAction():
		r.dirty = true
	case r.phase == Waiting, r.phase == Doubtful, r.phase == Held, r.phase == Unsaved:
		r.retry()
	}
}

// retry makes the next attempt of a Record that waits.
func (r *Record) retry() {
	r.dirty = false
	switch r.phase {
	case Doubtful:
		r.repeat()
	case Held:
		r.checkSiblings()
	case Unsaved:
		r.save()
	case Saved:
		r.formerPV, r.pv = r.pv, ""
		r.begin()
	default:
		r.begin()
	}
}

// tick retries if the back-off is over.
func (r *Record) tick() {
	if r.phase.inAction() {
		return
	}
	switch r.phase {
	case Waiting, Doubtful, Held, Unsaved, Saved:
	default:
		return
	}
	switch {
	case !r.now.Before(r.notBefore) && r.claim == nil:
		r.end()
		return
	case !r.now.Before(r.notBefore):
		r.retry()
		return
	case r.deferred != nil && !r.now.Before(r.transientSince.Add(notifyAfter)):
		r.notify(r.deferred)
	}
	r.requeue()
}

// requeue asks for a tick at the end of the back-off, or when the owner is to be notified.
func (r *Record) requeue() {
	next := r.notBefore
	if due := r.transientSince.Add(notifyAfter); r.deferred != nil && due.Before(next) {
		next = due
	}
	r.do(RequeueAfter{next.Sub(r.now)})
}

// end leaves nothing to do.
func (r *Record) end() {
	r.dirty = false
	r.waitIn(Ended)
}

// waitIn waits for an event in the phase, unless something has changed meanwhile.
func (r *Record) waitIn(p Phase) {
	r.phase = p
	r.awaitsAnyNode = false
	r.request, r.secrets = nil, nil
	r.unsubscribe()
	r.clearTransient()
	r.dropPrefetched()
	r.endAsRequested()
	if r.dirty {
		r.dirty = false
		r.changed()
	}
}

// dropPrefetched deletes a prefetched request.
func (r *Record) dropPrefetched() {
	if r.prefetched {
		r.prefetched = false
		r.do(CancelPrefetch{})
	}
}

func (r *Record) subscribe(to error) {
	r.subscribed = true
	r.do(Subscribe{To: to})
}

func (r *Record) unsubscribe() {
	if r.subscribed {
		r.subscribed = false
		r.do(Unsubscribe{})
	}
}
