package diskdriver

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// grpcCodes says what a Kind is in gRPC. The sidecars read it thus: Aborted,
// Unavailable and DeadlineExceeded mean that the operation may be under way;
// ResourceExhausted of a create means that nothing was made and another node
// may have more luck; anything else means that it is over.
var grpcCodes = map[disk.Kind]codes.Code{
	disk.Unexpected:      codes.Internal,
	disk.Invalid:         codes.InvalidArgument,
	disk.OutOfRange:      codes.OutOfRange,
	disk.Denied:          codes.PermissionDenied,
	disk.Unauthenticated: codes.Unauthenticated,
	disk.NotFound:        codes.NotFound,
	disk.Mismatch:        codes.AlreadyExists,
	disk.OutOfStock:      codes.ResourceExhausted,
	disk.NodeFull:        codes.ResourceExhausted,
	disk.Quota:           codes.FailedPrecondition,
	disk.InUse:           codes.FailedPrecondition,
	disk.Blocked:         codes.FailedPrecondition,
	disk.Pending:         codes.Aborted,
	disk.Throttled:       codes.Unavailable,
	disk.Unreachable:     codes.Unavailable,
	disk.UnknownOutcome:  codes.Unavailable,
	disk.BadToken:        codes.Aborted,
}

// codeOf returns the gRPC code of an error. What ended with its context is
// DeadlineExceeded, never final: the call may have taken effect.
func codeOf(ctx context.Context, err error) codes.Code {
	if e := (*disk.Error)(nil); !errors.As(err, &e) {
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return codes.DeadlineExceeded
		}
		return codes.Internal
	}
	code, known := grpcCodes[disk.KindOf(err)]
	switch {
	case !known:
		return codes.Internal
	case code == codes.Unavailable && ctx.Err() != nil:
		return codes.DeadlineExceeded
	}
	return code
}

// translate turns the error of a handler into a gRPC status. It is the only
// place that does.
func translate(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	response, err := handler(ctx, req)
	if err == nil {
		return response, nil
	}
	if _, done := status.FromError(err); done {
		return nil, err // gRPC's own: a method that is not implemented
	}
	return nil, status.Error(codeOf(ctx, err), err.Error())
}
