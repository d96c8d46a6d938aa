package diskdriver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/attachment"
	"github.com/topodisk/topodisk/diskdriver/creation"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/health"
	"github.com/topodisk/topodisk/diskdriver/listing"
)

// controller answers the CSI Controller service.
type controller struct {
	unimplemented
	*healthServer
	config      Config
	disks       Disks
	tags        attachment.Tags
	attachments *attachment.Table // of all accounts
	attacher    *attachment.Attacher
	stock       Stock
	snapshots   Snapshots
	groups      Groups
	changes     Changes
	creations   *creation.Table // of volumes
	shots       *creation.Table // of snapshots and groups
	offers      *offers
	all         *listing.Disks
}

type healthServer = health.Server

// unimplemented answers the calls that nothing else does.
type unimplemented struct {
	csi.UnimplementedControllerServer
}

// area is where the controller works.
func (c *controller) area() area {
	return area{region: c.config.Region, preferredKey: c.config.TopologyKey}
}

func newController(config Config, ecs ECS) *controller {
	return newControllerOf(config, ecs, attachment.NewTable())
}

func newControllerOf(config Config, ecs ECS, attachments *attachment.Table) *controller {
	c := &controller{
		config: config, disks: ecs, tags: ecs, stock: ecs, snapshots: ecs, groups: ecs, changes: ecs,
		attachments: attachments, attacher: attachment.New(ecs, attachments),
		creations: creation.NewTable(), shots: creation.NewTable(), offers: newOffers(),
	}
	states := health.NewStates()
	c.all = listing.NewDisks(ecs, states.SawAll)
	c.healthServer = health.NewServer(ecs, c.all, states, func(ctx context.Context) (disk.Offers, error) {
		return c.offers.of(ctx, c.stock, []disk.Choice{{Category: "cloud_essd"}})
	})
	return c
}

// of returns a controller of another account. Disks have one ID over all
// accounts, so what is known of their attachments is for all to know.
func (c *controller) of(ecs ECS) *controller { return newControllerOf(c.config, ecs, c.attachments) }

// capabilities are what the controller can do.
var capabilities = []csi.ControllerServiceCapability_RPC_Type{
	csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
	csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
	csi.ControllerServiceCapability_RPC_PUBLISH_READONLY,
	csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
	csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES,
	csi.ControllerServiceCapability_RPC_GET_CAPACITY,
	csi.ControllerServiceCapability_RPC_GET_VOLUME,
	csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
	csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
	csi.ControllerServiceCapability_RPC_GET_SNAPSHOT,
	csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
	csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
	csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH,
	csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH,
}

// ControllerGetCapabilities names what the controller can do.
func (c *controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	response := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range capabilities {
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}},
		})
	}
	return response, nil
}
