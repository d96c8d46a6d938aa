package provisioner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/topology"
)

const (
	// clusterKey is the key of a listed volume's context that holds its cluster.
	clusterKey = "ack.aliyun.com"
	// volumeNameKey is the key of a listed volume's context that holds its CSI
	// volume name.
	volumeNameKey = "csi.alibabacloud.com/volume-name"
	// visibilityDelay bounds the time after which ListVolumes shows a new volume.
	visibilityDelay = 60 * time.Second
)

// Audit is the result of a comparison of disks, PersistentVolumes and journal.
type Audit struct {
	Cluster  string // whose disks were compared
	Disks    int    // of the cluster
	Volumes  int    // PersistentVolumes of the driver
	Others   int    // disks of other clusters, or of none
	Findings []Finding
}

// Finding is something without its counterpart.
type Finding struct {
	What  FindingKind
	ID    string // of the disk, or the CSI volume name if the disk is unknown
	About string // a description
}

// FindingKind says what has no counterpart.
type FindingKind string

// The kinds of findings. UnderWay needs no action: the provisioner repeats the request.
const (
	DiskWithoutVolume FindingKind = "disk without PersistentVolume"
	VolumeWithoutDisk FindingKind = "PersistentVolume without disk"
	UnderWay          FindingKind = "under way"
)

// Clean says whether no finding needs an action.
func (a Audit) Clean() bool {
	return !slices.ContainsFunc(a.Findings, func(f Finding) bool { return f.What != UnderWay })
}

// RunAudit compares the driver's disks with the cluster's PersistentVolumes and the
// journal, and changes nothing. If cluster is empty it is that of the PersistentVolumes'
// disks. Config needs DriverName, Namespace, Timeout and DriverListsVolumes.
func RunAudit(ctx context.Context, config Config, client kubernetes.Interface, driver Driver, cluster string) (Audit, error) {
	if !config.DriverListsVolumes {
		return Audit{}, fmt.Errorf("driver %s does not list volumes, so there is nothing to compare", config.DriverName)
	}
	before, err := volumesOfDriver(ctx, client, config.DriverName)
	if err != nil {
		return Audit{}, err
	}
	disks, err := listAll(ctx, driver, config.Timeout)
	if err != nil {
		return Audit{}, fmt.Errorf("ListVolumes: %w", err)
	}
	requests, unknown, err := readRequests(ctx, newStore(client, nil, config, func() {}))
	if err == nil && unknown > 0 {
		err = fmt.Errorf("%d of the journal's records are of another version of disk-provisioner; use that", unknown)
	}
	if err != nil {
		return Audit{}, err
	}
	after, err := volumesOfDriver(ctx, client, config.DriverName)
	if err != nil {
		return Audit{}, err
	}
	return audit(auditInput{cluster: cluster, before: before, after: after, disks: disks, requests: requests, now: time.Now()})
}

// auditInput is what an audit has read, in this order: the PersistentVolumes, the disks,
// the journal, the PersistentVolumes again. So it includes what was made or deleted
// meanwhile.
type auditInput struct {
	cluster       string
	before, after []v1.PersistentVolume
	disks         []*csi.ListVolumesResponse_Entry
	requests      []*request.Request
	now           time.Time
}

// audit compares.
func audit(e auditInput) (Audit, error) {
	if len(e.disks) == 0 && len(e.before) > 0 {
		return Audit{}, errors.New("the driver lists no disk, although there are PersistentVolumes: its credentials may not be allowed to list disks")
	}
	handles := map[string]bool{}
	for _, pv := range slices.Concat(e.before, e.after) {
		handles[pv.Spec.CSI.VolumeHandle] = true
	}
	cluster, err := e.clusterOf(handles)
	if err != nil {
		return Audit{}, err
	}
	a := Audit{Cluster: cluster, Volumes: len(e.after)}
	underWay := map[string]bool{}
	for _, o := range e.requests {
		if slices.ContainsFunc(slices.Concat(e.before, e.after), func(pv v1.PersistentVolume) bool { return o.IsSavedAs(&pv) }) {
			continue // it has ended, and the next write deletes it from the journal
		}
		underWay[o.Create.Name] = true
		a.Findings = append(a.Findings, Finding{UnderWay, o.Create.Name, "for claim " + o.Claim.Namespace + "/" + o.Claim.Name})
	}
	listed := map[string]bool{}
	for _, entry := range e.disks {
		id, about := entry.GetVolume().GetVolumeId(), entry.GetVolume().GetVolumeContext()
		listed[id] = true
		switch name := about[volumeNameKey]; {
		case about[clusterKey] != cluster || name == "":
			a.Others++
			continue
		case !handles[id] && !underWay[name]:
			a.Findings = append(a.Findings, Finding{DiskWithoutVolume, id, describe(entry)})
		}
		a.Disks++
	}
	for _, pv := range e.before {
		settled := e.now.Sub(pv.CreationTimestamp.Time) > visibilityDelay
		if settled && !listed[pv.Spec.CSI.VolumeHandle] && slices.ContainsFunc(e.after, func(o v1.PersistentVolume) bool { return o.UID == pv.UID }) {
			a.Findings = append(a.Findings, Finding{VolumeWithoutDisk, pv.Spec.CSI.VolumeHandle, describeVolume(pv)})
		}
	}
	slices.SortFunc(a.Findings, func(x, y Finding) int { return cmp.Or(cmp.Compare(x.What, y.What), cmp.Compare(x.ID, y.ID)) })
	return a, nil
}

// clusterOf returns the given cluster, or else that of the disks with these volume handles.
func (e auditInput) clusterOf(handles map[string]bool) (string, error) {
	if e.cluster != "" {
		return e.cluster, nil
	}
	var seen []string
	for _, entry := range e.disks {
		if cluster := entry.GetVolume().GetVolumeContext()[clusterKey]; handles[entry.GetVolume().GetVolumeId()] && cluster != "" && !slices.Contains(seen, cluster) {
			seen = append(seen, cluster)
		}
	}
	switch len(seen) {
	case 0:
		return "", errors.New("no disk of a PersistentVolume has a cluster ID; set --cluster-id to that of the driver")
	case 1:
		return seen[0], nil
	}
	slices.Sort(seen)
	return "", fmt.Errorf("the PersistentVolumes' disks are of clusters %s; set --cluster-id to that of the driver", strings.Join(seen, ", "))
}

// describe returns a disk's type, size, zones, name and nodes.
func describe(entry *csi.ListVolumesResponse_Entry) string {
	volume := entry.GetVolume()
	parts := []string{volume.GetVolumeContext()["type"], resource.NewQuantity(volume.GetCapacityBytes(), resource.BinarySI).String()}
	for _, term := range volume.GetAccessibleTopology() {
		parts = append(parts, topology.ZoneOfTerm(term))
	}
	parts = append(parts, "made as "+volume.GetVolumeContext()[volumeNameKey])
	if nodes := entry.GetStatus().GetPublishedNodeIds(); len(nodes) > 0 {
		parts = append(parts, "attached to "+strings.Join(nodes, " and "))
	}
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ", ")
}

func describeVolume(pv v1.PersistentVolume) string {
	about := fmt.Sprintf("PersistentVolume %s, %s", pv.Name, pv.Status.Phase)
	if ref := pv.Spec.ClaimRef; ref != nil {
		about += ", claim " + ref.Namespace + "/" + ref.Name
	}
	return about
}

func volumesOfDriver(ctx context.Context, client kubernetes.Interface, driver string) ([]v1.PersistentVolume, error) {
	list, err := client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(pv v1.PersistentVolume) bool { return pv.Spec.CSI == nil || pv.Spec.CSI.Driver != driver }), nil
}

// listAll reads every page of the driver's volumes.
func listAll(ctx context.Context, driver Driver, timeout time.Duration) ([]*csi.ListVolumesResponse_Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var all []*csi.ListVolumesResponse_Entry
	for token := ""; ; {
		page, err := driver.ListVolumes(ctx, &csi.ListVolumesRequest{StartingToken: token})
		if err != nil {
			return nil, err
		}
		all = append(all, page.GetEntries()...)
		if token = page.GetNextToken(); token == "" {
			return all, nil
		}
	}
}

// Print writes the audit as text.
func (a Audit) Print(out io.Writer) error {
	fmt.Fprintf(out, "cluster %s: %d disks, %d PersistentVolumes; %d disks are of other clusters or of none\n", a.Cluster, a.Disks, a.Volumes, a.Others)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range a.Findings {
		fmt.Fprintf(table, "%s\t%s\t%s\n", f.What, f.ID, f.About)
	}
	if len(a.Findings) == 0 {
		fmt.Fprintln(table, "every disk has its PersistentVolume, every PersistentVolume its disk, and nothing is under way")
	}
	return table.Flush()
}
