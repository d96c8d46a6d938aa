package attempt

import "github.com/topodisk/topodisk/internal/outofstock"

// The calls of CreateVolume, and what the answers mean.

func (e Protected) apply(r *Record) {
	if e.Err != nil || !r.isWanted() || r.pv != "" {
		r.do(Unprotect{})
	}
	switch {
	case r.endIfUnneeded():
	case e.Err != nil:
		r.fail(failure{err: e.Err, waitsFor: e.WaitsFor})
	default:
		r.write()
	}
}

func (e Written) apply(r *Record) {
	r.prefetched = false
	switch {
	case r.saved != nil:
		r.finish(r.saved)
	case e.Err != nil:
		r.close(false)
		r.fail(failure{err: e.Err, waitsFor: e.WaitsFor, transient: e.Transient})
	case !r.isWanted() || r.pv != "":
		r.close(false)
		r.endIfUnneeded()
	case e.Refusal != nil:
		asked := r.request
		r.do(CountSkipped{})
		r.close(false)
		r.outOfStock(asked, e.Refusal)
	default:
		r.call()
	}
}

// repeat repeats the request.
func (r *Record) repeat() {
	r.began = r.now
	if r.request.Secrets.Provisioner == nil {
		r.call()
		return
	}
	r.act(ReadingSecrets, ReadSecrets{Request: r.request})
}

func (e SecretsRead) apply(r *Record) {
	switch {
	case e.Err == nil:
		r.secrets = e.Secrets
	case r.secrets == nil: // without secrets the driver would use other keys
		r.fail(failure{err: e.Err, waitsFor: e.WaitsFor})
		return
	}
	r.call()
}

// call calls the driver. A call is known to be the first only for a claim that was created
// after this process began to lead.
func (r *Record) call() {
	since := r.limits.LeadingSince()
	young := !since.IsZero() && r.request.Claim.CreationTimestamp.After(since.Add(maxClockSkew))
	r.act(Calling, CallDriver{Request: r.request, Secrets: r.secrets, First: young && !r.mayExist})
}

func (e Answer) apply(r *Record) {
	asked := r.request
	if e.Err != nil && r.saved != nil {
		r.finish(r.saved)
		return
	}
	if e.Err == nil {
		if e.Siblings.State != Refused { // there was not enough for the Pod
			r.do(NoteServed{Request: asked})
		}
		r.answered(e)
		return
	}
	outcome := OutcomeOf(e.Err, e.NotAsked, asked.MayReschedule(), r.limits.RescheduleCodes)
	outOfStock := outofstock.Is(e.Err) && !e.NotAsked
	switch {
	case outOfStock:
		r.do(NoteRefusal{Request: asked, Sent: e.Sent})
	case outcome == Reschedule:
		r.do(NoteRefusal{Request: asked, Sent: e.Sent, OfClaim: true})
	}
	r.do(CountAnswer{Request: asked, Outcome: outcome})
	err := wrap("CreateVolume "+asked.Create.Name, e.Err)
	switch outcome {
	case Background:
		r.mayExist, r.doubtful = true, true
		r.fail(failure{err: err, outcome: Background, isPending: isPending(e.Err), noStock: outOfStock})
		return
	case Unchanged:
		if !r.doubtful {
			r.close(false)
		}
		r.fail(failure{err: err, transient: true})
		return
	}
	r.mayExist = isAnotherVolume(e.Err)
	r.close(false)
	switch {
	case outcome == Reschedule && outOfStock:
		r.outOfStock(asked, err)
	case outcome == Reschedule:
		r.reschedule(err)
	default:
		r.fail(failure{err: err, permanent: isInvalid(e.Err)})
	}
}

// answered continues with the volume that the driver has returned.
func (r *Record) answered(e Answer) {
	r.sole = !r.mayExist
	r.mayExist, r.doubtful = true, true
	if err := r.request.Check(e.Response); err != nil {
		r.cause = err
		if id := e.Response.GetVolume().GetVolumeId(); id != "" {
			r.act(CleaningUp, DeleteUnowned{Request: r.request, Secrets: r.secrets, ID: id, Proven: r.recovered})
			return
		}
		r.do(CountAnswer{Request: r.request, Outcome: Background})
		r.fail(failure{err: err, outcome: Background})
		return
	}
	r.volume, r.awaitedSince = e.Response.GetVolume(), r.now
	r.wakeSiblings()
	r.hold(e.Siblings)
}

// cleanedUp ends an attempt whose volume did not match the request.
func (r *Record) cleanedUp(e VolumeDeleted) {
	err := r.cause
	outcome := Background
	switch {
	case e.Err != nil:
		r.do(NotifyCleanup{Claim: r.attempted, Why: err, ID: e.ID, Err: e.Err})
	case e.Owner != "":
		r.do(NotifyCleanup{Claim: r.attempted, Why: err, ID: e.ID, Err: errOwned(e.Owner)})
	case e.Kept != nil:
		r.do(NotifyCleanup{Claim: r.attempted, Why: err, ID: e.ID, Err: e.Kept})
	default:
		outcome = Finished
	}
	r.do(CountAnswer{Request: r.request, Outcome: outcome})
	if outcome == Finished {
		r.mayExist = false
		r.close(false)
	}
	r.fail(failure{err: err, outcome: outcome})
}
