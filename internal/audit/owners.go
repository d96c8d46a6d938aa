package audit

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/internal/shell"
)

// judgeOwners names the disks of PersistentVolumes and the snapshots of contents that don't have the cluster's tag ownerTag: the driver
// doesn't change them, unless it adopts what an earlier version made, and the RAM policy denies it.
func (e *comparison) judgeOwners() {
	if len(e.report.Clusters) == 0 {
		return
	}
	for _, d := range e.listing.Disks {
		volumes := e.handles[d.ID]
		at := slices.IndexFunc(volumes, func(pv *corev1.PersistentVolume) bool { return e.isOurs(*pv) })
		if at >= 0 && !slices.Contains(e.report.Clusters, d.Owner) {
			f := diskFinding(d)
			f.Kind, f.About = WithoutOwner, aboutVolume(volumes[at])+ofOther(d.Owner)
			e.add(f)
		}
	}
	for _, s := range e.listing.Snapshots {
		if e.hasContent(s) && !slices.Contains(e.report.Clusters, s.Owner) {
			e.add(Finding{Kind: WithoutOwner, ID: s.ID, GiB: s.GiB, Created: s.Created, About: "snapshot of disk " + s.Disk + ofOther(s.Owner)})
		}
	}
}

// judgeClasses names the classes for whose claims no disk is made.
func (e *comparison) judgeClasses() {
	for _, c := range e.cluster.Classes {
		e.add(Finding{Kind: IncompleteClass, ID: c.Name, About: c.Missing})
	}
}

func ofOther(owner string) string {
	if owner == "" {
		return ""
	}
	return fmt.Sprintf("; it belongs to cluster %q", owner)
}

// tagCommands returns the commands that tag what was found without an owner. What another cluster owns is not among it.
func (e *comparison) tagCommands() (commands []shell.Command) {
	if len(e.report.Clusters) == 0 || e.options.TagCommands == nil {
		return nil
	}
	lacks := func(id string) bool {
		return slices.ContainsFunc(e.report.Findings, func(f Finding) bool { return f.Kind == WithoutOwner && f.ID == id })
	}
	ids := map[string][]string{}
	for _, d := range e.listing.Disks {
		if d.Owner == "" && lacks(d.ID) {
			ids["disk"] = append(ids["disk"], d.ID)
		}
	}
	for _, s := range e.listing.Snapshots {
		if s.Owner == "" && lacks(s.ID) {
			ids["snapshot"] = append(ids["snapshot"], s.ID)
			if s.Group != "" {
				ids["snapshotgroup"] = append(ids["snapshotgroup"], s.Group)
			}
		}
	}
	for _, resource := range []string{"disk", "snapshot", "snapshotgroup"} {
		commands = append(commands, e.options.TagCommands(resource, e.report.Clusters[0], ids[resource])...)
	}
	return commands
}
