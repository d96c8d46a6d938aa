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

// Actions that have a result.
type (
	// Resolve works out what the driver is to be asked for the claim: Resolved.
	Resolve struct{ Claim *v1.PersistentVolumeClaim }
	// CheckVolume asks the API server whether the claim is without the PersistentVolume that it has had, and without any other: VolumeChecked.
	CheckVolume struct {
		Claim *v1.PersistentVolumeClaim
		Name  string
	}
	// CheckNode asks the API server whether a node is gone: NodeChecked.
	CheckNode struct{ Name string }
	// Protect keeps the source of the volume from being deleted: Protected.
	Protect struct{ Request *request.Request }
	// WriteJournal writes the request where it outlives this process: Written.
	WriteJournal struct{ Request *request.Request }
	// ReadSecrets reads what goes with the request: SecretsRead.
	ReadSecrets struct{ Request *request.Request }
	// CallDriver calls CreateVolume: Answer. First says that no volume of the name exists or comes to exist from an earlier call.
	CallDriver struct {
		Request *request.Request
		Secrets map[string]string
		First   bool
	}
	// DeleteUnowned deletes a volume that was made for the claim, unless a PersistentVolume stands for it: VolumeDeleted.
	DeleteUnowned struct {
		Request *request.Request
		Secrets map[string]string
		ID      string
	}
	// SaveVolume writes the PersistentVolume: VolumeSaved.
	SaveVolume struct {
		Request *request.Request
		Volume  *csi.Volume
	}
	// CheckClaim asks the API server whether the claim is gone: ClaimChecked.
	CheckClaim struct{ Claim *v1.PersistentVolumeClaim }
	// RemoveSelectedNode sends the claim back to the scheduler if the node is still the selected one: NodeRemoved.
	RemoveSelectedNode struct {
		Claim *v1.PersistentVolumeClaim
		Node  string
	}
)

// Actions without a result.
type (
	// Prefetch has the journal write the claim's request ahead of its turn, if the caches alone tell all of it.
	Prefetch struct{ Claim *v1.PersistentVolumeClaim }
	// CancelPrefetch deletes what Prefetch has written.
	CancelPrefetch struct{}
	// EraseJournal deletes the claim's request from the journal. Lazily says that it may be done together with the next write, for
	// a PersistentVolume stands for the volume that can't go without us.
	EraseJournal struct{ Lazily bool }
	// Unprotect lets the source of the volume go.
	Unprotect struct{}
	// Subscribe has the Record woken when an object changes; it replaces an earlier subscription.
	Subscribe struct{ To any }
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
	// Notify tells the claim's owner why an attempt has ended without a volume.
	Notify struct {
		Claim *v1.PersistentVolumeClaim
		Class string
		Err   error
	}
	// NotifyCleanup tells that a volume that is not the one asked for could not be deleted.
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
	// CountSkipped counts a call that was not made because the driver has just refused the same.
	CountSkipped struct{}
	// CountReschedule counts a claim that is sent back to the scheduler.
	CountReschedule struct{ Err error }
	// CountLeak counts a volume that might have been forgotten and was saved with a PersistentVolume.
	CountLeak struct{}
	// NoteServed notes that the driver has had what was asked for.
	NoteServed struct{ Request *request.Request }
	// NoteRefusal notes that the driver has not had what was asked for. OfClaim says that the claim itself may be the reason.
	NoteRefusal struct {
		Request *request.Request
		Sent    time.Time
		OfClaim bool
	}
	// ReportConflict tells the claim's owner if another claim of its Pod keeps it in zones without stock.
	ReportConflict struct{ Request *request.Request }
	// Report tells that the claim's volume is saved, and how long the attempt took.
	Report struct {
		Claim  *v1.PersistentVolumeClaim
		Volume string
		Took   time.Duration
	}
	// ReportEnd tells that a request was ended as an operator has asked, or why it is kept.
	ReportEnd struct {
		Request *request.Request
		Reason  string
		Kept    string // why; empty if it was ended
	}
	// WakeDeletion has the deletion of a PersistentVolume go on that may have waited for the end of the attempt.
	WakeDeletion struct{ Volume string }
)
