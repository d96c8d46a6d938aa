package audit

import "slices"

// judgeSnapshots names the snapshots of the cluster that no content stands for, and the temporary copies that nobody deletes.
func (e *comparison) judgeSnapshots() {
	for _, s := range e.listing.Snapshots {
		if !slices.Contains(e.report.Clusters, s.Cluster) || e.hasContent(s) {
			continue
		}
		f := Finding{ID: s.ID, GiB: s.GiB, Created: s.Created, About: "of disk " + s.Disk}
		switch {
		case s.Copy != "":
			if e.isCopyNeeded(s) {
				continue
			}
			f.Kind, f.About = LeftoverCopy, f.About+", for volume "+s.Copy
		case s.Archive:
			f.Kind = Archive
		case s.Name == "" || e.isSnapshotUnderWay(s):
			continue
		default:
			f.Kind, f.About = SnapshotWithoutContent, f.About+", made as "+s.Name
		}
		e.add(f)
	}
}

// hasContent says whether a VolumeSnapshotContent has the snapshot, or a VolumeGroupSnapshotContent its group.
func (e *comparison) hasContent(s Snapshot) bool {
	return e.contents[s.ID] || s.Group != "" && e.contents[s.Group]
}

// isSnapshotUnderWay says whether a content waits for the snapshot: csi-snapshotter names it after the VolumeSnapshot, and writes its
// ID into the content afterwards.
func (e *comparison) isSnapshotUnderWay(s Snapshot) bool {
	return slices.ContainsFunc(e.cluster.Contents, func(c Content) bool {
		return c.Handle == "" && (isNamedAfter(s.Name, c.SnapshotUID) || c.Group && s.Group != "")
	})
}

// isCopyNeeded says whether disk-driver may still need a temporary copy, or is about to delete it.
func (e *comparison) isCopyNeeded(s Snapshot) bool {
	if s.Created.IsZero() || e.cluster.At.Sub(s.Created) < copyLife || e.isUnderWay(s.Copy) {
		return true
	}
	return slices.ContainsFunc(e.listing.Disks, func(d Disk) bool { return d.Name == s.Copy && d.Creating })
}
