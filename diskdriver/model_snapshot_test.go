package diskdriver

import (
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/topodisk/topodisk/ecssim"
)

// shot is a snapshot, or a group of them, as the CO knows it.
type shot struct {
	name    string
	phase   phase
	id      string
	sources []string // IDs of volumes
	members []string // IDs of a group's snapshots
	used    int
}

func (s *shot) csiName() string { return fmt.Sprintf("%s-%d", s.name, s.used/2) }

// create asks for a snapshot of a volume, or for a group of some.
func (s *shot) create(w *world, what, volumes string) *call {
	before := s.phase
	switch before {
	case deleting:
		return nil
	case absent:
		s.sources = nil
		for name := range strings.SplitSeq(volumes, ",") {
			id := w.model.idOf(name)
			if id == "" {
				return nil
			}
			s.sources = append(s.sources, id)
		}
		s.phase = creating
	}
	c := &call{method: "CreateSnapshot", req: &csi.CreateSnapshotRequest{Name: s.csiName(), SourceVolumeId: s.sources[0]}}
	if what == "group" {
		c.method, c.req = "CreateVolumeGroupSnapshot", &csi.CreateVolumeGroupSnapshotRequest{Name: s.csiName(), SourceVolumeIds: s.sources}
	}
	c.ended = func(w *world, answer any, err error) error { return s.created(w, before, answer, err) }
	return c
}

// created is what the answer to a create means.
func (s *shot) created(w *world, before phase, answer any, err error) error {
	failing := w.failing("CreateSnapshot") || w.failing("CreateSnapshotGroup")
	switch code := status.Code(err); {
	case err == nil:
		return s.exists(w, before, answer)
	case open(err):
		return nil
	case code == codes.Internal && failing, // it has failed
		w.unseen(err), code == codes.NotFound && !s.hasSources(w),
		code == codes.FailedPrecondition: // never attached, or disks that don't go together
		s.phase = before
		if w.calm {
			s.phase = absent
		}
		return nil
	}
	return err
}

// hasSources says whether all that is to be in the snapshots is there.
func (s *shot) hasSources(w *world) bool {
	for _, id := range s.sources {
		if !slices.ContainsFunc(w.sim.Disks(), func(d ecssim.DiskState) bool { return d.ID == id }) {
			return false
		}
	}
	return true
}

// exists holds what the driver says is there against ECS.
func (s *shot) exists(w *world, before phase, answer any) error {
	var id string
	var members []string
	switch a := answer.(type) {
	case *csi.CreateSnapshotResponse:
		id = a.GetSnapshot().GetSnapshotId()
		members = []string{id}
	case *csi.CreateVolumeGroupSnapshotResponse:
		id = a.GetGroupSnapshot().GetGroupSnapshotId()
		for _, member := range a.GetGroupSnapshot().GetSnapshots() {
			members = append(members, member.GetSnapshotId())
		}
	}
	if before == present && s.id != id {
		return fmt.Errorf("it was %s, and is %s now", s.id, id)
	}
	s.phase, s.id, s.members = present, id, members
	for _, member := range members {
		if !slices.ContainsFunc(w.sim.Snapshots(), func(n ecssim.SnapshotState) bool { return n.ID == member && slices.Contains(s.sources, n.Disk) }) {
			return fmt.Errorf("there is no snapshot %s of any of %v", member, s.sources)
		}
	}
	if len(members) != len(s.sources) {
		return fmt.Errorf("%d snapshots of %d volumes", len(members), len(s.sources))
	}
	return nil
}

func (s *shot) delete(verb string) *call {
	if s.phase != present && s.phase != deleting {
		return nil
	}
	s.phase = deleting
	c := &call{method: "DeleteSnapshot", req: &csi.DeleteSnapshotRequest{SnapshotId: s.id}}
	if verb == "delete-group" {
		c.method, c.req = "DeleteVolumeGroupSnapshot", &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: s.id, SnapshotIds: s.members}
	}
	c.ended = func(_ *world, _ any, err error) error {
		switch {
		case open(err):
			return nil
		case err != nil:
			return err
		}
		*s = shot{name: s.name, used: s.used + 1} // check finds out whether it is true
		return nil
	}
	return c
}

// read makes a call that changes nothing, or sweeps.
func (m *model) read(w *world, words []string, busy map[string]bool) *call {
	c := &call{ended: func(_ *world, _ any, err error) error {
		if open(err) {
			return nil
		}
		return err
	}}
	switch words[0] {
	case "sweep":
		c.sweeps = true
	case "capacity":
		c.method, c.req = "GetCapacity", w.capacityRequest(words[1:])
	case "list-snapshots":
		c.method, c.req = "ListSnapshots", &csi.ListSnapshotsRequest{}
	case "list":
		c.method, c.req = "ListVolumes", &csi.ListVolumesRequest{}
		c.ended = func(w *world, answer any, err error) error {
			if err != nil || w.stale {
				if open(err) || w.shownNothing(err) {
					return nil
				}
				return err
			}
			return holdsAll(answer.(*csi.ListVolumesResponse), m.steady(busy))
		}
	}
	return c
}

// steady are the volumes that no call works on, with the nodes that have them
// for sure.
func (m *model) steady(busy map[string]bool) map[string][]string {
	known := map[string][]string{}
	for _, v := range m.volumes {
		if v.phase != present || busy[v.name] {
			continue
		}
		known[v.id] = nil
		for node, b := range v.bonds {
			if b.is == on {
				known[v.id] = append(known[v.id], node)
			}
		}
	}
	return known
}

// holdsAll holds a list of volumes against what is known to be there.
func holdsAll(list *csi.ListVolumesResponse, known map[string][]string) error {
	listed := map[string][]string{}
	for _, e := range list.GetEntries() {
		id := e.GetVolume().GetVolumeId()
		if _, twice := listed[id]; twice {
			return fmt.Errorf("%s is listed twice", id)
		}
		listed[id] = e.GetStatus().GetPublishedNodeIds()
	}
	for id, nodes := range known {
		got, ok := listed[id]
		if !ok {
			return fmt.Errorf("%s is not listed", id)
		}
		for _, node := range nodes {
			if !slices.Contains(got, node) {
				return fmt.Errorf("%s is listed on %v, not on %s", id, got, node)
			}
		}
	}
	return nil
}
