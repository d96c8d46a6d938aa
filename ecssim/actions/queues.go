package actions

import (
	"fmt"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// Queues are how many disks an instance attaches and detaches at a time.
//
// Serial is what an account of ECS has unless it asked for more: one attach
// or detach at a time, any other is refused with InvalidOperation.Conflict.
// With numbers above zero, attaches and detaches don't count for each other,
// and those beyond are refused with
// OperationConflict.DisksAttachingParallellyExceed (ECS's spelling) and
// DisksDetachingOnEcsExceeded.
type Queues struct {
	Attach int `json:"attach"`
	Detach int `json:"detach"`
}

// Serial and Parallel are the queues that accounts of ECS are known to have.
var (
	Serial   = Queues{}
	Parallel = Queues{Attach: 32, Detach: 5}
)

// QueueProfiles are the names that QueueProfile knows.
var QueueProfiles = []string{"serial", "parallel"}

// QueueProfile returns Serial or Parallel by its name.
func QueueProfile(name string) (Queues, error) {
	switch name {
	case "serial":
		return Serial, nil
	case "parallel":
		return Parallel, nil
	}
	return Queues{}, config.Invalid("Queues", name, config.OneOf(QueueProfiles))
}

// Check refuses queues that no account has. The error is a *config.Error.
func (q Queues) Check() error {
	if q != Serial && (q.Attach < 1 || q.Detach < 1) {
		return config.Invalid("Queues", fmt.Sprintf("attach %d, detach %d", q.Attach, q.Detach), "both above zero, or both zero for one at a time of either")
	}
	return nil
}

// checkQueue refuses an attach or a detach (phase says which) that finds the
// instance's queue full.
func checkQueue(req *Request, i *state.Instance, phase string) *wire.Refusal {
	q := req.Rules.Queues
	attaching, detaching := i.InPhase(state.DiskAttaching), i.InPhase(state.DiskDetaching)
	switch {
	case q == Serial && attaching+detaching > 0:
		return req.Rules.Doubts.conflict(i)
	case q == Serial:
		return nil
	case phase == state.DiskAttaching && attaching >= q.Attach:
		return wire.Refuse(400, "OperationConflict.DisksAttachingParallellyExceed", "The number of disks being attached to instance %s in parallel exceeds the limit of %d.", i.ID, q.Attach)
	case phase == state.DiskDetaching && detaching >= q.Detach:
		return wire.Refuse(400, "DisksDetachingOnEcsExceeded", "The number of disks being detached from instance %s exceeds the limit of %d.", i.ID, q.Detach)
	}
	return nil
}
