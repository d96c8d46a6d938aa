package attempt

import (
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/provisioner/request"
)

// Event is an input of a Record: a change that a watch shows, the end of a back-off, or
// the result of an action.
type Event interface {
	fmt.Stringer
	apply(r *Record)
}

// Started begins the first attempt for a claim that is this provisioner's.
type Started struct{ Claim *v1.PersistentVolumeClaim }

// ClaimChanged shows the claim as a watch does.
type ClaimChanged struct{ Claim *v1.PersistentVolumeClaim }

// ClaimGone says that the claim no longer exists.
type ClaimGone struct{}

// VolumeSeen shows a PersistentVolume whose claimRef has the claim's UID.
type VolumeSeen struct{ Volume *v1.PersistentVolume }

// VolumeGone says that a PersistentVolume with the claim's UID no longer exists.
type VolumeGone struct{ Name string }

// Woken says that something has changed that the claim may wait for.
type Woken struct{}

// ClassChanged says that the claim's class was made, changed or deleted.
type ClassChanged struct{}

// SiblingChanged says that another claim of the claim's Pod has got further to its volume, or needs none any more.
type SiblingChanged struct{}

// Tick says that time has passed.
type Tick struct{}

// EndRequested says that an operator has asked to end the open request, because its outcome can't be determined.
type EndRequested struct{ Reason string }

// Recovered brings the request that the journal of an earlier process has for the claim.
type Recovered struct{ Request *request.Request }

// Resolved is the result of Resolve.
type Resolved struct {
	Verdict Verdict
	Err     error // why not; nil for Ready, HasVolume and NotNow

	// Request and Secrets are what the driver is called with (Ready).
	Request *request.Request
	Secrets map[string]string
	// Refusal is why the driver is not called now (Ready). OfClaim says that the claim itself may be the reason.
	Refusal error
	OfClaim bool
	// Volume is the PersistentVolume that stands for the claim (HasVolume).
	Volume string
	// WaitsFor says what must change, for Subscribe; nil for nothing that is known (NotYet).
	WaitsFor error
	// Transient says that the error is expected to end soon without a change of the claim.
	Transient bool
}

// Verdict is the outcome of Resolve.
type Verdict int

// The verdicts.
const (
	// Ready: the driver can be called.
	Ready Verdict = iota
	// Invalid: no volume is possible until the claim or its class changes.
	Invalid
	// NotYet: a later attempt may succeed.
	NotYet
	// NodeUnready: the selected node has no driver yet.
	NodeUnready
	// NodeGone: the cache does not show the selected node.
	NodeGone
	// NoTopology: no node of the cluster has the driver yet.
	NoTopology
	// NodeNotAllowed: the selected node is in no zone that the class allows, or its labels name no one zone.
	NodeNotAllowed
	// SiblingFirst: another claim of the Pod is to have its volume before the driver is called.
	SiblingFirst
	// SiblingRefused: another claim of the Pod can't have a volume for the selected node.
	SiblingRefused
	// HasVolume: a PersistentVolume stands for the claim.
	HasVolume
	// NotNow: the claim is not for this provisioner at present, or has no selected node.
	NotNow
)

var verdictNames = [...]string{"Ready", "Invalid", "NotYet", "NodeUnready", "NodeGone", "NoTopology", "NodeNotAllowed",
	"SiblingFirst", "SiblingRefused", "HasVolume", "NotNow"}

// String returns the verdict's name.
func (v Verdict) String() string { return verdictNames[v] }

// VolumeChecked is the result of CheckVolume.
type VolumeChecked struct {
	Err error
	// Wanting says that the claim exists and has neither this PersistentVolume nor another one.
	Wanting bool
}

// NodeChecked is the result of CheckNode.
type NodeChecked struct{ Gone bool }

// Protected is the result of Protect.
type Protected struct {
	Err      error
	WaitsFor error // as in Resolved
}

// Written is the result of WriteJournal.
type Written struct {
	Err       error
	WaitsFor  error // as in Resolved
	Transient bool
	// Refusal says that the driver has refused an equal request meanwhile, so that it is not called now.
	Refusal error
}

// SecretsRead is the result of ReadSecrets.
type SecretsRead struct {
	Secrets  map[string]string
	Err      error
	WaitsFor error // as in Resolved
}

// Answer is the result of CallDriver.
type Answer struct {
	Response *csi.CreateVolumeResponse
	Err      error
	Sent     time.Time
	// NotAsked says that the call was not sent.
	NotAsked bool
	// Siblings is what the other claims of the Pod mean for a volume that was made.
	Siblings Siblings
}

// SiblingsChecked is the result of CheckSiblings.
type SiblingsChecked struct{ Siblings Siblings }

// VolumeSaved is the result of SaveVolume.
type VolumeSaved struct {
	Volume *v1.PersistentVolume
	Err    error
	// Refused says that the API server has refused the PersistentVolume.
	Refused bool
}

// ClaimChecked is the result of CheckClaim.
type ClaimChecked struct{ Gone bool }

// VolumeDeleted is the result of DeleteUnowned.
type VolumeDeleted struct {
	ID  string
	Err error
	// Owner is a PersistentVolume that stands for the volume, which was therefore kept.
	Owner string
	// Kept is why the volume was kept for good although no PersistentVolume stands for it: it may have been used. Nil if it was not.
	Kept error
}

// NodeRemoved is the result of RemoveSelectedNode.
type NodeRemoved struct{ Err error }
