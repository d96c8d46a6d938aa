package ecssim

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// The states of a snapshot and of a snapshot group.
const (
	shotProgressing  = "progressing"
	shotAccomplished = "accomplished"
	shotFailed       = "failed"
)

// shotStates are the values that DescribeSnapshots takes for Status.
var shotStates = []string{shotProgressing, shotAccomplished, shotFailed, "all"}

// snapshot is one snapshot that exists.
type snapshot struct {
	seq           int // in the order of creation
	id            string
	name          string
	description   string
	diskID        string
	disk          *disk // its source, deleted or not
	size          int   // GiB of the source when it was made
	category      string
	encrypted     bool
	kmsKey        string
	retentionDays int
	resourceGroup string
	tags          tagSet
	group         *snapshotGroup // that it belongs to, or nil
	auto          bool           // made by ECS itself, by a policy

	status string
	asked  time.Time // when the request for it took effect
	// The point in time is cut at cutAt, disks can be made of it from
	// usableAt, and it is done at doneAt. The zero time is never.
	cutAt, usableAt, doneAt time.Time
}

// passed tells whether a time that may be never is over.
func passed(t, now time.Time) bool { return !t.IsZero() && !now.Before(t) }

// usable tells whether a disk can be made from the snapshot.
func (n *snapshot) usable(now time.Time) bool {
	return n.status == shotAccomplished || n.status == shotProgressing && passed(n.usableAt, now)
}

// progress is how much is done, in percent, and the time that is left.
func (n *snapshot) progress(now time.Time) (int, time.Duration) {
	if n.status != shotProgressing {
		return 100, 0
	}
	if n.doneAt.IsZero() || !now.Before(n.doneAt) {
		return 0, 0
	}
	span := n.doneAt.Sub(n.asked)
	return int(99 * now.Sub(n.asked) / span), n.doneAt.Sub(now)
}

// snapshotStore holds the snapshots and the snapshot groups that exist.
type snapshotStore struct {
	byID   map[string]*snapshot
	order  []*snapshot // the oldest first
	groups []*snapshotGroup
	made   int

	groupsMade int
}

func newSnapshotStore() snapshotStore { return snapshotStore{byID: map[string]*snapshot{}} }

func (b *snapshotStore) add(n *snapshot) {
	b.made++
	n.seq = b.made
	b.byID[n.id] = n
	b.order = append(b.order, n)
}

func (b *snapshotStore) remove(n *snapshot) {
	delete(b.byID, n.id)
	b.order = slices.DeleteFunc(b.order, func(other *snapshot) bool { return other == n })
	if n.group != nil {
		n.group.members = slices.DeleteFunc(n.group.members, func(other *snapshot) bool { return other == n })
	}
}

// group returns a snapshot group, nil if it does not exist.
func (b *snapshotStore) group(id string) *snapshotGroup {
	for _, g := range b.groups {
		if g.id == id {
			return g
		}
	}
	return nil
}

// newestFirst yields the snapshots of some IDs, or all, the last made first.
func (b *snapshotStore) newestFirst(ids []string, all bool) iter.Seq[*snapshot] {
	if all {
		return func(yield func(*snapshot) bool) {
			for _, n := range slices.Backward(b.order) {
				if !yield(n) {
					return
				}
			}
		}
	}
	found := map[string]*snapshot{}
	for _, id := range ids {
		if n := b.byID[id]; n != nil {
			found[id] = n
		}
	}
	return slices.Values(slices.SortedFunc(maps.Values(found), func(a, b *snapshot) int { return b.seq - a.seq }))
}

// findSnapshot returns a snapshot that must exist.
func (s *Server) findSnapshot(id string) (*snapshot, *wire.Refusal) {
	n := s.snapshots.byID[id]
	if n == nil {
		return nil, wire.Refuse(404, "InvalidSnapshotId.NotFound", "The specified SnapshotId %q does not exist.", id)
	}
	return n, nil
}

// madeFrom counts the disks that were made from a snapshot and exist.
func (s *Server) madeFrom(n *snapshot) int {
	count := 0
	for _, d := range s.disks.order {
		if d.sourceID() == n.id {
			count++
		}
	}
	return count
}

// shotsOf returns how many snapshots of a disk are progressing, and how many
// it has.
func (s *Server) shotsOf(d *disk) (progressing, all int) {
	for _, n := range s.snapshots.order {
		if n.disk != d {
			continue
		}
		all++
		if n.status == shotProgressing {
			progressing++
		}
	}
	return progressing, all
}

// checkSnapshots refuses what can't be done to a disk while a snapshot of it
// is progressing.
func (s *Server) checkSnapshots(d *disk) *wire.Refusal {
	if progressing, _ := s.shotsOf(d); progressing > 0 {
		return wire.Refuse(403, "DiskCreatingSnapshot", "A snapshot of disk %s is being created.", d.id)
	}
	return nil
}

// checkShot refuses a snapshot of a disk that none can be made of now.
func (s *Server) checkShot(d *disk) *wire.Refusal {
	for _, a := range d.attachments {
		if no := a.instance.checkState(400); no != nil {
			return no
		}
	}
	progressing, all := s.shotsOf(d)
	switch {
	case categories[d.category].ephemeral:
		return wire.Refuse(400, "DiskCategory.OperationNotSupported", "The disk category %s does not support this operation.", d.category)
	case !s.config.Doubts.takesState("CreateSnapshot", d):
		return wrongState(d)
	case !d.everAttached && !slices.Contains(s.config.Doubts.SnapshotUnattached, d.category):
		return wire.Refuse(403, "IncorrectDiskStatus.NeverAttached", "The disk %s has never been attached: there is nothing in it.", d.id)
	case d.task != nil:
		return wrongState(d)
	case all >= s.config.Limits.SnapshotsPerDisk:
		return wire.Refuse(403, "QuotaExceed.Snapshot", "The number of snapshots of disk %s exceeds the quota of %d.", d.id, s.config.Limits.SnapshotsPerDisk)
	case progressing > 0 && !categories[d.category].instant:
		return wire.Refuse(403, "IncorrectDiskStatus.CreatingSnapshot", "A snapshot of disk %s is being created.", d.id)
	case progressing >= s.config.Limits.SnapshotsAtOnce:
		return wire.Refuse(403, "IncorrectDiskStatus.TooManyCreatingSnapshots", "%d snapshots of disk %s are being created.", progressing, d.id)
	}
	return nil
}

// shoot adds a snapshot of a disk and plans the end of it.
func (s *Server) shoot(x *exchange, d *disk, n *snapshot) {
	l, reply := s.timing.Latency, s.repliesAt(x)
	n.id, n.diskID, n.disk, n.size, n.category = s.ids.resource(snapshotPrefix), d.id, d, d.size, d.category
	n.encrypted, n.kmsKey, n.status, n.asked = d.encrypted, d.kmsKey, shotProgressing, x.now
	cut := s.timing.Vary(l.SnapshotCut)
	done := reply.Add(max(s.timing.Vary(l.SnapshotDone), cut))
	if x.fault.Do != faults.Stuck && x.fault.Do != faults.Fails {
		n.cutAt, n.doneAt = reply.Add(cut), done
		if categories[d.category].instant {
			n.usableAt = reply.Add(max(s.timing.Vary(l.SnapshotUsable), cut))
		}
	}
	s.snapshots.add(n)
	s.earlier.touchShot(n)
	end := func(status string, at time.Time) {
		n.status, n.doneAt = status, at
		s.earlier.touchShot(n)
	}
	s.plan(x, transition{
		at: done, disk: d.id,
		valid: func() bool { return s.snapshots.byID[n.id] == n && n.status == shotProgressing },
		done: func(t transition) {
			end(shotAccomplished, t.at)
			if n.cutAt.IsZero() {
				n.cutAt = t.at
			}
		},
		fail: func(t transition) { end(shotFailed, t.at) },
	})
}

func percentText(n int) string { return fmt.Sprintf("%d%%", n) }

// renderSnapshot shows a snapshot as DescribeSnapshots does.
func (s *Server) renderSnapshot(n *snapshot, now time.Time) wire.Object {
	percent, left := n.progress(now)
	cut := ""
	if passed(n.cutAt, now) {
		cut = wire.Stamp(n.cutAt)
	}
	changed := cut
	if n.status != shotProgressing {
		changed = wire.Stamp(n.doneAt)
	}
	return wire.Object{
		"SnapshotId": n.id, "SnapshotName": n.name, "Description": n.description, "Status": n.status, "Progress": percentText(percent),
		"RemainTime": int(math.Ceil(left.Seconds())), "Available": n.usable(now), "CreationTime": cut, "LastModifiedTime": changed,
		"SourceDiskId": n.diskID, "SourceDiskSize": fmt.Sprint(n.size), "SourceDiskType": n.disk.kind(), "SourceStorageType": "disk",
		"Encrypted": n.encrypted, "KMSKeyId": n.kmsKey, "Usage": s.usage(n), "SnapshotType": n.kind(), "SnapshotLinkId": n.linkID(),
		"SnapshotSN": n.id[len(snapshotPrefix):], "RetentionDays": n.retentionDays, "Category": "standard", "InstantAccess": categories[n.category].instant,
		"InstantAccessRetentionDays": 0, "RegionId": s.config.Region, "SourceRegionId": "", "SourceSnapshotId": "",
		"ResourceGroupId": n.resourceGroup, "ProductCode": "", "Tags": wire.Wrapped("Tag", s.tags(n.tags)),
	}
}

// SnapshotState is a snapshot as it is.
type SnapshotState struct {
	ID        string            `json:"id"`
	Disk      string            `json:"disk"`
	Size      int               `json:"size"` // GiB
	Name      string            `json:"name,omitempty"`
	Group     string            `json:"group,omitempty"`
	Status    string            `json:"status"` // progressing, accomplished or failed
	Available bool              `json:"available"`
	Asked     time.Time         `json:"asked"` // when the request for it took effect
	Tags      map[string]string `json:"tags,omitempty"`
}

// Snapshots returns the snapshots that exist, in the order of their creation.
func (s *Server) Snapshots() []SnapshotState { return seen(s, s.snapshotStates) }

func (s *Server) snapshotStates(now time.Time) []SnapshotState {
	return wire.Each(s.snapshots.order, func(n *snapshot) SnapshotState { return n.export(now) })
}

func (n *snapshot) export(now time.Time) SnapshotState {
	st := SnapshotState{
		ID: n.id, Disk: n.diskID, Size: n.size, Name: n.name, Status: n.status, Available: n.usable(now), Asked: n.asked,
		Tags: maps.Clone(n.tags.current),
	}
	if n.group != nil {
		st.Group = n.group.id
	}
	return st
}
