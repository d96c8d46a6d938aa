package diskdriver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/topodisk/topodisk/internal/unused"
)

// identity answers the CSI Identity service.
type identity struct {
	csi.UnimplementedIdentityServer
	name, version string
	readiness     *readiness // nil on a node
}

// GetPluginInfo names the driver, and says that it deletes a volume only if it was never used when it is asked to.
func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.name, VendorVersion: i.version, Manifest: map[string]string{unused.ManifestKey: "true"}}, nil
}

// GetPluginCapabilities says that there are a controller and a group controller,
// but on a node, that neither a volume nor a snapshot can be reached from everywhere, and that
// a volume can grow on a node and off it.
func (i *identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	response := &csi.GetPluginCapabilitiesResponse{}
	services := []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS}
	if i.readiness != nil {
		services = append(services,
			csi.PluginCapability_Service_CONTROLLER_SERVICE,
			csi.PluginCapability_Service_SNAPSHOT_ACCESSIBILITY_CONSTRAINTS,
			csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE)
	}
	for _, t := range services {
		response.Capabilities = append(response.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: t}},
		})
	}
	for _, t := range []csi.PluginCapability_VolumeExpansion_Type{
		csi.PluginCapability_VolumeExpansion_ONLINE,
		csi.PluginCapability_VolumeExpansion_OFFLINE,
	} {
		response.Capabilities = append(response.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: t}},
		})
	}
	return response, nil
}

// Probe says whether ECS answered the driver when it was last asked; a node's is
// always ready. It calls nothing itself and is never an error: sidecars wait for
// a driver that is not ready before they begin. It is no liveness check, for
// csi's livenessprobe takes a driver that is not ready for dead; /healthz is, so
// that a cloud that is down restarts no Pod.
func (i *identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(i.readiness == nil || i.readiness.ok())}, nil
}
