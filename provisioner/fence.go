package provisioner

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// FenceDriver asks the driver for changes only while held returns nil: no process
// that was stopped for a while asks for more when another leads by now.
func FenceDriver(held func() error, driver Driver) Driver { return &fencedDriver{driver, held} }

type fencedDriver struct {
	Driver
	held func() error
}

// CreateVolume implements Driver.
func (f *fencedDriver) CreateVolume(ctx context.Context, in *csi.CreateVolumeRequest, opts ...grpc.CallOption) (*csi.CreateVolumeResponse, error) {
	if err := f.held(); err != nil {
		return nil, &notAsked{status.Error(codes.Unavailable, err.Error())}
	}
	return f.Driver.CreateVolume(ctx, in, opts...)
}

// DeleteVolume implements Driver.
func (f *fencedDriver) DeleteVolume(ctx context.Context, in *csi.DeleteVolumeRequest, opts ...grpc.CallOption) (*csi.DeleteVolumeResponse, error) {
	if err := f.held(); err != nil {
		return nil, &notAsked{status.Error(codes.Unavailable, err.Error())}
	}
	return f.Driver.DeleteVolume(ctx, in, opts...)
}
