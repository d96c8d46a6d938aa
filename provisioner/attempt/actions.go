package attempt

import (
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/provisioner/request"
)

// Action is something to do for a claim.
type Action interface {
	fmt.Stringer
}

// ResultAction is an action with a result.
type ResultAction interface {
	Action
	// Failed returns the result of an action that has failed in a way that nobody has foreseen.
	Failed(err error) Event
}

// Actions that have a result.
type (
	// Resolve works out the claim's request: Resolved.
	Resolve struct{ Claim *v1.PersistentVolumeClaim }
	// CheckVolume asks the API server whether the claim is without the PersistentVolume that it has had, and without any other: VolumeChecked.
	CheckVolume struct {
		Claim *v1.PersistentVolumeClaim
		Name  string
	}
	// CheckNode asks the API server whether a node is gone: NodeChecked.
	CheckNode struct{ Name string }
	// Protect adds a finalizer to the source of the volume: Protected.
	Protect struct{ Request *request.Request }
	// WriteJournal writes the request to the journal: Written.
	WriteJournal struct{ Request *request.Request }
	// ReadSecrets reads the Secrets of the request: SecretsRead.
	ReadSecrets struct{ Request *request.Request }
	// CallDriver calls CreateVolume: Answer. First says that no volume of the name exists or comes to exist from an earlier call.
	CallDriver struct {
		Request *request.Request
		Secrets map[string]string
		First   bool
	}
	// DeleteUnowned deletes a volume that was made for the claim, unless a PersistentVolume stands for it or it may have been used:
	// VolumeDeleted. Discards says that it is what was asked for; Proven, that it is kept unless the driver proves that it was not used.
	DeleteUnowned struct {
		Request  *request.Request
		Secrets  map[string]string
		ID       string
		Discards bool
		Proven   bool
	}
	// CheckSiblings looks whether the other claims of the Pod have volumes, and whether the Pod can still use this one: SiblingsChecked.
	CheckSiblings struct {
		Request *request.Request
		Volume  *csi.Volume
	}
	// SaveVolume writes the PersistentVolume: VolumeSaved.
	SaveVolume struct {
		Request *request.Request
		Volume  *csi.Volume
	}
	// CheckClaim asks the API server whether the claim is gone: ClaimChecked.
	CheckClaim struct{ Claim *v1.PersistentVolumeClaim }
	// RemoveSelectedNode returns the claim to the scheduler if the node is still the selected one: NodeRemoved.
	RemoveSelectedNode struct {
		Claim *v1.PersistentVolumeClaim
		Node  string
	}
)

// Failed implements ResultAction.
func (Resolve) Failed(err error) Event { return Resolved{Verdict: NotYet, Err: err} }

// Failed implements ResultAction.
func (CheckVolume) Failed(err error) Event { return VolumeChecked{Err: err} }

// Failed implements ResultAction: the node may be there.
func (CheckNode) Failed(error) Event { return NodeChecked{} }

// Failed implements ResultAction.
func (Protect) Failed(err error) Event { return Protected{Err: err} }

// Failed implements ResultAction.
func (WriteJournal) Failed(err error) Event { return Written{Err: err} }

// Failed implements ResultAction.
func (ReadSecrets) Failed(err error) Event { return SecretsRead{Err: err} }

// Failed implements ResultAction: the driver may have made the volume.
func (CallDriver) Failed(err error) Event { return Answer{Err: err} }

// Failed implements ResultAction.
func (a DeleteUnowned) Failed(err error) Event { return VolumeDeleted{ID: a.ID, Err: err} }

// Failed implements ResultAction: the siblings are not waited for.
func (CheckSiblings) Failed(error) Event { return SiblingsChecked{} }

// Failed implements ResultAction.
func (SaveVolume) Failed(err error) Event { return VolumeSaved{Err: err} }

// Failed implements ResultAction: the claim may be there.
func (CheckClaim) Failed(error) Event { return ClaimChecked{} }

// Failed implements ResultAction.
func (RemoveSelectedNode) Failed(err error) Event { return NodeRemoved{Err: err} }

// Actions without a result.
type (
	// Prefetch writes the claim's request to the journal before its first attempt, if the caches show all that it depends on.
	Prefetch struct{ Claim *v1.PersistentVolumeClaim }
	// CancelPrefetch deletes what Prefetch has written.
	CancelPrefetch struct{}
	// EraseJournal deletes the claim's request from the journal. Lazily says that this may wait for the next write, because the
	// volume's PersistentVolume has the finalizer.
	EraseJournal struct{ Lazily bool }
	// Unprotect removes the finalizer of the source unless another claim uses it.
	Unprotect struct{}
	// Subscribe asks for Woken when what an error names changes; it replaces an earlier subscription.
	Subscribe struct{ To error }
	// Unsubscribe ends the subscription.
	Unsubscribe struct{}
	// RequeueAfter asks for a Tick.
	RequeueAfter struct{ Pause time.Duration }
	// CountFailure counts an attempt that has ended without a volume.
	CountFailure struct {
		Claim *v1.PersistentVolumeClaim
		Class string
		Err   error
	}
	// Notify emits an event on the claim that says why an attempt has ended without a volume.
	Notify struct {
		Claim *v1.PersistentVolumeClaim
		Class string
		Err   error
	}
	// NotifyCleanup emits an event on the claim: a volume that does not match the request could not be deleted.
	NotifyCleanup struct {
		Claim *v1.PersistentVolumeClaim
		Why   error
		ID    string
		Err   error
	}
	// CountAnswer counts an answer of the driver without a volume.
	CountAnswer struct {
		Request *request.Request
		Outcome Outcome
	}
	// CountSkipped counts a call that was not made because the driver has just refused an equal one, or one for a sibling.
	CountSkipped struct{}
	// CountReschedule counts a claim that is returned to the scheduler.
	CountReschedule struct{ Err error }
	// CountLeakPrevented counts a volume that was saved although its claim is gone or an earlier process has asked for it.
	CountLeakPrevented struct{}
	// NoteServed records that the driver had stock for the request.
	NoteServed struct{ Request *request.Request }
	// NoteRefusal records that the driver had no stock for the request. OfClaim says that the claim itself may be the reason.
	NoteRefusal struct {
		Request *request.Request
		Sent    time.Time
		OfClaim bool
	}
	// ReportHeld emits an event that the volume's PersistentVolume is not saved before another claim of the Pod has its volume.
	ReportHeld struct {
		Request *request.Request
		Volume  string
		Why     error
	}
	// ReportConflict emits an event if another volume of the claim's Pod is only accessible in zones without stock for the claim.
	ReportConflict struct{ Request *request.Request }
	// Report reports that the claim's volume is saved, and how long the attempt took.
	Report struct {
		Claim  *v1.PersistentVolumeClaim
		Volume string
		Took   time.Duration
	}
	// ReportKept reports that a volume without a PersistentVolume, which the claim does not need, is kept for good.
	ReportKept struct {
		Request *request.Request
		ID      string
		Why     error
	}
	// ReportEnd reports that a request was ended as an operator has asked, or why it is kept.
	ReportEnd struct {
		Request *request.Request
		Volume  string // that was made for it; empty if none is known
		Reason  string
		Kept    string // why; empty if it was ended
	}
	// WakeSiblings tells the other claims of the Pod that this one has got further: SiblingChanged.
	WakeSiblings struct{ Claim *v1.PersistentVolumeClaim }
)
