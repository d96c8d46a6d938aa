package diskdriver

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// answer is what a Kind is to those who called: the sidecars read the code,
// people the text. docs/errors.md is made of it.
type answer struct {
	code codes.Code
	says string // what the text of the error is about
	todo string // what its reader does
}

const waits = "nothing; if it lasts, "

// answers has a row for every Kind.
var answers = map[disk.Kind]answer{
	disk.Unexpected:      {codes.Internal, "ECS answered with a code that the driver doesn't know, or something failed in ECS for good; a call that changes nothing met a mistake of the driver", "look up ECS's code; report what the driver should know"},
	disk.Invalid:         {codes.InvalidArgument, "what the claim, the class or the volume asks for can't be: the field, its value and what is allowed", "correct that field; a class can't be changed, so make another"},
	disk.OutOfRange:      {codes.OutOfRange, "no type that is allowed comes in this size, or the disk is larger than the limit: the sizes of each type", "ask for a size within them, or allow another type"},
	disk.Denied:          {codes.PermissionDenied, "the account, role or user may not do this: ECS's code, and the permission if ECS names it", "grant it; [credentials](credentials.md)"},
	disk.Unauthenticated: {codes.Unauthenticated, "ECS doesn't take the keys, or there are none: which source they come from", "mend the keys; [credentials](credentials.md)"},
	disk.NotFound:        {codes.NotFound, "the volume, snapshot or node isn't in ECS; of a deletion or a detach that is success instead", "find out who deleted it: ActionTrail has it"},
	disk.Mismatch:        {codes.AlreadyExists, "what has that name, or is published to that node, is another than the one asked for: its ID and the first difference", "delete what holds no data, or go back to what was asked for first"},
	disk.OutOfStock:      {codes.ResourceExhausted, "neither zone nor type that is allowed has a disk to give, each with ECS's answer; of a snapshot: there can be no more", "allow more zones or types; of snapshots delete some"},
	disk.Unfit:           {codes.InvalidArgument, "no type that is allowed takes what the class asks for, in any zone: each with ECS's answer", "correct the parameter that ECS names, or allow another type; a class can't be changed, so make another"},
	disk.NodeFull:        {codes.ResourceExhausted, "the node takes no more disks", "nothing: the Pod goes to another node once Kubernetes has corrected the node's limit"},
	disk.Quota:           {codes.FailedPrecondition, "a limit of the account, or its balance: ECS's code", "raise the limit or pay; it is tried again"},
	disk.InUse:           {codes.FailedPrecondition, "something else has the disk, and it is not taken away: which instance", "end the Pod there, or wait until it has; then it is tried again"},
	disk.Blocked:         {codes.FailedPrecondition, "the state of the disk, snapshot or instance, or a rule of ECS, doesn't allow it now: ECS's code, and until when if ECS says so", "do what the code asks for, or wait; it is tried again"},
	disk.Pending:         {codes.Aborted, "ECS, or another call, is at work on it", waits + "see what ECS is doing with the disk"},
	disk.BadToken:        {codes.Aborted, "the place in a list isn't one any more", "begin the list anew"},
	disk.Throttled:       {codes.Unavailable, "ECS takes no more calls for the moment, and the call's time is over", waits + "see which other program calls ECS with this account"},
	disk.Unreachable:     {codes.Unavailable, "the call didn't get to ECS, or a read had no answer", waits + "see the network, the endpoint and ECS's state"},
	disk.UnknownOutcome:  {codes.Unavailable, "ECS may have done it, and the answer is lost, or the driver panicked meanwhile. The same call later finds out", waits + "see the network, the endpoint and ECS's state; report a panic"},
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
	codes.InvalidArgument:    {provisioner: again + ", and at once when the class changes", others: "csi-resizer: infeasible, tried again rarely; csi-attacher: " + again},
	codes.OutOfRange:         {provisioner: again + ", and at once when the class changes", others: "csi-resizer: infeasible, tried again rarely"},
	codes.PermissionDenied:   {provisioner: again, others: again},
	codes.Unauthenticated:    {provisioner: again, others: again},
	codes.NotFound:           {provisioner: again, others: "csi-resizer: infeasible, tried again rarely; csi-attacher: " + again},
	codes.AlreadyExists:      {provisioner: again, others: again},
	codes.FailedPrecondition: {provisioner: again, others: again},
	codes.ResourceExhausted:  {provisioner: "with a selected node: the scheduler chooses another; without: " + again, others: "csi-attacher: under way, tried again; Kubernetes corrects the node's limit"},
	codes.Aborted:            {provisioner: underWay, others: underWay},
	codes.Unavailable:        {provisioner: underWay, others: underWay},
	codes.DeadlineExceeded:   {provisioner: underWay, others: underWay},
}

// sidecars is what the programs beside the driver do.
type sidecars struct{ provisioner, others string }

const (
	again    = "over: event, tried again with growing pauses"
	underWay = "may be under way: the same call again until its end is known"
)

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
