package claim

import (
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/topodisk/topodisk/internal/errorinfo"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// outcome says what the driver's answer means for the claim.
type outcome int

const (
	// noVolume says that no volume exists or comes to exist from this request.
	noVolume outcome = iota
	// maybeVolume says that one may exist or come to exist: the request must be repeated until an answer is final.
	maybeVolume
	// notSent says that the call was not sent: the outcome of earlier calls holds.
	notSent
	// otherNode is noVolume, and says that the selected node can't have the volume: the scheduler is to select another one.
	otherNode
)

// outcomes are the names of outcomes in metrics.
var outcomes = [...]string{noVolume: "finished", maybeVolume: "background", notSent: "unchanged", otherNode: "reschedule"}

// String returns the outcome's name as it stands in metrics.
func (o outcome) String() string {
	if o < 0 || int(o) >= len(outcomes) {
		return fmt.Sprintf("outcome %d", int(o))
	}
	return outcomes[o]
}

// outcomeOf says what the error of a CreateVolume call means. A final code says that no volume exists or comes to exist, not from earlier
// calls either. Only for claims with a selected node, while topology is in use, another node may help: for lack of stock, and for the codes
// that the operator has added.
func outcomeOf(err error, sent, mayReschedule bool, added []codes.Code) outcome {
	if !sent {
		return notSent
	}
	s, ok := status.FromError(err)
	if !ok {
		return maybeVolume // the call failed before gRPC; an earlier one may still run
	}
	switch s.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Aborted, codes.Unknown:
		// CSI: Aborted says that an operation on the volume is pending. Unknown is the answer of an interceptor or a proxy, not of the
		// driver's handler.
		return maybeVolume
	}
	if mayReschedule && (s.Code() == codes.ResourceExhausted || slices.Contains(added, s.Code())) {
		return otherNode
	}
	return noVolume
}

func isPending(err error) bool       { return status.Code(err) == codes.Aborted }
func isInvalid(err error) bool       { return status.Code(err) == codes.InvalidArgument }
func isAnotherVolume(err error) bool { return status.Code(err) == codes.AlreadyExists }

// infoOf returns what programs may read of a failure: the driver's word, or else what was found before it was asked.
func infoOf(f *failure) errorinfo.Info {
	if info, ok := errorinfo.Of(f.err); ok {
		return info
	}
	if reason, ok := topology.ReasonOf(f.err); ok {
		return errorinfo.Info{Kind: errorinfo.KindOf(reason.String())}
	}
	if from := watch.NotReadyObject(f.err); from.Resource == watch.VolumeSnapshots || from.Resource == watch.VolumeSnapshotContents {
		return errorinfo.Info{Kind: errorinfo.SnapshotNotReady}
	}
	if f.kind == invalid {
		return errorinfo.Info{Kind: errorinfo.Invalid}
	}
	return errorinfo.Info{}
}
