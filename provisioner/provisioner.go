// Package provisioner turns PersistentVolumeClaims into CreateVolume calls and
// PersistentVolumes, and Released PersistentVolumes into DeleteVolume calls.
// It runs beside its CSI driver, in the same Pod, on one unix socket.
//
// Package attempt decides what is done for a claim, and an executor carries it out. A
// resolver reads what a request needs, handlers pass on what the watches show, and a
// Controller wires and runs everything.
package provisioner

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"k8s.io/client-go/kubernetes"
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
	// that attempt.OutcomeOf calls final says that none exists or comes to exist, from
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

// Provisioner is what the attempts for claims and the deletion of volumes share.
type Provisioner struct {
	config     Config
	client     kubernetes.Interface
	driver     Driver
	store      store
	attempts   *attempt.Table
	resolver   *resolver
	siblings   *siblings
	objects    *watch.Objects
	protection *source.Protection
	deleter    *deletion.Deleter
	refusals   *stock.Refusals
	conflicts  *conflicts
	duplicates *duplicates
	claims     cache.Indexer // PersistentVolumeClaims, trimmed
	volumes    cache.Indexer // PersistentVolumes, trimmed
	events     record.EventRecorder
	metrics    *metrics
	now        func() time.Time
}
