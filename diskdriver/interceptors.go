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
	"github.com/topodisk/topodisk/diskdriver/suspension"
)

// chain puts interceptors around each other, the first outermost.
func chain(interceptors ...grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	if len(interceptors) == 0 {
		return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			return handler(ctx, req)
		}
	}
	inner := chain(interceptors[1:]...)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return interceptors[0](ctx, req, info, func(ctx context.Context, req any) (any, error) {
			return inner(ctx, req, info, handler)
		})
	}
}

// markBeginning lets the ECS client know whether the process was suspended since a
// call began.
func markBeginning(watch *suspension.Watch) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return handler(watch.Mark(ctx), req)
	}
}

// recoverPanics answers for a handler that panicked, counts it, and lets the
// process live for the other volumes. What the handler had begun may have had its
// effect, so the code is one that no sidecar takes for the end of the call (of
// Unknown csi-provisioner and csi-attacher do), unless it changes nothing.
func recoverPanics(count prometheus.Counter) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
		defer func() {
			if cause := recover(); cause != nil {
				count.Inc()
				klog.ErrorS(fmt.Errorf("panic: %v", cause), "A handler panicked", "method", info.FullMethod, "stack", string(debug.Stack()))
				code := codes.Internal
				if claimOf(req) != (claim{}) {
					code = answers[disk.UnknownOutcome].code
				}
				response, err = nil, status.Errorf(code, "%s panicked: %v", path.Base(info.FullMethod), cause)
			}
		}()
		return handler(ctx, req)
	}
}
