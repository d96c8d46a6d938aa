package ecssim

import (
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
)

// AddAutoSnapshot makes a snapshot of a disk as ECS does by itself where an
// automatic snapshot policy says so, and returns its ID. It is done at once.
func (s *Server) AddAutoSnapshot(diskID string) (string, error) {
	var n *snapshot
	s.look(func(now time.Time) {
		d := s.disks.byID[diskID]
		if d == nil {
			return
		}
		n = &snapshot{
			id: s.ids.resource(snapshotPrefix), name: "auto2.0_" + now.Format("20060102") + "_sp", diskID: d.id, disk: d, size: d.size, category: d.category,
			encrypted: d.encrypted, kmsKey: d.kmsKey, auto: true, status: shotAccomplished, asked: now, cutAt: now, usableAt: now, doneAt: now,
			tags: newTagSet(map[string]string{}, now),
		}
		s.snapshots.add(n)
		s.earlier.touchShot(n)
	})
	if n == nil {
		return "", config.Invalid("disk", diskID, "the ID of a disk that exists")
	}
	return n.id, nil
}

// kind is what DescribeSnapshots shows as the SnapshotType.
func (n *snapshot) kind() string {
	if n.auto {
		return "auto"
	}
	return "user"
}

// dropAutomatic deletes the automatic snapshots of a disk that is deleted; those
// that somebody asked for stay.
func (s *Server) dropAutomatic(d *disk) {
	for _, n := range slices.Clone(s.snapshots.order) {
		if n.disk == d && n.auto {
			s.earlier.touchShot(n)
			s.snapshots.remove(n)
		}
	}
}
