package attempt

import (
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Outcome says what the driver's answer means for the claim.
type Outcome int

const (
	// Finished says that nothing is under way: no volume exists or comes to exist from this request.
	Finished Outcome = iota
	// Background says that a volume may exist or be in the making: the same request must be repeated until its end is known.
	Background
	// Unchanged says that the driver was not asked: what held before holds.
	Unchanged
	// Reschedule says that the selected node cannot have the volume and that nothing is under way: the scheduler shall choose
	// again.
	Reschedule
)

var outcomeNames = [...]string{"finished", "background", "unchanged", "reschedule"}

// String returns the Outcome's name as it stands in metrics.
func (o Outcome) String() string {
	if o < 0 || int(o) >= len(outcomeNames) {
		return fmt.Sprintf("outcome %d", int(o))
	}
	return outcomeNames[o]
}

// OutcomeOf says what the error of a CreateVolume call means. A final code says that
// no volume exists or comes to exist, from earlier calls neither: the driver answers
// with one only then. It reschedules only if a node was selected and topology is in
// use: for want of stock, and with the codes that the operator has added.
func OutcomeOf(err error, notAsked, mayReschedule bool, added []codes.Code) Outcome {
	if notAsked {
		return Unchanged
	}
	s, ok := status.FromError(err)
	if !ok {
		return Background // the call failed before gRPC; an earlier one may still run
	}
	switch s.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Aborted, codes.Unknown:
		// CSI: Aborted says that an operation on the volume is pending. The
		// driver never answers Unknown itself: something in between did.
		return Background
	}
	if mayReschedule && (s.Code() == codes.ResourceExhausted || slices.Contains(added, s.Code())) {
		return Reschedule
	}
	return Finished
}

func isOutOfStock(err error) bool    { return status.Code(err) == codes.ResourceExhausted }
func isPending(err error) bool       { return status.Code(err) == codes.Aborted }
func isInvalid(err error) bool       { return status.Code(err) == codes.InvalidArgument }
func isAnotherVolume(err error) bool { return status.Code(err) == codes.AlreadyExists }
