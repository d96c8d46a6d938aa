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

// recoverPanics answers Internal for a handler that panicked, counts it, and
// lets the process live for the other volumes.
func recoverPanics(count prometheus.Counter) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
		defer func() {
			if cause := recover(); cause != nil {
				count.Inc()
				klog.ErrorS(fmt.Errorf("panic: %v", cause), "A handler panicked", "method", info.FullMethod, "stack", string(debug.Stack()))
				response, err = nil, status.Errorf(codes.Internal, "%s panicked: %v", path.Base(info.FullMethod), cause)
			}
		}()
		return handler(ctx, req)
	}
}
