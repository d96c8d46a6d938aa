package diskdriver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/attachment"
	"github.com/topodisk/topodisk/diskdriver/snapshot"
	"github.com/topodisk/topodisk/diskdriver/volume"
)

// controller answers the CSI Controller and GroupController services for one account: each part of it
// has a package of its own.
type controller struct {
	unimplemented
	*volumeController
	*snapshotController

	config      Config
	ecs         ECS
	attachments *attachment.Table // of all accounts
	attacher    *attachment.Attacher
}

type (
	volumeController   = volume.Controller
	snapshotController = snapshot.Controller
)

// unimplemented answers the calls that nothing else does.
type unimplemented struct {
	csi.UnimplementedControllerServer
	csi.UnimplementedGroupControllerServer
}

// newController returns a controller of an account that remembers nothing. Disks
// have one ID over all accounts, so what is known of attachments is for all to
// know.
func newController(config Config, ecs ECS, attachments *attachment.Table) *controller {
	owner := config.owner()
	volumeConfig := volume.Config{
		Owner: owner, AllowSnapshotParameter: config.AllowSnapshotParameter, TopologyKey: config.TopologyKey, Unknown: config.Unknown,
		ExtraTags: config.ExtraTags, Allowed: config.Allowed,
		IsFinal: func(ctx context.Context, err error) bool { return isFinal(codeOf(ctx, err)) },
	}
	snapshots := snapshot.NewController(snapshot.Config{
		Owner: owner, Unknown: config.Unknown, ExtraTags: config.ExtraTags, CheckTopology: volumeConfig.CheckTopology,
	}, ecs)
	volumes := volume.NewController(volumeConfig, ecs, snapshots)
	return &controller{
		volumeController:   volumes,
		snapshotController: snapshots,
		config:             config,
		ecs:                ecs,
		attachments:        attachments,
		attacher:           attachment.New(ecs, attachments),
	}
}

// of returns a controller of another account.
func (c *controller) of(ecs ECS) *controller { return newController(c.config, ecs, c.attachments) }

// sweep deletes what no call needs any more. It leaves alone what a call works on.
func (c *controller) sweep(ctx context.Context, busy *inflight) {
	c.Sweep(ctx, func(name string) (func(), bool) {
		return func() { busy.release(volumeNamed(name)) }, busy.take(volumeNamed(name))
	})
}

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
