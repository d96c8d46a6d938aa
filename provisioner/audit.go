package provisioner

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/topodisk/topodisk/internal/audit"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/topology"
)

const (
	// clusterKey is the key of a listed volume's context that holds its cluster.
	clusterKey = "ack.aliyun.com"
	// volumeNameKey is the key of a listed volume's context that holds its CSI
	// volume name.
	volumeNameKey = "csi.alibabacloud.com/volume-name"
)

// RunAudit compares the driver's disks with the cluster's PersistentVolumes and the
// journal, and changes nothing. If cluster is empty it is that of the PersistentVolumes'
// disks. If there are findings, pause is called, and they are confirmed; see audit.Run.
// Config needs DriverName, Namespace, Timeout and DriverListsVolumes.
func RunAudit(ctx context.Context, config Config, client kubernetes.Interface, driver Driver, cluster string,
	pause func(ctx context.Context, found int) error,
) (*audit.Report, error) {
	if !config.DriverListsVolumes {
		return nil, fmt.Errorf("driver %s does not list volumes, so there is nothing to compare", config.DriverName)
	}
	source := auditSource{config: config, client: client, driver: driver, requests: func(ctx context.Context) ([]*request.Request, error) {
		requests, unknown, err := readRequests(ctx, newStore(client, nil, config, func() {}))
		if err == nil && unknown > 0 {
			err = fmt.Errorf("%d of the journal's records are of another version of disk-provisioner; use that", unknown)
		}
		return requests, err
	}}
	return audit.Run(ctx, source, audit.Options{Clusters: given(cluster)}, pause)
}

// given returns the cluster's ID if there is one.
func given(cluster string) []string {
	if cluster == "" {
		return nil
	}
	return []string{cluster}
}

// auditSource reads disks by the driver's ListVolumes, and the cluster from the API server.
type auditSource struct {
	config   Config
	client   kubernetes.Interface
	driver   Driver
	requests func(context.Context) ([]*request.Request, error)
}

// Listing reads every page of the driver's volumes. CSI tells neither whose a snapshot is nor when a disk was detached last.
func (s auditSource) Listing(ctx context.Context) (audit.Listing, error) {
	entries, err := listAll(ctx, s.driver, s.config.Timeout)
	if err != nil {
		return audit.Listing{}, fmt.Errorf("ListVolumes: %w", err)
	}
	l := audit.Listing{Unread: []audit.Unread{{
		What: "snapshots, attachments and tags", Reason: "the driver's ListVolumes doesn't have them; `kubectl topodisk audit` does",
		Kinds: []audit.Kind{audit.SnapshotWithoutContent, audit.LeftoverCopy, audit.Archive, audit.UnwantedAttachment, audit.WithoutOwner},
	}}}
	for _, entry := range entries {
		l.Disks = append(l.Disks, diskOf(entry))
	}
	return l, nil
}

// Cluster reads the journal, and then the PersistentVolumes.
func (s auditSource) Cluster(ctx context.Context) (audit.Cluster, error) {
	requests, err := s.requests(ctx)
	if err != nil {
		return audit.Cluster{}, err
	}
	volumes, err := listVolumes(ctx, s.client)
	return audit.Cluster{At: time.Now(), Driver: s.config.DriverName, Requests: auditRequests(requests), Volumes: volumes}, err
}

func auditRequests(requests []*request.Request) []audit.Request {
	var all []audit.Request
	for _, r := range requests {
		all = append(all, audit.Request{Name: r.Create.Name, Claim: r.Claim.Namespace + "/" + r.Claim.Name, ClaimUID: string(r.Claim.UID)})
	}
	return all
}

// diskOf returns what a listed volume says of its disk.
func diskOf(entry *csi.ListVolumesResponse_Entry) audit.Disk {
	volume := entry.GetVolume()
	about := volume.GetVolumeContext()
	d := audit.Disk{
		ID: volume.GetVolumeId(), Cluster: about[clusterKey], Name: about[volumeNameKey], Type: about["type"], Level: about["performanceLevel"],
		GiB: volume.GetCapacityBytes() >> 30, Instances: entry.GetStatus().GetPublishedNodeIds(),
	}
	for _, term := range volume.GetAccessibleTopology() {
		d.Zone = topology.ZoneOfTerm(term)
	}
	return d
}

// listVolumes reads all PersistentVolumes page by page, and keeps of each what an audit needs.
func listVolumes(ctx context.Context, client kubernetes.Interface) ([]v1.PersistentVolume, error) {
	var volumes []v1.PersistentVolume
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().PersistentVolumes().List(ctx, o)
	})
	pages.PageBufferSize = 1
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		pv := *object.(*v1.PersistentVolume)
		pv.ManagedFields, pv.Labels = nil, nil
		volumes = append(volumes, pv)
		return nil
	})
	return volumes, err
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
			return slices.Clip(all), nil
		}
	}
}
