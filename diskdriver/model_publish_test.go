package diskdriver

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

func (v *modelVolume) publish(w *world, node string, readOnly bool) *call {
	if v.phase != present {
		return nil
	}
	before := v.bonds[node]
	if before.is == unsure && before.last == "unpublish" && !before.asked.After(w.now.active) {
		return nil // what a replica of csi-attacher has begun to detach, the next one goes on to
	}
	blind := w.blind()
	now := bond{is: max(before.is, unsure), readOnly: readOnly, last: "publish", either: before.is == unsure && (before.either || before.readOnly != readOnly)}
	switch {
	case before.is == on:
		before.either = before.either || blind && before.readOnly != readOnly // what is asked for now may be recorded
		now = before
	case before.last == "unpublish": // until the publish is OK, which detaches it first
		now.last, now.asked = before.last, before.asked
	}
	v.bonds[node] = now
	req := &csi.ControllerPublishVolumeRequest{VolumeId: v.id, NodeId: node, Readonly: readOnly, VolumeCapability: w.capability(v.words)}
	return &call{method: "ControllerPublishVolume", req: req, ended: func(w *world, answer any, err error) error {
		if err == nil {
			history := disk.History(answer.(*csi.ControllerPublishVolumeResponse).GetPublishContext()[disk.HistoryKey])
			return errors.Join(v.published(w, node, before, readOnly, blind), v.told(w, history))
		}
		if open(err) {
			return nil
		}
		before.refused = before.is == unsure
		v.bonds[node] = before
		return v.mayRefuse(w, node, before, readOnly, blind, err)
	}}
}

// published holds a volume that the driver says is on a node against ECS. If
// reads list nodes that a disk is Attaching to, none tells one of a shared disk
// from a node that has it.
func (v *modelVolume) published(w *world, node string, before bond, readOnly, blind bool) error {
	d, _ := v.disk(w)
	now := bond{is: off, readOnly: readOnly, last: "publish", either: before.is == on && before.either}
	if time.Since(w.now.active) < newLease { // what another replica was called for before may be recorded late
		now.either = now.either || before.is == unsure && before.readOnly != readOnly
	}
	for _, a := range d.Attachments {
		switch {
		case a.Instance == node && a.Phase == "In_use":
			now.is = on
		case a.Instance == node && a.Phase == "Attaching" && len(d.Attachments) > 1 && w.config.Doubts.ListAttaching:
			now.is = unsure
		}
	}
	if now.is == off {
		return fmt.Errorf("the disk is %s on %v", d.Status, d.Attachments)
	}
	// Who sees the disk as it was before it was published records what is asked
	// for now.
	if before.is == on && before.readOnly != readOnly && !blind && !before.either {
		return fmt.Errorf("it was published with readonly %v before", before.readOnly)
	}
	v.bonds[node] = now
	return nil
}

// told holds what the driver says of a volume's history against ECS: it is new as long as its disk is where it was attached first. Of a disk
// for several nodes, or of several zones, it may not know that.
func (v *modelVolume) told(w *world, history disk.History) error {
	d, _ := v.disk(w)
	released := !d.Detached.IsZero()
	empty := v.source() == "" && !d.MultiAttach && d.Zone != ""
	switch {
	case history != disk.HistoryNew && history != disk.HistoryInUse:
		return fmt.Errorf("the volume's state is %q", history)
	case history == disk.HistoryNew && (released || v.source() != ""):
		return fmt.Errorf("the volume is new, and was made from something or detached at %s", d.Detached)
	case history == disk.HistoryInUse && empty && !released:
		return fmt.Errorf("the volume is in use, and was never detached")
	}
	return nil
}

// takeByHand detaches a volume's disk by hand from the node that has it, and attaches it again; if none has it, it is the other way round. What
// is done by hand the driver only knows from reads, so it is done when nothing is open, and reads don't lag behind it.
func (w *world) takeByHand(v *modelVolume) error {
	if err := w.peace(); err != nil {
		return err
	}
	time.Sleep(time.Minute) // until nodes and disks are ready
	d, there := v.disk(w)
	if !there || v.phase != present || d.MultiAttach || d.Status != "Available" && d.Status != "In_use" {
		return nil
	}
	node, held := "i-a1", false
	if d.Zone == "cn-hangzhou-b" {
		node = "i-b1"
	}
	for n, b := range v.bonds {
		node, held = n, b.is == on
	}
	does := []string{"attach", "detach"}
	if held {
		does = []string{"detach", "attach"}
	}
	for _, what := range does {
		if err := w.byHand(what, disk.ID(v.id), node); err != nil { // ECS says why it can't be so
			w.told = append(w.told, fmt.Sprintf("  %s: %v", what, err))
			break
		}
	}
	if b, ok := v.bonds[node]; ok {
		b.is, b.last = unsure, "publish"
		v.bonds[node] = b
	}
	time.Sleep(newLease)
	return w.peace()
}

// mayRefuse says whether there is a reason not to publish a volume.
func (v *modelVolume) mayRefuse(w *world, node string, before bond, readOnly, blind bool, err error) error {
	d, _ := v.disk(w)
	elsewhere := blind
	for other, b := range v.bonds {
		elsewhere = elsewhere || other != node && b.is != off
	}
	otherZone := d.Zone != "" && d.Zone != walkInstance(node).Zone
	switch code := status.Code(err); {
	case code == codes.AlreadyExists && before.is != off && (before.either || before.readOnly != readOnly),
		code == codes.FailedPrecondition && (elsewhere || otherZone),
		code == codes.InvalidArgument && otherZone,
		w.shownNothing(err),
		code == codes.NotFound && (w.stale || !w.hasNode(node)),
		code == codes.ResourceExhausted && node == "i-small":
		return nil
	}
	return err
}

// shownNothing says whether reads may be from before there was any disk, of which the driver says that they tell nothing.
func (w *world) shownNothing(err error) bool {
	return w.stale && status.Code(err) == codes.PermissionDenied
}

// unpublish takes the volume from a node, or from all.
func (v *modelVolume) unpublish(node string) *call {
	if v.phase != present && v.phase != deleting {
		return nil
	}
	nodes := []string{node}
	if node == "" {
		nodes = slices.Sorted(maps.Keys(v.bonds))
	}
	for _, n := range nodes {
		b := v.bonds[n]
		if b.last != "unpublish" {
			b.asked = time.Now()
		}
		v.bonds[n] = bond{is: unsure, readOnly: b.readOnly, last: "unpublish", asked: b.asked, either: b.either}
	}
	req := &csi.ControllerUnpublishVolumeRequest{VolumeId: v.id, NodeId: node}
	return &call{method: "ControllerUnpublishVolume", req: req, ended: func(w *world, _ any, err error) error {
		switch {
		case open(err), w.shownNothing(err):
			return nil
		case err != nil:
			return err
		}
		for _, n := range nodes {
			delete(v.bonds, n) // check finds out whether it is true
		}
		return nil
	}}
}

// nodeGone notes that a node is gone, and what it had with it.
func (m *model) nodeGone(node string) {
	for _, v := range m.volumes {
		if b, ok := v.bonds[node]; ok {
			b.is = min(b.is, unsure)
			v.bonds[node] = b
		}
	}
}
