package diskdriver

import (
	"context"
	"fmt"
	"path"
	"runtime/debug"
	"time"

	"github.com/kubernetes-csi/csi-lib-utils/protosanitizer"
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

// logCalls logs every call once, when it ends, without its secrets. Calls that
// only ask are logged at verbosity 5, unless they fail.
func logCalls(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	start := time.Now()
	klog.V(5).InfoS("Call begins", "method", info.FullMethod, "request", protosanitizer.StripSecrets(req))
	response, err := handler(ctx, req)
	fields := []any{"method", info.FullMethod, "took", time.Since(start), "request", protosanitizer.StripSecrets(req)}
	switch {
	case err != nil:
		klog.ErrorS(err, "Call failed", fields...)
	case claimOf(req) != (claim{}):
		klog.InfoS("Call done", append(fields, "response", protosanitizer.StripSecrets(response))...)
	default:
		klog.V(5).InfoS("Call done", append(fields, "response", protosanitizer.StripSecrets(response))...)
	}
	return response, err
}
