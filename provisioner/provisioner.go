package provisioner

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/topodisk/topodisk/provisioner/capacity"
	"github.com/topodisk/topodisk/provisioner/claim"
	"github.com/topodisk/topodisk/provisioner/deletion"
)

// Driver is what the provisioner asks of the CSI driver.
type Driver interface {
	capacity.Driver
	claim.Driver
	deletion.Driver
	// ListVolumes lists what the driver can see, with the CSI volume name in
	// the context of each. It is called only if Config.DriverListsVolumes.
	ListVolumes(ctx context.Context, in *csi.ListVolumesRequest, opts ...grpc.CallOption) (*csi.ListVolumesResponse, error)
	// AwaitReturn returns nil once the driver has gone away and answers again.
	AwaitReturn(ctx context.Context) error
}
