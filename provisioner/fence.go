package provisioner

import (
	"context"
	"net/http"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A process that was stopped for a while may go on where it was although another
// leads by now. So nothing that changes anything is begun once the Lease was not
// renewed for too long; the process ends a moment later anyway.

// FenceHTTP lets requests through that change nothing, and others while held
// returns nil.
func FenceHTTP(held func() error, next http.RoundTripper) http.RoundTripper {
	return fencedTripper{held, next}
}

type fencedTripper struct {
	held func() error
	next http.RoundTripper
}

func (f fencedTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		if err := f.held(); err != nil {
			return nil, err
		}
	}
	return f.next.RoundTrip(r)
}

// FenceDriver asks the driver for changes only while held returns nil.
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
