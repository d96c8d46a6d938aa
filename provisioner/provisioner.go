// Package provisioner turns PersistentVolumeClaims into CreateVolume calls and
// PersistentVolumes, and Released PersistentVolumes into DeleteVolume calls.
// It runs beside its CSI driver, in the same Pod, on one unix socket.
//
// A file holds one decision or one verb: resolve.go (what has to be read for a
// request), outcome.go (what an answer means for the claim), volume.go (saving the
// PersistentVolume), journal.go (which creates may be under way). Package request says
// what the driver is asked and what a PersistentVolume says, source what volumes are
// filled from, deletion which disks are deleted; library.go alone knows the controller
// library underneath, and package csiconn the driver's socket.
package provisioner

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/capacity"
	"github.com/topodisk/topodisk/provisioner/deletion"
	"github.com/topodisk/topodisk/provisioner/source"
	"github.com/topodisk/topodisk/provisioner/stock"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// Driver is what the provisioner asks of the CSI driver.
type Driver interface {
	capacity.Driver
	deletion.Driver
	// CreateVolume makes a volume or finds the one of the same name. An error
	// that outcome.go calls final says that none exists or comes to exist, from
	// earlier calls neither; AlreadyExists, that the one that does is another.
	CreateVolume(ctx context.Context, in *csi.CreateVolumeRequest, opts ...grpc.CallOption) (*csi.CreateVolumeResponse, error)
	// ListVolumes lists what the driver can see, with the CSI volume name in
	// the context of each. It is called only if Config.DriverListsVolumes.
	ListVolumes(ctx context.Context, in *csi.ListVolumesRequest, opts ...grpc.CallOption) (*csi.ListVolumesResponse, error)
	// AwaitReturn returns nil once the driver has gone away and answers again.
	AwaitReturn(ctx context.Context) error
}

// Topology is what the provisioner asks of the cluster's zones.
type Topology interface {
	// Require says where a volume may be, in the order of preference; nil says anywhere.
	Require(topology.Question) (*csi.TopologyRequirement, error)
	// Carried says whether a node with the driver has the term's labels.
	Carried(*csi.Topology) bool
}

// Provisioner is what the attempts for claims and the deletion of volumes have in common.
type Provisioner struct {
	config      Config
	client      kubernetes.Interface
	driver      Driver
	topology    Topology
	store       store
	attempts    *attempt.Table
	objects     *watch.Objects
	sources     *source.Reader
	protection  *source.Protection
	deleter     *deletion.Deleter
	secrets     *secrets
	metadata    metadata.Interface
	refusals    *stock.Refusals
	waitingPods *waitingPods
	duplicates  *duplicates
	claims      cache.Indexer // PersistentVolumeClaims, trimmed
	classes     cache.Store   // StorageClasses
	volumes     cache.Indexer // PersistentVolumes, trimmed
	namespaces  cache.Store   // Namespaces, trimmed; nil without Config.NamespaceLabelTags
	events      record.EventRecorder
	metrics     *metrics
	now         func() time.Time
}
