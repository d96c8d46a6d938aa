package diskdriver

import (
	"cmp"
	"context"
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/internal/errorinfo"
	"github.com/topodisk/topodisk/internal/escape"
	"github.com/topodisk/topodisk/internal/outofstock"
	"github.com/topodisk/topodisk/internal/unused"
)

// answer is what a Kind is to those who called: the sidecars read the code,
// people the text. docs/errors.md is made of it.
type answer struct {
	code codes.Code
	says string // what the text of the error is about
	todo string // what its reader does
}

const waits = "nothing; if it continues, "

// answers has a row for every Kind.
var answers = map[disk.Kind]answer{
	disk.Unexpected:      {codes.Internal, "ECS answered with a code that the driver doesn't know, or an operation failed in ECS for good; or a call that changes nothing met a defect of the driver", "look up ECS's code; report a code that the driver should know"},
	disk.Invalid:         {codes.InvalidArgument, "the claim, the class or the volume asks for something impossible: the field, its value and what is allowed", "correct that field; a class can't be changed, so create another one"},
	disk.OutOfRange:      {codes.OutOfRange, "no allowed type has this size, or the disk is larger than the limit: the sizes of each type", "request one of these sizes, or allow another type"},
	disk.Denied:          {codes.PermissionDenied, "the account, role or user may not do this: ECS's code, and the permission if ECS names it", "grant it; [credentials](credentials.md)"},
	disk.Unauthenticated: {codes.Unauthenticated, "ECS rejects the keys, or there are none: the source of the keys", "correct the keys; [credentials](credentials.md)"},
	disk.NotFound:        {codes.NotFound, "ECS doesn't have the volume, snapshot or node; for a deletion or a detach this is a success, not an error", "find out in ActionTrail who deleted it"},
	disk.Mismatch:        {codes.AlreadyExists, "the object with that name, or the volume published to that node, differs from the request: its ID and the first difference", "delete the one that has no data, or go back to the first request"},
	disk.OutOfStock:      {codes.ResourceExhausted, "all allowed types are sold out in all allowed zones: ECS's answer for each; for a snapshot: no more snapshots are possible", "allow more zones or types; for a snapshot, delete others"},
	disk.Unfit:           {codes.InvalidArgument, "no allowed type supports what the class asks for, in any zone: ECS's answer for each", "correct the parameter that ECS names, or allow another type; a class can't be changed, so create another one"},
	disk.NodeFull:        {codes.ResourceExhausted, "the node takes no more disks", "nothing: the Pod gets another node once Kubernetes has corrected the node's limit"},
	disk.Quota:           {codes.FailedPrecondition, "a limit of the account, or its balance: ECS's code", "raise the limit or pay; the call is retried"},
	disk.InUse:           {codes.FailedPrecondition, "another instance uses the disk, and the driver doesn't detach it by force: the instance", "end the Pod there, or wait until it ends; the call is retried"},
	disk.Blocked:         {codes.FailedPrecondition, "the state of the disk, snapshot or instance, or a rule of ECS, doesn't allow the operation now: ECS's code, and until when if ECS says so", "do what the code asks for, or wait; the call is retried"},
	disk.Pending:         {codes.Aborted, "ECS or another call is working on it", waits + "check what ECS is doing with the disk"},
	disk.BadToken:        {codes.Aborted, "the token of a list's page is no longer valid", "begin the list again"},
	disk.Throttled:       {codes.Unavailable, "ECS accepts no more calls at the moment, and the call has timed out", waits + "check which other program calls ECS with this account"},
	disk.Unreachable:     {codes.Unavailable, "the call didn't reach ECS, or a read got no answer", waits + "check the network, the endpoint and ECS's state"},
	disk.UnknownOutcome:  {codes.Unavailable, "ECS may have carried out the operation, but the answer was lost, the driver panicked, or the keys of the Secret can't be read: which key. A later call finds out", waits + "check the network, the endpoint and ECS's state; correct the Secret; report a panic"},
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
	a, known := answers[disk.KindOf(err)]
	switch {
	case !known:
		return codes.Internal
	case a.code == codes.Unavailable && ctx.Err() != nil:
		return codes.DeadlineExceeded
	}
	return a.code
}

// isFinal says whether the sidecars take a code for the end of an operation.
func isFinal(code codes.Code) bool { return sidecarsDo[code].provisioner != underWay }

// sidecarsDo says what follows from a code, beginning with disk-provisioner on
// a create. csi-attacher and csi-resizer go by the same difference: whether the
// operation may still be under way.
var sidecarsDo = map[codes.Code]sidecars{
	codes.Internal:           {provisioner: again, others: again},
	codes.InvalidArgument:    {provisioner: again + ", and immediately when the class changes", others: "csi-resizer: infeasible, retried rarely; csi-attacher: " + again},
	codes.OutOfRange:         {provisioner: again + ", and immediately when the class changes", others: "csi-resizer: infeasible, retried rarely"},
	codes.PermissionDenied:   {provisioner: again, others: again},
	codes.Unauthenticated:    {provisioner: again, others: again},
	codes.NotFound:           {provisioner: again, others: "csi-resizer: infeasible, retried rarely; csi-attacher: " + again},
	codes.AlreadyExists:      {provisioner: again, others: again},
	codes.FailedPrecondition: {provisioner: again, others: again},
	codes.ResourceExhausted:  {provisioner: "with a selected node: the scheduler chooses another; without: " + again, others: "csi-attacher: in progress, retried; Kubernetes corrects the node's limit"},
	codes.Aborted:            {provisioner: underWay, others: underWay},
	codes.Unavailable:        {provisioner: underWay, others: underWay},
	codes.DeadlineExceeded:   {provisioner: underWay, others: underWay},
}

// sidecars is what the programs beside the driver do.
type sidecars struct{ provisioner, others string }

const (
	again    = "over: event, retried with growing pauses"
	underWay = "may be in progress: the same call again until its result is known"
)

// longestMessage is the most bytes of a message: what ECS says of many zones, and what tenants write, may be long, and gRPC
// refuses headers of 8 KiB and more by default.
const longestMessage = 4096

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
	answer := status.New(codeOf(ctx, err), escape.Line(err.Error(), longestMessage))
	if detailed, err := answer.WithDetails(about(err)); err == nil {
		answer = detailed
	}
	if disk.Involves(err, disk.OutOfStock) && !outofstock.Is(answer.Err()) {
		answer = outofstock.Mark(answer)
	}
	if errors.Is(err, disk.ErrUsed) {
		answer = unused.Refuse(answer)
	}
	return nil, answer.Err()
}

// about is what programs may go by in an error: its Kind, what ECS was asked and has answered, the zones that had no disk, and for which
// sizes that says nothing.
func about(err error) *errdetails.ErrorInfo {
	info := errorinfo.Info{Kind: errorinfo.KindOf(disk.KindOf(err).String())}
	var refused interface{ Code() string }
	if errors.As(err, &refused) {
		info.Code = refused.Code()
	}
	for e := (*disk.Error)(nil); errors.As(err, &e); err = e.Err {
		info.Action, info.RequestID = cmp.Or(info.Action, e.Op), cmp.Or(info.RequestID, e.RequestID)
		if info.Zones == nil {
			info.Zones = e.Zones
		}
		if info.MoreTypesFrom == 0 && e.MoreFrom > 0 {
			info.MoreTypesFrom = (e.MoreFrom - 1).Bytes() + 1 // sizes are rounded up to GiB
		}
	}
	return info.Detail()
}
