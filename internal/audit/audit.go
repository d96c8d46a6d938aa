// Package audit compares what ECS has with what a cluster says: it names the disks, snapshots and temporary copies without an owner, the
// PersistentVolumes whose disk is gone, and the attachments that nothing in the cluster needs. It changes nothing and does no I/O of its own.
//
// Nothing is named that a cluster at work is just making or deleting. The cluster names the owner of a disk before ECS makes it (in
// the journal of disk-provisioner, then in the PersistentVolume) and until ECS has deleted it; a VolumeSnapshotContent and a
// VolumeAttachment frame a snapshot and an attachment alike. So Run reads ECS first and the cluster after it: of what ECS has shown
// by then the owner is found, unless it was deleted with its disk in between. Therefore what has no owner is read again in ECS,
// later by more than reads of ECS may lag, and is named only if it is still there and still without an owner.
package audit

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/topodisk/topodisk/internal/shell"
)

// Listing is what ECS shows of one region to one account.
type Listing struct {
	Disks     []Disk
	Snapshots []Snapshot
	// Unread says what could not be read of ECS: a Kind of findings that is in it is not judged.
	Unread []Unread
}

// Disk is a disk as ECS shows it.
type Disk struct {
	ID       string
	Cluster  string // the ID of the cluster that made it, by its tag; empty if it has none
	Owner    string // the ID of the cluster whose driver may change it, by its tag topodisk.io/cluster; empty if it has none
	Name     string // the CSI volume name, by its tag; empty if it has none
	Type     string // the category, such as cloud_essd
	Level    string // the performance level; empty if it has none
	Zone     string // empty for a regional disk
	GiB      int64
	Created  time.Time // zero if it is not known
	Creating bool      // ECS is still making it
	// Instances are the IDs of those that have it, and Detached is when one let it go last, in ECS's words.
	Instances []string
	Detached  string
}

// Snapshot is a snapshot as ECS shows it.
type Snapshot struct {
	ID      string
	Cluster string // as of a Disk
	Owner   string // as of a Disk
	Name    string // the CSI snapshot name, or that of the group; empty if it has none
	Disk    string // that it was made of
	Group   string // empty if it was made alone
	Copy    string // of a temporary copy: the CSI name of the volume that is made from it
	Archive bool   // it was kept when its disk was deleted, as the disk's class asked for
	GiB     int64  // of the disk
	Created time.Time
}

// Cluster is what the API server shows. What could not be read is in Unread, and what depends on it is not judged.
type Cluster struct {
	At     time.Time // when it was read: temporary copies and released PersistentVolumes are judged by their age
	Driver string    // the CSI driver's name
	// Requests are those of disk-provisioner's journal, and Claims the claims without a volume: what they ask for is being made. Both are
	// read before Volumes.
	Requests []Request
	Claims   []corev1.PersistentVolumeClaim
	// Volumes are all PersistentVolumes, also those of other drivers.
	Volumes     []corev1.PersistentVolume
	Attachments []storagev1.VolumeAttachment
	CSINodes    []storagev1.CSINode
	Nodes       []corev1.Node
	Pods        []corev1.Pod // those with a node and a claim
	Contents    []Content
	Classes     []Class // those of the driver that it makes no disk for
	Unread      []Unread
}

// Class is a StorageClass that names a Secret for some calls alone.
type Class struct {
	Name    string
	Missing string // why no disk is made for its claims
}

// Request is what is needed of a request in disk-provisioner's journal.
type Request struct {
	Name     string // the CSI volume name; empty if this version can't read it
	Claim    string // namespace/name
	ClaimUID string
}

// Content is what is needed of a VolumeSnapshotContent, or of a VolumeGroupSnapshotContent.
type Content struct {
	Name        string
	Handle      string // the ID of the snapshot or group; empty until there is one
	SnapshotUID string // of the VolumeSnapshot or VolumeGroupSnapshot
	Group       bool
}

// Unread is something that could not be read, and what is therefore not judged.
type Unread struct {
	What   string `json:"what"`
	Reason string `json:"reason"`
	Kinds  []Kind `json:"notChecked,omitempty"`
}

// Kind says what a finding is.
type Kind string

// The kinds of findings. KeptVolume, Archive and UnderWay need no action.
const (
	DiskWithoutVolume      Kind = "DiskWithoutVolume"
	VolumeWithoutDisk      Kind = "VolumeWithoutDisk"
	SnapshotWithoutContent Kind = "SnapshotWithoutContent"
	LeftoverCopy           Kind = "LeftoverCopy"
	UnwantedAttachment     Kind = "UnwantedAttachment"
	WithoutOwner           Kind = "WithoutOwner"
	IncompleteClass        Kind = "IncompleteClass"
	KeptVolume             Kind = "KeptVolume"
	Archive                Kind = "Archive"
	UnderWay               Kind = "UnderWay"
)

// Kinds are all kinds, in the order of a report.
func Kinds() []Kind {
	return []Kind{DiskWithoutVolume, VolumeWithoutDisk, SnapshotWithoutContent, LeftoverCopy, UnwantedAttachment, WithoutOwner, IncompleteClass,
		KeptVolume, Archive, UnderWay}
}

// ownerTag says which cluster's driver may change a disk or snapshot.
const ownerTag = "topodisk.io/cluster"

var texts = map[Kind]string{
	DiskWithoutVolume:      "disk without PersistentVolume",
	VolumeWithoutDisk:      "PersistentVolume without disk",
	SnapshotWithoutContent: "snapshot without VolumeSnapshotContent",
	LeftoverCopy:           "leftover temporary copy",
	UnwantedAttachment:     "unwanted attachment",
	WithoutOwner:           "no tag " + ownerTag,
	IncompleteClass:        "Secret for some calls alone",
	KeptVolume:             "PersistentVolume without claim",
	Archive:                "archive",
	UnderWay:               "under way",
}

// Text returns the kind in words.
func (k Kind) Text() string { return texts[k] }

// NeedsAction says whether somebody should do something about a finding of the kind.
func (k Kind) NeedsAction() bool { return k != KeptVolume && k != Archive && k != UnderWay }

// Finding is something without its counterpart.
type Finding struct {
	Kind Kind `json:"kind"`
	// ID is that of the disk or snapshot; of UnderWay the CSI volume name, of IncompleteClass the StorageClass's.
	ID      string    `json:"id"`
	Type    string    `json:"type,omitempty"`
	Level   string    `json:"performanceLevel,omitempty"`
	Zone    string    `json:"zone,omitempty"`
	GiB     int64     `json:"sizeGiB,omitempty"` // of a snapshot: of its disk
	Created time.Time `json:"created,omitzero"`
	// Instances have the disk.
	Instances []string `json:"instances,omitempty"`
	About     string   `json:"about"`
	// CostPerMonth is in the report's currency; nil if no price is known. A snapshot costs at most that: ECS bills the blocks that it holds.
	CostPerMonth *float64 `json:"costPerMonth,omitempty"`

	since string // what distinguishes an attachment from an earlier one of the same disk and instance
}

// Other is what ECS has of another cluster.
type Other struct {
	Cluster      string   `json:"cluster"`
	Disks        int      `json:"disks"`
	Snapshots    int      `json:"snapshots"`
	GiB          int64    `json:"sizeGiB"` // of the disks
	CostPerMonth *float64 `json:"costPerMonth,omitempty"`

	disks []Disk
}

// Report is the result of an audit.
type Report struct {
	Clusters  []string `json:"clusters"`  // the IDs of this cluster
	Disks     int      `json:"disks"`     // with this cluster's ID and a volume name, or with a PersistentVolume
	Snapshots int      `json:"snapshots"` // with this cluster's ID
	Volumes   int      `json:"volumes"`   // PersistentVolumes of the driver
	// Unnamed are disks with this cluster's ID and without a volume name or a PersistentVolume, and disks of no cluster: neither is judged.
	Unnamed  int       `json:"unnamedDisks"`
	Findings []Finding `json:"findings"`
	// TagCommands tag what has no owner for this cluster: by them an operator makes it the cluster's.
	TagCommands []shell.Command `json:"tagCommands,omitempty"`
	Others      []Other         `json:"otherClusters,omitempty"`
	Unread      []Unread        `json:"unread,omitempty"`
	// Confirmed says that what needs an action was found twice, so that nothing is named that was being made or deleted.
	Confirmed bool   `json:"confirmed"`
	Currency  string `json:"currency,omitempty"`
}

// Clean says whether no finding needs an action.
func (r *Report) Clean() bool { return r.Count() == 0 }

// Complete says whether every kind of findings that needs an action could be told.
func (r *Report) Complete() bool {
	return !slices.ContainsFunc(Kinds(), func(k Kind) bool { return k.NeedsAction() && !r.Checked(k) })
}

// Count returns how many findings are of these kinds; without kinds, how many need an action.
func (r *Report) Count(kinds ...Kind) (n int) {
	for _, f := range r.Findings {
		if len(kinds) == 0 && f.Kind.NeedsAction() || slices.Contains(kinds, f.Kind) {
			n++
		}
	}
	return n
}

// Checked says whether findings of the kind could be told.
func (r *Report) Checked(kind Kind) bool { return !hides(r.Unread, kind) }

// Price sets what disks and snapshots cost a month, by a function that says what a disk of a type ("snapshot" for a snapshot), level,
// zone and size does; false: not known.
func (r *Report) Price(currency string, of func(kind, level, zone string, gib int64) (perMonth float64, known bool)) {
	r.Currency = currency
	for i := range r.Findings {
		f := &r.Findings[i]
		kind := f.Type
		switch {
		case f.Kind.isSnapshot():
			kind = "snapshot"
		case f.Kind != DiskWithoutVolume && f.Kind != KeptVolume:
			continue
		}
		if cost, known := of(kind, f.Level, f.Zone, f.GiB); known {
			f.CostPerMonth = &cost
		}
	}
	for i := range r.Others {
		o := &r.Others[i]
		sum, all := 0.0, true
		for _, d := range o.disks {
			cost, known := of(d.Type, d.Level, d.Zone, d.GiB)
			sum, all = sum+cost, all && known
		}
		if all && len(o.disks) > 0 {
			o.CostPerMonth = &sum
		}
	}
}
