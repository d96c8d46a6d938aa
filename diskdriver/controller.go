package diskdriver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// controller answers the CSI Controller service.
type controller struct {
	csi.UnimplementedControllerServer
	config  Config
	disks   Disks
	history *history
}

// ControllerGetCapabilities names what the controller can do.
func (c *controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	response := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
	} {
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}},
		})
	}
	return response, nil
}
