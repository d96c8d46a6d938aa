package diskdriver

import (
	"context"
	"fmt"
	"path"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// interceptors are what every call passes, the outermost first.
func (d *Driver) interceptors() []grpc.UnaryServerInterceptor {
	all := []grpc.UnaryServerInterceptor{recoverPanics(d.metrics.panics), d.metrics.report, translate, d.inflight.refuse}
	if d.accounts != nil {
		all = append(all, d.accounts.serve)
	}
	return all
}

// recoverPanics answers for a handler that panicked, counts it, and lets the
// process live for the other volumes. What the handler had begun may have had its
// effect, so the code is one that no sidecar takes for the end of the call, unless
// it changes nothing: Unknown is an end to csi-provisioner and csi-attacher.
func recoverPanics(count prometheus.Counter) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
		defer func() {
			if cause := recover(); cause != nil {
				count.Inc()
				klog.ErrorS(fmt.Errorf("panic: %v", cause), "A handler panicked", "method", info.FullMethod, "stack", string(debug.Stack()))
				code := codes.Internal
				if targetOf(req) != (target{}) {
					code = answers[disk.UnknownOutcome].code
				}
				response, err = nil, status.Errorf(code, "%s panicked: %v", path.Base(info.FullMethod), cause)
			}
		}()
		return handler(ctx, req)
	}
}
