// Package disk holds the nouns of topodisk: what an ECS disk is, what may be
// asked of one, and what can go wrong. It decides in pure functions and does
// no I/O, so that every other package may point at it.
package disk

import (
	"errors"
	"slices"
	"strings"
	"time"
)

// ID is the ID of an ECS disk, such as d-bp1a2b3c4d5e6f7g8h9i. It is the CSI
// volume handle and the name of the PersistentVolume.
type ID string

// InstanceID is the ID of an ECS instance, such as i-bp1a2b3c. It is the CSI
// node ID.
type InstanceID string

// Zone is an ECS zone, such as cn-hangzhou-h. The empty zone stands for a
// regional disk, which has none.
type Zone string

// GiB is a size in gibibytes, the unit of the ECS API.
type GiB int64

// BytesPerGiB is the number of bytes in one GiB.
const BytesPerGiB = 1 << 30

// Bytes returns the size in bytes, the unit of CSI.
func (g GiB) Bytes() int64 { return int64(g) * BytesPerGiB }

// State is a disk's Status as DescribeDisks shows it.
type State string

// The states that DescribeDisks returns. A deleted disk has none: it is absent.
const (
	Creating  State = "Creating"
	Available State = "Available"
	Attaching State = "Attaching"
	Attached  State = "In_use"
	Detaching State = "Detaching"
	ReIniting State = "ReIniting"
	Modifying State = "Modifying"
)

// Tags are the tags of a disk, by key.
type Tags map[string]string

// Disk is one ECS disk as a read showed it.
type Disk struct {
	ID               ID
	Name             string // CSI volume name, from the tag VolumeNameTag
	System           bool   // it is the system disk of an instance, and no volume
	Zone             Zone   // empty for a regional disk
	Size             GiB
	Category         Category
	PerformanceLevel Level // cloud_essd only
	State            State
	Serial           string // as the guest sees it; empty for disks older than 2020-06
	Encrypted        bool
	KMSKeyID         string
	MultiAttach      bool
	ProvisionedIOPS  int64
	Bursting         bool
	ResourceGroupID  string
	StorageClusterID string
	SnapshotID       string
	Attachments      []Attachment
	Locks            []string // why ECS has locked it, in ECS's words
	NeverAttached    bool     // ECS shows no time at which it was attached or detached
	Released         string   // when an instance let it go last, in ECS's words; empty if none did
	Created          time.Time
	Tags             Tags
}

// On says whether an instance holds the disk, or is about to let it go.
func (d Disk) On(instance InstanceID) bool {
	return slices.ContainsFunc(d.Attachments, func(a Attachment) bool { return a.Instance == instance })
}

// AttachedSince returns when the disk was attached to an instance, in ECS's words; empty if ECS doesn't say.
func (d Disk) AttachedSince(instance InstanceID) string {
	for _, a := range d.Attachments {
		if a.Instance == instance {
			return a.Since
		}
	}
	return ""
}

// FirstAttachment says whether a read proves that the attachment to an instance is the first that the disk ever had, and that the driver
// made it: the disk was made empty, its tag HistoryTag turned from HistoryNew to HistoryInUse before, and no instance has let go of it.
// Turned is that the same publish turned the tag and took the disk from nobody; or that the process did before, no publish was OK since, and
// ECS has accepted the attach of this one, which it does of a disk that nobody has: of a regional disk nothing less is proof, for ECS need
// not show when it was taken from an instance by force. Of a disk for several instances there is none.
func (d Disk) FirstAttachment(instance InstanceID, turned bool) bool {
	recorded := strings.HasPrefix(d.Tags[HistoryTag], string(HistoryInUse)) && d.SnapshotID == "" && (turned || !d.Category.Regional())
	alone := !d.MultiAttach && len(d.Attachments) == 1 && d.AttachedSince(instance) != ""
	return recorded && alone && d.Released == ""
}

// Unwritten says whether nobody can have written to the disk, for it was never
// attached. Of one for several instances a read doesn't tell.
func (d Disk) Unwritten() bool { return d.NeverAttached && !d.MultiAttach }

// ErrUsed is in the chain of an error if a disk is kept because it is not proven that it was never attached.
var ErrUsed = errors.New("the disk was attached before, or may have been")

// NeverUsed says whether a read proves that the disk was never attached: ECS shows no attachment, past or present, and the driver has not
// marked it as in use. Of a disk for several instances, and of a regional one, ECS need not show past ones, so only the mark of one that
// was made empty is proof.
func (d Disk) NeverUsed() bool {
	history, marked := d.Tags[HistoryTag]
	return d.NeverAttached && (history == string(HistoryNew) || !marked && !d.MultiAttach && !d.Category.Regional())
}

// Holders returns the instances that hold the disk, or are about to let it go.
func (d Disk) Holders() []InstanceID {
	var all []InstanceID
	for _, a := range d.Attachments {
		all = append(all, a.Instance)
	}
	return all
}

// InstanceNames names the instances that hold a disk.
func InstanceNames(holders []InstanceID) string {
	if len(holders) == 0 {
		return "an instance that ECS doesn't name"
	}
	return List(holders)
}

// Attachment is one instance that holds a disk, or is about to let it go.
type Attachment struct {
	Instance InstanceID
	Since    string // when the disk was attached, in ECS's words
}
