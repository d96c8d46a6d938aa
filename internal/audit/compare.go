package audit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/internal/shell"
	"github.com/topodisk/topodisk/topology"
)

// Options say how to compare.
type Options struct {
	// Clusters are the IDs of this cluster, of which the disks' tags have one. None: the one that all disks of PersistentVolumes have, and
	// DefaultCluster if none of them has any.
	Clusters       []string
	DefaultCluster string
	// TagCommands returns the commands that tag resources (disk, snapshot or snapshotgroup) for a cluster; nil: none is told.
	TagCommands func(resource, cluster string, ids []string) []shell.Command
	// Region is the ECS region that was read; a PersistentVolume of another one is not judged. Empty: all are of it.
	Region string
}

const (
	// newDiskGrace is for how long a disk without an owner counts as under way. disk-provisioner's journal names the owner of a disk from its
	// first moment on, but other provisioners know of a disk whose claim was deleted meanwhile in their memory alone.
	newDiskGrace = 10 * time.Minute
	// copyLife is after how long a temporary copy is nobody's: disk-driver deletes it an hour after it was made at the latest, and looks
	// every five minutes.
	copyLife = 2 * time.Hour
	// deletionTime is for how long a released PersistentVolume may be without its disk: the disk is deleted first.
	deletionTime = 10 * time.Minute
)

// ErrNoDisks says that ECS shows no disk although there are PersistentVolumes.
var ErrNoDisks = errors.New("ECS lists no disk, although there are PersistentVolumes: " +
	"the credentials may not be allowed to list disks, or are of another account or region")

// Compare returns what has no counterpart, sorted by kind and ID. Of a cluster at work it may name what is just being made or deleted:
// Run compares twice. The error says that nothing can be told.
func Compare(l Listing, c Cluster, o Options) (*Report, error) {
	e := newComparison(l, c, o)
	unread := slices.Concat(l.Unread, c.Unread)
	if len(l.Snapshots) == 0 && !hides(unread, SnapshotWithoutContent) && len(e.contents) > 0 {
		unread = append(unread, Unread{What: "snapshots of ECS", Reason: "ECS shows none, although there are VolumeSnapshotContents",
			Kinds: []Kind{SnapshotWithoutContent, LeftoverCopy, Archive}})
	}
	blind := hides(unread, DiskWithoutVolume)
	if len(l.Disks) == 0 && !blind && slices.ContainsFunc(c.Volumes, e.isOurs) {
		return nil, ErrNoDisks
	}
	clusters, err := e.clusters()
	if err != nil && !blind {
		return nil, err
	}
	e.report = &Report{Clusters: clusters, Findings: []Finding{}, Unread: unread}
	for _, judge := range []func(){e.judgeRequests, e.judgeDisks, e.judgeVolumes, e.judgeAttachments, e.judgeSnapshots, e.judgeOwners, e.judgeClasses} {
		judge()
	}
	e.report.Findings = slices.DeleteFunc(e.report.Findings, func(f Finding) bool { return hides(e.report.Unread, f.Kind) })
	slices.SortFunc(e.report.Findings, func(x, y Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(Kinds(), x.Kind), slices.Index(Kinds(), y.Kind)), cmp.Compare(x.ID, y.ID), cmp.Compare(x.since, y.since))
	})
	e.report.TagCommands = e.tagCommands()
	slices.SortFunc(e.report.Others, func(x, y Other) int { return cmp.Compare(x.Cluster, y.Cluster) })
	return e.report, nil
}

// hides says whether what was not read leaves findings of the kind untold.
func hides(unread []Unread, kind Kind) bool {
	return slices.ContainsFunc(unread, func(u Unread) bool { return slices.Contains(u.Kinds, kind) })
}

const (
	// volumeNameAnnotation has the CSI volume name on a PersistentVolume of disk-provisioner.
	volumeNameAnnotation = "topodisk.io/volume-name"
	// secretAnnotation names the Secret with which a PersistentVolume's disk is deleted.
	secretAnnotation = "volume.kubernetes.io/provisioner-deletion-secret-name"
)

// comparison is what Compare works on.
type comparison struct {
	listing Listing
	cluster Cluster
	options Options
	report  *Report

	handles  map[string][]*corev1.PersistentVolume // by volume handle
	disks    map[string]*Disk                      // by ID
	open     []Request                             // whose PersistentVolume is not saved
	waiting  []string                              // the UIDs of claims without a volume
	contents map[string]bool                       // the handles of contents
	nodes    *nodes
}

func newComparison(l Listing, c Cluster, o Options) *comparison {
	e := &comparison{listing: l, cluster: c, options: o, handles: handlesOf(c.Volumes), disks: map[string]*Disk{}, contents: map[string]bool{}}
	for i := range l.Disks {
		e.disks[l.Disks[i].ID] = &l.Disks[i]
	}
	saved := map[string]bool{}
	for i := range c.Volumes {
		saved[c.Volumes[i].Annotations[volumeNameAnnotation]] = true
	}
	for _, r := range c.Requests {
		if r.Name == "" || !saved[r.Name] {
			e.open = append(e.open, r) // another has ended, and the next write deletes it from the journal
		}
	}
	for i := range c.Claims {
		if c.Claims[i].Spec.VolumeName == "" {
			e.waiting = append(e.waiting, string(c.Claims[i].UID))
		}
	}
	for _, content := range c.Contents {
		if content.Handle != "" {
			e.contents[content.Handle] = true
		}
	}
	e.nodes = newNodes(c)
	return e
}

// handlesOf returns the PersistentVolumes of any driver by their volume handle. The FlexVolume of Alibaba Cloud names its disk in an
// option.
func handlesOf(volumes []corev1.PersistentVolume) map[string][]*corev1.PersistentVolume {
	handles := map[string][]*corev1.PersistentVolume{}
	for i := range volumes {
		pv := &volumes[i]
		switch {
		case pv.Spec.CSI != nil:
			handles[pv.Spec.CSI.VolumeHandle] = append(handles[pv.Spec.CSI.VolumeHandle], pv)
		case pv.Spec.FlexVolume != nil:
			for key, value := range pv.Spec.FlexVolume.Options {
				if strings.EqualFold(key, "volumeId") {
					handles[value] = append(handles[value], pv)
				}
			}
		}
	}
	return handles
}

// isOurs says whether a PersistentVolume is of the driver.
func (e *comparison) isOurs(pv corev1.PersistentVolume) bool {
	return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == e.cluster.Driver
}

// clusters returns the given IDs, or else that of the disks of PersistentVolumes.
func (e *comparison) clusters() ([]string, error) {
	if len(e.options.Clusters) > 0 {
		return e.options.Clusters, nil
	}
	var seen []string
	var here, elsewhere bool
	for _, d := range e.listing.Disks {
		if d.Cluster == "" || !e.isOfVolume(d) {
			continue
		}
		if !slices.Contains(seen, d.Cluster) {
			seen = append(seen, d.Cluster)
		}
		isMade, told := e.isMadeForClaim(d)
		here, elsewhere = here || isMade, elsewhere || told && !isMade
	}
	switch {
	case len(seen) == 0 && e.options.DefaultCluster != "":
		return []string{e.options.DefaultCluster}, nil
	case len(seen) == 0:
		return nil, errors.New("no disk of a PersistentVolume has a cluster ID; set --cluster-id to that of the driver")
	case len(seen) == 1 && (here || !elsewhere):
		return seen, nil
	case len(seen) == 1:
		return nil, fmt.Errorf("the PersistentVolumes' disks are of cluster %s, and none of them was made for a claim of this cluster, so that may be another one; "+
			"set --cluster-id to that of the driver", seen[0])
	}
	slices.Sort(seen)
	return nil, fmt.Errorf("the PersistentVolumes' disks are of clusters %s; set --cluster-id to that of the driver", strings.Join(seen, ", "))
}

// isOfVolume says whether a PersistentVolume of the driver stands for a disk.
func (e *comparison) isOfVolume(d Disk) bool {
	return slices.ContainsFunc(e.handles[d.ID], func(pv *corev1.PersistentVolume) bool { return e.isOurs(*pv) })
}

// isMadeForClaim says whether a disk was made for the claim that is bound to it, and so by this cluster, and whether that can be told: a
// disk that was brought here from another cluster has the name of that one's claim.
func (e *comparison) isMadeForClaim(d Disk) (is, told bool) {
	for _, pv := range e.handles[d.ID] {
		if ref := pv.Spec.ClaimRef; d.Name != "" && ref != nil && ref.UID != "" {
			is, told = is || isNamedAfter(d.Name, string(ref.UID)), true
		}
	}
	return is, told
}

func (e *comparison) add(f Finding) { e.report.Findings = append(e.report.Findings, f) }

// judgeRequests reports what the journal has under way.
func (e *comparison) judgeRequests() {
	for _, r := range e.open {
		about := "for claim " + r.Claim
		for _, d := range e.listing.Disks {
			if r.Name != "" && d.Name == r.Name && len(e.handles[d.ID]) == 0 {
				about += fmt.Sprintf("; disk %s is made, and its PersistentVolume is not saved: the claim's events say why, and if the claim is deleted the disk is, too", d.ID)
			}
		}
		e.add(Finding{Kind: UnderWay, ID: cmp.Or(r.Name, r.ClaimUID), About: about})
	}
}

// isUnderWay says whether a volume of a CSI name is being made: it is in the journal, or a claim without a volume is to get it.
func (e *comparison) isUnderWay(name string) bool {
	return slices.ContainsFunc(e.open, func(r Request) bool { return r.Name == name || r.Name == "" && isNamedAfter(name, r.ClaimUID) }) ||
		slices.ContainsFunc(e.waiting, func(uid string) bool { return isNamedAfter(name, uid) })
}

// isNamedAfter says whether a CSI name was made of an object's UID: the UID comes after a prefix, or the first characters of it without
// dashes, as csi-provisioner's and csi-snapshotter's flags say.
func isNamedAfter(name, uid string) bool {
	if uid == "" {
		return false
	}
	if strings.HasSuffix(name, uid) {
		return true
	}
	short := name[strings.LastIndexByte(name, '-')+1:]
	return len(short) >= 4 && strings.HasPrefix(strings.ReplaceAll(uid, "-", ""), short)
}

// judgeDisks names the disks of the cluster that no PersistentVolume stands for and that are not being made, and counts the others.
func (e *comparison) judgeDisks() {
	others := map[string]*Other{}
	for _, d := range e.listing.Disks {
		switch owned, ours := len(e.handles[d.ID]) > 0, slices.Contains(e.report.Clusters, d.Cluster); {
		case owned:
			e.report.Disks++
		case ours && d.Name != "":
			e.report.Disks++
			if f := diskFinding(d); !e.isUnderWay(d.Name) {
				f.Kind, f.About = DiskWithoutVolume, aboutDisk(d)
				if e.cluster.At.Sub(d.Created) < newDiskGrace {
					f.Kind, f.About = UnderWay, f.About+", without a PersistentVolume or a claim so far"
				}
				e.add(f)
			}
		case ours || d.Cluster == "":
			e.report.Unnamed++
		default:
			o := otherOf(others, d.Cluster)
			o.Disks, o.GiB, o.disks = o.Disks+1, o.GiB+d.GiB, append(o.disks, d)
		}
	}
	for _, s := range e.listing.Snapshots {
		switch {
		case slices.Contains(e.report.Clusters, s.Cluster):
			e.report.Snapshots++
		case s.Cluster != "" && !e.hasContent(s):
			otherOf(others, s.Cluster).Snapshots++
		}
	}
	for _, o := range others {
		e.report.Others = append(e.report.Others, *o)
	}
}

func otherOf(others map[string]*Other, cluster string) *Other {
	if others[cluster] == nil {
		others[cluster] = &Other{Cluster: cluster}
	}
	return others[cluster]
}

// diskFinding returns a finding about a disk.
func diskFinding(d Disk) Finding {
	return Finding{ID: d.ID, Type: d.Type, Level: d.Level, Zone: d.Zone, GiB: d.GiB, Created: d.Created, Instances: d.Instances}
}

// aboutDisk returns what the other fields of a finding don't say of a disk.
func aboutDisk(d Disk) string {
	about := "made as " + d.Name
	if len(d.Instances) > 0 {
		about += ", attached to " + strings.Join(d.Instances, " and ")
	}
	return about
}

// judgeVolumes names the PersistentVolumes whose disk ECS doesn't show, and those that are kept though no claim uses them any more.
func (e *comparison) judgeVolumes() {
	for i := range e.cluster.Volumes {
		pv := &e.cluster.Volumes[i]
		if !e.isOurs(*pv) {
			continue
		}
		e.report.Volumes++
		f := e.volumeFinding(pv)
		switch known := !hides(e.report.Unread, VolumeWithoutDisk); {
		case known && e.disks[f.ID] == nil && !e.isBeingDeleted(pv) && !e.isElsewhere(pv):
			f.Kind = VolumeWithoutDisk
			e.add(f)
		case pv.Status.Phase == corev1.VolumeReleased && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain:
			f.Kind = KeptVolume
			e.add(f)
		}
	}
}

// volumeFinding returns a finding about a PersistentVolume, with what ECS shows of its disk.
func (e *comparison) volumeFinding(pv *corev1.PersistentVolume) Finding {
	f := Finding{ID: pv.Spec.CSI.VolumeHandle, Created: pv.CreationTimestamp.Time, About: aboutVolume(pv), GiB: gibOf(pv), Zone: strings.Join(ZonesOf(pv), ",")}
	if d := e.disks[f.ID]; d != nil {
		f.Type, f.Level, f.Zone, f.GiB, f.Instances = d.Type, d.Level, d.Zone, d.GiB, d.Instances
	}
	return f
}

// gibOf returns the capacity of a PersistentVolume in GiB.
func gibOf(pv *corev1.PersistentVolume) int64 { return pv.Spec.Capacity.Storage().Value() >> 30 }

// isBeingDeleted says whether the disk of a PersistentVolume may be gone because the PersistentVolume is about to go.
func (e *comparison) isBeingDeleted(pv *corev1.PersistentVolume) bool {
	if pv.DeletionTimestamp != nil && e.cluster.At.Sub(pv.DeletionTimestamp.Time) < deletionTime {
		return true
	}
	released := pv.Status.Phase == corev1.VolumeReleased || pv.Status.Phase == corev1.VolumeFailed
	if !released || pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return false
	}
	since := pv.Status.LastPhaseTransitionTime
	return since == nil || e.cluster.At.Sub(since.Time) < deletionTime
}

// isElsewhere says whether a PersistentVolume's disk is perhaps not in the region or account that was read: it is in a zone of another
// region, or Secrets of its own sign the calls for it.
func (e *comparison) isElsewhere(pv *corev1.PersistentVolume) bool {
	secrets := pv.Spec.CSI.ControllerPublishSecretRef != nil || pv.Spec.CSI.ControllerExpandSecretRef != nil || pv.Annotations[secretAnnotation] != ""
	isHere := func(zone string) bool { return strings.HasPrefix(zone, e.options.Region) }
	zones := ZonesOf(pv)
	return secrets || e.options.Region != "" && len(zones) > 0 && !slices.ContainsFunc(zones, isHere)
}

// ZonesOf returns the zones that a PersistentVolume's node affinity names, sorted: by the keys that nodes have today, or else by any other
// that ends in /zone. An old PersistentVolume has Kubernetes' beta key, or another plugin's, and that too says in which region its disk is.
func ZonesOf(pv *corev1.PersistentVolume) []string {
	if zones := topology.ZonesOfVolume(pv); len(zones) > 0 {
		return zones
	}
	return topology.AffinityValues(pv, func(key string) bool { return strings.HasSuffix(key, "/zone") })
}

func aboutVolume(pv *corev1.PersistentVolume) string {
	about := fmt.Sprintf("PersistentVolume %s, %s", pv.Name, pv.Status.Phase)
	if ref := pv.Spec.ClaimRef; ref != nil {
		about += ", claim " + ref.Namespace + "/" + ref.Name
	}
	return about
}
