package diskdriver

import (
	"fmt"
	"slices"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// step is what a publish or an unpublish does next.
type step int

const (
	done   step = iota // ECS shows what is asked for
	await              // ECS is at work on something that ends by itself
	attach             // ask ECS to attach the disk, or join in if it is at it
	seize              // the same, and take the disk from an instance of another zone
	detach             // ask ECS to detach the disk, or join in if it is at it
)

var stepNames = [...]string{"done", "await", "attach", "seize", "detach"}

func (s step) String() string { return stepNames[s] }

// publishing is what a publish asks for.
type publishing struct {
	node     disk.InstanceID
	shared   bool // other nodes may have the disk at the same time
	readOnly bool
	force    bool          // a regional disk may be taken from an instance of another zone
	instance disk.Instance // what is known of the node
}

// unseen is what ECS may be at that reads don't show.
type unseen struct {
	coming  bool              // an attach to another node
	leaving bool              // a detach from this node, of a disk that others have too
	come    bool              // that it has attached the disk to this node
	left    bool              // that it has detached the disk from this node
	parted  []disk.InstanceID // the other nodes that it has detached the disk from
}

// next decides what comes next, going by what ECS shows and may not show yet.
// That a disk may be attached elsewhere matters only if several nodes can have
// it: of any other ECS itself refuses a second attachment. A disk that is known not to go with the instance
// isn't tried on it; what ECS has begun is joined, for then it does go.
func (p publishing) next(d disk.Disk, u unseen) (step, error) {
	next, err := p.shown(u.without(d))
	switch {
	case err != nil:
	case next == done && (u.left || u.leaving && d.MultiAttach),
		next == attach && (u.come || u.coming && d.MultiAttach && !p.shared):
		return await, nil
	case next == seize, next == attach && d.State != disk.Attaching:
		if err := p.instance.Attachable(d); err != nil {
			return done, &disk.Error{Disk: d.ID, Instance: p.node, Kind: disk.KindOf(err), Err: err}
		}
	}
	return next, err
}

// without is a disk without the nodes that don't have it any more, whatever a
// read that lags behind shows.
func (u unseen) without(d disk.Disk) disk.Disk {
	d.Attachments = slices.DeleteFunc(slices.Clone(d.Attachments), func(a disk.Attachment) bool { return slices.Contains(u.parted, a.Instance) })
	return d
}

// shown decides what comes next, going by nothing but what ECS shows. A disk
// that another instance has is never taken away, but with force: InUse names
// the instance.
//
// A disk that is being attached is joined, for it may be by an earlier call.
// One that is being detached is waited for even if it is from the same node:
// ECS accepts an attach then, and detaches the disk all the same. The state of
// a disk that several instances have speaks for all of them together, so a
// detach from one of them doesn't show.
func (p publishing) shown(d disk.Disk) (step, error) {
	here := d.On(p.node)
	others := slices.DeleteFunc(d.Holders(), func(i disk.InstanceID) bool { return i == p.node })
	if len(others) > 0 && (!d.MultiAttach || !p.shared) {
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
		return await, nil // somebody has it, and ECS doesn't say yet who
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
func (p publishing) besides(d disk.Disk, others []disk.InstanceID) (step, error) {
	movable := p.force && d.Category.Regional() && !d.MultiAttach && (d.State == disk.Attached || d.State == disk.Detaching)
	switch {
	case movable:
		return seize, nil
	case d.State == disk.Detaching:
		return await, nil
	}
	return done, &disk.Error{Disk: d.ID, Kind: disk.InUse, Err: fmt.Errorf("the disk is attached to %s, and is not taken away", words(others))}
}

// unpublishing is the node that a disk is to be detached from; empty: all.
type unpublishing struct{ node disk.InstanceID }

// next decides what comes next, and for detach names the instances. While ECS
// doesn't say which instance a disk is being attached to, or detached from, it
// may be this one.
func (u unpublishing) next(d disk.Disk) (step, []disk.InstanceID) {
	holders := d.Holders()
	changing := d.State == disk.Attaching || d.State == disk.Detaching
	unnamed := len(holders) == 0 && (changing || d.State == disk.Attached)
	switch {
	case d.State == disk.Attaching && !d.MultiAttach && (u.node == "" || d.On(u.node)):
		return await, nil // ECS detaches nothing that it is attaching
	case u.node != "" && d.On(u.node):
		return detach, []disk.InstanceID{u.node}
	case unnamed, d.MultiAttach && d.State == disk.Attaching:
		return await, nil
	case u.node != "" || len(holders) == 0:
		return done, nil
	}
	return detach, holders
}
