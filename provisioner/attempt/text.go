package attempt

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/topodisk/topodisk/provisioner/request"
)

// The text of events and actions in logs and transcripts, without secrets.

// words joins a name and what is not empty.
func words(name string, more ...string) string {
	text := name
	for _, word := range more {
		if word != "" {
			text += " " + word
		}
	}
	return text
}

func when(name string, set bool) string {
	if set {
		return name
	}
	return ""
}

func quoted(err error) string { return quotedAs("err", err) }

func quotedAs(name string, err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprintf("%s=%q", name, err)
}

func waits(on error) string {
	if on == nil {
		return ""
	}
	return fmt.Sprintf("waits-for=%v", on)
}

func named(r *request.Request) string {
	if r == nil {
		return ""
	}
	return r.Create.GetName()
}

func (e Started) String() string      { return "Started" }
func (e ClaimChanged) String() string { return "ClaimChanged" }
func (ClaimGone) String() string      { return "ClaimGone" }
func (e VolumeSeen) String() string   { return words("VolumeSeen", e.Volume.Name) }
func (e VolumeGone) String() string   { return words("VolumeGone", e.Name) }
func (Woken) String() string          { return "Woken" }
func (ClassChanged) String() string   { return "ClassChanged" }
func (SiblingChanged) String() string { return "SiblingChanged" }
func (Tick) String() string           { return "Tick" }
func (e EndRequested) String() string { return "EndRequested" }
func (e Recovered) String() string    { return words("Recovered", named(e.Request)) }
func (e Resolved) String() string {
	return words("Resolved", e.Verdict.String(), e.Volume, quoted(errors.Join(e.Err, e.Refusal)), waits(e.WaitsFor),
		when("of-claim", e.OfClaim), when("transient", e.Transient))
}
func (e VolumeChecked) String() string {
	return words("VolumeChecked", when("wanting", e.Wanting), quoted(e.Err))
}
func (e NodeChecked) String() string { return words("NodeChecked", when("gone", e.Gone)) }
func (e Protected) String() string   { return words("Protected", quoted(e.Err), waits(e.WaitsFor)) }
func (e Written) String() string {
	return words("Written", quoted(e.Err), waits(e.WaitsFor), when("transient", e.Transient), quotedAs("refusal", e.Refusal))
}
func (e SecretsRead) String() string { return words("SecretsRead", quoted(e.Err), waits(e.WaitsFor)) }
func (e Answer) String() string {
	return words("Answer", e.Response.GetVolume().GetVolumeId(), e.Siblings.String(), quoted(e.Err), when("not-asked", e.NotAsked))
}
func (e SiblingsChecked) String() string { return words("SiblingsChecked", e.Siblings.String()) }
func (e VolumeSaved) String() string {
	if e.Err == nil {
		return words("VolumeSaved", e.Volume.Name)
	}
	return words("VolumeSaved", quoted(e.Err), when("refused", e.Refused))
}
func (e ClaimChecked) String() string { return words("ClaimChecked", when("gone", e.Gone)) }
func (e VolumeDeleted) String() string {
	return words("VolumeDeleted", when("owner="+e.Owner, e.Owner != ""), quotedAs("kept", e.Kept), quoted(e.Err))
}
func (e NodeRemoved) String() string { return words("NodeRemoved", quoted(e.Err)) }

func (Resolve) String() string        { return "Resolve" }
func (a CheckVolume) String() string  { return words("CheckVolume", a.Name) }
func (a CheckNode) String() string    { return words("CheckNode", a.Name) }
func (Protect) String() string        { return "Protect" }
func (a WriteJournal) String() string { return words("WriteJournal", named(a.Request)) }
func (ReadSecrets) String() string    { return "ReadSecrets" }
func (a CallDriver) String() string {
	return words("CallDriver", named(a.Request), when("first", a.First), when("with-secrets", len(a.Secrets) > 0))
}
func (a DeleteUnowned) String() string {
	return words("DeleteUnowned", a.ID, when("proven", a.Proven))
}
func (CheckSiblings) String() string { return "CheckSiblings" }
func (a SaveVolume) String() string  { return words("SaveVolume", a.Volume.GetVolumeId()) }
func (CheckClaim) String() string    { return "CheckClaim" }
func (a RemoveSelectedNode) String() string {
	return words("RemoveSelectedNode", a.Node)
}
func (Prefetch) String() string       { return "Prefetch" }
func (CancelPrefetch) String() string { return "CancelPrefetch" }
func (a EraseJournal) String() string { return words("EraseJournal", when("lazily", a.Lazily)) }
func (Unprotect) String() string      { return "Unprotect" }
func (a Subscribe) String() string    { return fmt.Sprintf("Subscribe %v", a.To) }
func (Unsubscribe) String() string    { return "Unsubscribe" }
func (a RequeueAfter) String() string {
	return words("RequeueAfter", a.Pause.Round(time.Millisecond).String())
}
func (a CountFailure) String() string { return words("CountFailure", a.Class) }
func (a Notify) String() string       { return words("Notify", quoted(a.Err)) }
func (a NotifyCleanup) String() string {
	return words("NotifyCleanup", a.ID, quoted(a.Err))
}
func (a CountAnswer) String() string      { return words("CountAnswer", a.Outcome.String()) }
func (CountSkipped) String() string       { return "CountSkipped" }
func (a CountReschedule) String() string  { return "CountReschedule" }
func (CountLeakPrevented) String() string { return "CountLeakPrevented" }
func (NoteServed) String() string         { return "NoteServed" }
func (a NoteRefusal) String() string      { return words("NoteRefusal", when("of-claim", a.OfClaim)) }
func (ReportConflict) String() string     { return "ReportConflict" }
func (a ReportHeld) String() string       { return words("ReportHeld", a.Volume) }
func (a Report) String() string           { return words("Report", a.Volume) }
func (a ReportEnd) String() string {
	return words("ReportEnd", when(fmt.Sprintf("kept=%q", a.Kept), a.Kept != ""))
}
func (a ReportKept) String() string { return words("ReportKept", a.ID, quotedAs("why", a.Why)) }
func (WakeSiblings) String() string { return "WakeSiblings" }

// Name returns the first word of an event or action: its kind.
func Name(of fmt.Stringer) string {
	name, _, _ := strings.Cut(of.String(), " ")
	return name
}
