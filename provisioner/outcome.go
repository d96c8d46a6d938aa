package provisioner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/internal/leader"
	"github.com/topodisk/topodisk/provisioner/csiconn"
	"github.com/topodisk/topodisk/provisioner/journal"
	"github.com/topodisk/topodisk/topology"
)

// Outcome says what an attempt means for its claim.
type Outcome int

const (
	// Finished says that nothing is under way: the claim has its volume, or
	// the attempt failed for good and a new one may differ from it.
	Finished Outcome = iota
	// Background says that a volume may exist or be in the making: the same
	// request must be repeated until its end is known.
	Background
	// Unchanged says that the driver was not asked: what held before holds.
	Unchanged
	// Reschedule says that the selected node cannot have the volume and that
	// nothing is under way: the scheduler shall choose again.
	Reschedule
	// Ignored says that the claim is not for this provisioner, or no longer.
	Ignored
)

var outcomeNames = [...]string{"finished", "background", "unchanged", "reschedule", "ignored"}

// String returns the Outcome's name as it stands in metrics.
func (o Outcome) String() string {
	if o < 0 || int(o) >= len(outcomeNames) {
		return fmt.Sprintf("outcome %d", int(o))
	}
	return outcomeNames[o]
}

// outcomeOfCreate says what the error of a CreateVolume call means. A final code
// says that no volume exists or comes to exist, from earlier calls neither: the
// driver answers with one only then. It may reschedule only if a node was
// selected and topology is in use.
func outcomeOfCreate(err error, mayReschedule bool) Outcome {
	if csiconn.IsNotAsked(err) {
		return Unchanged
	}
	s, ok := status.FromError(err)
	if !ok {
		return Background // the call failed before gRPC; an earlier one may still run
	}
	switch s.Code() {
	case codes.ResourceExhausted:
		return outcomeOfWant(mayReschedule)
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Aborted, codes.Unknown:
		// CSI: Aborted says that an operation on the volume is pending. The
		// driver never answers Unknown itself: something in between did.
		return Background
	}
	return Finished
}

// outcomeOf is outcomeOfCreate with the codes that the operator has added
// to those that send the claim to another node.
func (p *Provisioner) outcomeOf(o *order, err error) Outcome {
	outcome := outcomeOfCreate(err, o.MayReschedule())
	if outcome == Finished && o.MayReschedule() && p.sendsAway(err) {
		return Reschedule
	}
	return outcome
}

// sendsAway says whether the operator takes the error for one of the node.
func (p *Provisioner) sendsAway(err error) bool {
	return slices.Contains(p.config.RescheduleCodes, status.Code(err))
}

// outcomeOfWant says what it means that there is no volume to be had.
func outcomeOfWant(mayReschedule bool) Outcome {
	if mayReschedule {
		return Reschedule
	}
	return Finished
}

// maybeMade says whether the error leaves open that the call has made a volume.
func maybeMade(err error) bool { return outcomeOfCreate(err, false) == Background }

// isTransient says whether the error ends by itself: the driver is absent, on its socket
// or on the selected node, or another replica leads.
func isTransient(err error) bool {
	reason, ok := topology.ReasonOf(err)
	return csiconn.IsNotAsked(err) || errors.Is(err, leader.ErrLost) || errors.Is(err, journal.ErrTakenOver) || ok && reason == topology.NodeUnready
}

// outcomeOfTopology says what it means that topology found no place for the
// claim. Only the API server's own word that the node is gone, or a node that
// stays without the driver for longer than the grace, sends the claim back to
// the scheduler; a cache may lag, and a driver may be about to register.
func (p *Provisioner) outcomeOfTopology(ctx context.Context, claim *v1.PersistentVolumeClaim, node string, err error) Outcome {
	reason, ok := topology.ReasonOf(err)
	if !ok {
		return Unchanged
	}
	waited := p.waiting.add(claim, node, p.now())
	switch reason {
	case topology.Invalid:
		return Finished
	case topology.NoTopology:
		return Unchanged
	case topology.NodeGone:
		if !p.nodeIsGone(ctx, node) && waited < p.config.NodeGrace {
			return Unchanged
		}
	case topology.NodeUnready:
		if waited < p.config.NodeGrace {
			return Unchanged
		}
	}
	p.waiting.remove(claim.UID)
	return Reschedule
}

// nodeIsGone asks the API server itself.
func (p *Provisioner) nodeIsGone(ctx context.Context, node string) bool {
	_, err := p.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}
