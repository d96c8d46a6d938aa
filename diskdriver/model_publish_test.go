package diskdriver

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (v *modelVolume) publish(w *world, node string, readOnly bool) *call {
	if v.phase != present {
		return nil
	}
	before := v.bonds[node]
	if time.Now().Before(before.late) {
		return nil // a CO asks again for what has no answer yet before it asks for the opposite
	}
	now := bond{is: max(before.is, unsure), readOnly: readOnly, last: "publish", either: before.is == unsure && (before.either || before.readOnly != readOnly)}
	if before.is == on {
		now = before
	}
	v.bonds[node] = now
	blind := w.blind()
	req := &csi.ControllerPublishVolumeRequest{VolumeId: v.id, NodeId: node, Readonly: readOnly, VolumeCapability: w.capability(v.words)}
	return &call{method: "ControllerPublishVolume", req: req, ended: func(w *world, _ any, err error) error {
		if err == nil {
			return v.published(w, node, before, readOnly, blind)
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
	now := bond{is: off, readOnly: readOnly, last: "publish"}
	if time.Since(w.now.active) < newLease { // what another replica was called for before may be recorded late
		now.either = before.is == unsure && before.readOnly != readOnly
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
	if before.is == on && before.readOnly != readOnly && !blind {
		return fmt.Errorf("it was published with readonly %v before", before.readOnly)
	}
	v.bonds[node] = now
	return nil
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
		code == codes.NotFound && (w.stale || !w.hasNode(node)),
		code == codes.ResourceExhausted && node == "i-small":
		return nil
	}
	return err
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
		v.bonds[n] = bond{is: min(b.is, unsure), readOnly: b.readOnly, last: "unpublish", either: b.either, late: b.late}
	}
	req := &csi.ControllerUnpublishVolumeRequest{VolumeId: v.id, NodeId: node}
	return &call{method: "ControllerUnpublishVolume", req: req, ended: func(w *world, _ any, err error) error {
		switch {
		case open(err):
			v.noteLate(w, nodes)
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

// noteLate notes that what a replica sent in its last moments to take the volume from nodes may still arrive.
func (v *modelVolume) noteLate(w *world, nodes []string) {
	for _, n := range nodes {
		if b := v.bonds[n]; w.now.deposed.Load() {
			b.late = time.Now().Add(callersGo + travels)
			v.bonds[n] = b
		}
	}
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
