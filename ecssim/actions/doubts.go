package actions

import (
	"cmp"
	"slices"

	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// Doubts are the behaviours that sources disagree on, or that not every
// client has seen. The zero value is what the newest or the stricter source
// says.
type Doubts struct {
	// InUseCode is what AttachDisk answers for a disk that is In_use: one of
	// InUseCodes, or empty for the first.
	InUseCode string `json:"inUseCode"`
	// DetachedCode is what DetachDisk answers for a disk that is attached to
	// nothing: one of DetachedCodes, or empty for the first.
	DetachedCode string `json:"detachedCode"`
	// ConflictStatus is the HTTP status of InvalidOperation.Conflict, 403 or
	// 409; default 403. Clients of disks have seen the first, tables of other
	// actions have the second.
	ConflictStatus int `json:"conflictStatus"`
	// RefuseAttachWhileDetaching makes AttachDisk refuse, with
	// IncorrectDiskStatus, a disk that is Detaching from that very instance.
	// ECS has been seen to accept it; the disk is detached all the same.
	RefuseAttachWhileDetaching bool `json:"refuseAttachWhileDetaching"`
	// HideDetaching leaves the instance out of a disk's Attachments,
	// InstanceId and Device as soon as the disk is Detaching.
	HideDetaching bool `json:"hideDetaching"`
	// ListAttaching names the instance in a disk's Attachments while it is
	// still Attaching.
	ListAttaching bool `json:"listAttaching"`
	// RefuseLessThanSnapshot makes CreateDisk refuse, with
	// InvalidDiskSize.TooSmall, a Size below that of its snapshot. By default
	// the disk has the size of the snapshot.
	RefuseLessThanSnapshot bool `json:"refuseLessThanSnapshot"`
	// SnapshotUnattached are the categories of which CreateSnapshot accepts a
	// disk that was never attached; nil is cloud_essd and cloud_auto. The
	// documentation says that none is accepted, and clients have had snapshots
	// of such disks of the ESSD series.
	SnapshotUnattached []string `json:"snapshotUnattached"`
	// RefuseCreating are the actions of CreatingActions that refuse a disk
	// that is Creating, as the documentation says. By default none does:
	// clients that don't wait have not been refused.
	RefuseCreating []string `json:"refuseCreating"`
	// TagsAs are the names that tags have in the replies of Describe actions:
	// one of TagForms, or empty for the first. ListTagResources always has
	// TagKey and TagValue.
	TagsAs string `json:"tagsAs"`
	// ForgiveUnknownSnapshot makes DeleteSnapshot of a snapshot that does not
	// exist a success; by default it is InvalidSnapshotId.NotFound. ECS's
	// documentation says both.
	ForgiveUnknownSnapshot bool `json:"forgiveUnknownSnapshot"`
	// NoTaskForLevel makes a ModifyDiskSpec that leaves the category as it is
	// take effect at once and return no TaskId, as the documentation says.
	NoTaskForLevel bool `json:"noTaskForLevel"`
	// RefuseSharedOnlineResize makes ResizeDisk refuse Type=online for disks
	// with MultiAttach, as its table of errors says and its newer text does not.
	RefuseSharedOnlineResize bool `json:"refuseSharedOnlineResize"`
	// ResizeLimitCode is what ResizeDisk answers for a size that no disk of
	// the category has: one of ResizeLimitCodes, or empty for the first.
	// Clients have seen the first, the page's table has the other.
	ResizeLimitCode string `json:"resizeLimitCode"`
	// UnknownKeyIs400 gives InvalidAccessKeyId.NotFound the status 400 of the
	// table of common errors, where clients see 404.
	UnknownKeyIs400 bool `json:"unknownKeyIs400"`
}

// InUseCodes are the codes that AttachDisk may answer with for a disk that is
// In_use.
var InUseCodes = []string{"IncorrectDiskStatus", "InvalidDisk.InUse"}

// DetachedCodes are the codes that DetachDisk may answer with for a disk that
// is attached to nothing.
var DetachedCodes = []string{"InvalidDisk.AlreadyDetached", "DependencyViolation", "IncorrectDiskStatus"}

// ResizeLimitCodes are the codes that ResizeDisk may answer with for a size
// that no disk of the category has.
var ResizeLimitCodes = []string{"InvalidParameter", "InvalidDiskSize.TooLarge"}

// CreatingActions are the actions that may refuse a disk that is Creating.
// AttachDisk, DetachDisk, DeleteDisk and ModifyDiskAttribute always do.
var CreatingActions = []string{"CreateSnapshot", "ModifyDiskSpec", "ResizeDisk"}

// TagForms are the names that a tag may have in replies: TagKey and TagValue,
// Key and Value, or all four.
var TagForms = []string{"both", "TagKey", "Key"}

// DefaultUnattached is SnapshotUnattached by default.
var DefaultUnattached = []string{"cloud_auto", "cloud_essd"}

// takesState tells whether an action that changes a disk in place can do so in
// the disk's state.
func (d Doubts) takesState(action string, disk *state.Disk) bool {
	switch disk.State() {
	case state.DiskAvailable, state.DiskInUse:
		return true
	case state.DiskCreating:
		return slices.Contains(CreatingActions, action) && !slices.Contains(d.RefuseCreating, action)
	}
	return false
}

// conflict is the refusal of an attach or a detach while the instance is busy
// with another.
func (d Doubts) conflict(i *state.Instance) *wire.Refusal {
	return wire.Refuse(cmp.Or(d.ConflictStatus, 403), "InvalidOperation.Conflict", "The operation conflicts with another one on instance %s.", i.ID)
}

// inUse is the refusal to attach a disk that is In_use.
func inUse(req *Request, d *state.Disk) *wire.Refusal {
	if req.Rules.Doubts.InUseCode == "InvalidDisk.InUse" {
		return wire.Refuse(404, "InvalidDisk.InUse", "The specified disk %s is in use.", d.ID)
	}
	return wrongState(d)
}

// alreadyDetached is the refusal to detach a disk that is attached to nothing.
func alreadyDetached(req *Request, d *state.Disk, i *state.Instance) *wire.Refusal {
	switch req.Rules.Doubts.DetachedCode {
	case "DependencyViolation":
		return notAttached(d, i)
	case "IncorrectDiskStatus":
		return wrongState(d)
	}
	return wire.Refuse(404, "InvalidDisk.AlreadyDetached", "The specified disk %s has been detached.", d.ID)
}

func notAttached(d *state.Disk, i *state.Instance) *wire.Refusal {
	return wire.Refuse(403, "DependencyViolation", "The specified disk %s is not attached to the specified instance %s.", d.ID, i.ID)
}

// wrongState is the refusal of a disk for the state that it is in.
func wrongState(d *state.Disk) *wire.Refusal {
	return wire.Refuse(403, "IncorrectDiskStatus", "The current status %s of disk %s does not support this operation.", d.State(), d.ID)
}
