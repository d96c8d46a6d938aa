package attachment

import (
	"fmt"
	"slices"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// step is what a publish does next.
type step int

const (
	done        step = iota // ECS shows what is asked for
	await                   // ECS is at work on something that ends by itself
	attach                  // ask ECS to attach the disk, or join in if it is at it
	forceAttach             // the same, and take the disk from the instance that has it
)

func (s step) String() string {
	return [...]string{"done", "await", "attach", "forceAttach"}[s]
}

// next decides what comes next, going by what ECS shows. A disk that is known not to go with the instance
// isn't tried on it; what ECS has begun is joined, for then it does go.
func (p Publication) next(d disk.Disk) (step, error) {
	next, err := p.shown(d)
	if next == forceAttach || next == attach && d.State != disk.Attaching {
		if err := p.Known.Attachable(d); err != nil {
			return done, &disk.Error{Disk: d.ID, Instance: p.Instance, Kind: disk.KindOf(err), Err: err}
		}
	}
	return next, err
}

// shown decides what comes next, going by nothing but what ECS shows. A disk
// that another instance has is never taken away, but with force: InUse names
// the instance.
//
// A disk that is being attached is joined, for it may be by an earlier call.
// One that is being detached is waited for even if it is from the same instance:
// ECS accepts an attach then, and detaches the disk all the same. The state of
// a disk that several instances have speaks for all of them together, so a
// detach from one of them doesn't show.
func (p Publication) shown(d disk.Disk) (step, error) {
	here := d.On(p.Instance)
	others := slices.DeleteFunc(d.Holders(), func(i disk.InstanceID) bool { return i == p.Instance })
	if len(others) > 0 && (!d.MultiAttach || !p.Shared) {
		return p.besides(d, others)
	}
	switch d.State {
	case disk.Available, disk.Attaching:
		return attach, nil
	case disk.Attached:
		switch {
		case here:
			return done, nil
		case d.MultiAttach:
			return attach, nil
		}
		return await, nil // an instance has it, and ECS doesn't say yet which
	case disk.Detaching:
		if d.MultiAttach && !here {
			return attach, nil
		}
	case disk.Modifying:
		if here {
			return done, nil // changing its category interrupts nobody
		}
	}
	return await, nil
}

// besides decides for a disk that others have, and that can't be shared.
func (p Publication) besides(d disk.Disk, others []disk.InstanceID) (step, error) {
	movable := p.Force && d.Category.Regional() && !d.MultiAttach && (d.State == disk.Attached || d.State == disk.Detaching)
	switch {
	case movable:
		return forceAttach, nil
	case d.State == disk.Detaching:
		return await, nil
	}
	return done, &disk.Error{Disk: d.ID, Kind: disk.InUse, Err: fmt.Errorf("the disk is attached to %s, and is not taken away", disk.InstanceNames(others))}
}
