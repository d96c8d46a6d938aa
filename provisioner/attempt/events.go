package attempt

import (
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/provisioner/request"
)

// Event is what a Record hears of: what watches show, the end of a pause, and the
// results of actions.
type Event interface {
	fmt.Stringer
	apply(r *Record)
}

// Started says that the claim is this provisioner's and that its turn has come.
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

// Tick says that time has passed.
type Tick struct{}

// EndRequested says that an operator wants the open request ended whose outcome nobody can prove.
type EndRequested struct{ Reason string }

// Recovered brings the request that the journal of an earlier process has for the claim.
type Recovered struct{ Request *request.Request }

// Resolved is the result of Resolve.
type Resolved struct {
	Verdict Verdict
	Err     error // why not; nil for Ready, HasVolume and NotNow

	// Request is what is to be asked of the driver, and Secrets goes with it (Ready).
	Request *request.Request
	Secrets map[string]string
	// Refusal is why the driver need not be asked just now (Ready).
	Refusal error
	// Volume is the PersistentVolume that stands for the claim (HasVolume).
	Volume string
	// WaitsFor is the object that must change, in the form that Subscribe takes; nil for none that is known (NotYet).
	WaitsFor any
	// Passing says that the error ends by itself, and soon.
	Passing bool
}

// Verdict says what came of working out a request.
type Verdict int

// The verdicts.
const (
	// Ready: the driver can be asked.
	Ready Verdict = iota
	// Invalid: only another claim or class helps.
	Invalid
	// NotYet: time helps, or a change of an object.
	NotYet
	// NodeUnready: the selected node has no driver yet.
	NodeUnready
	// NodeGone: the cache does not show the selected node.
	NodeGone
	// NoTopology: no node of the cluster has the driver yet.
	NoTopology
	// NoZone: the selected node is in no zone that the class allows.
	NoZone
	// HasVolume: a PersistentVolume stands for the claim.
	HasVolume
	// NotNow: the claim is not for this provisioner at present, or has no selected node.
	NotNow
)

var verdictNames = [...]string{"Ready", "Invalid", "NotYet", "NodeUnready", "NodeGone", "NoTopology", "NoZone", "HasVolume", "NotNow"}

// String returns the verdict's name.
func (v Verdict) String() string { return verdictNames[v] }

// VolumeChecked is the result of CheckVolume.
type VolumeChecked struct {
	Err error
	// Wanting says that the claim is there, and that neither this PersistentVolume nor another one is its.
	Wanting bool
}

// NodeChecked is the result of CheckNode.
type NodeChecked struct{ Gone bool }

// Protected is the result of Protect.
type Protected struct {
	Err      error
	WaitsFor any // as in Resolved
}

// Written is the result of WriteJournal.
type Written struct {
	Err      error
	WaitsFor any // as in Resolved
	Passing  bool
}

// SecretsRead is the result of ReadSecrets.
type SecretsRead struct {
	Secrets  map[string]string
	Err      error
	WaitsFor any // as in Resolved
}

// Answer is the result of CallDriver.
type Answer struct {
	Response *csi.CreateVolumeResponse
	Err      error
	Sent     time.Time
	// NotAsked says that the call was not sent.
	NotAsked bool
}

// VolumeSaved is the result of SaveVolume.
type VolumeSaved struct {
	Volume *v1.PersistentVolume
	Err    error
	// Never says that the API server will not take the PersistentVolume however often it is asked.
	Never bool
}

// ClaimChecked is the result of CheckClaim.
type ClaimChecked struct{ Gone bool }

// VolumeDeleted is the result of DeleteUnowned.
type VolumeDeleted struct {
	ID  string
	Err error
	// Owner is a PersistentVolume that stands for the volume, which was therefore left alone.
	Owner string
}

// NodeRemoved is the result of RemoveSelectedNode.
type NodeRemoved struct{ Err error }
