package diskdriver

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/volume"
	"github.com/topodisk/topodisk/ecssim"
)

// check says what must not be: ECS itself is out of order; a name has two disks;
// a disk is there that the CO neither knows nor would find by repeating a call;
// one is gone that nobody asked to delete; a disk is on a node that it was not
// published to, or not on one that it was.
func (w *world) check() error {
	wrong := []error{w.sim.Check()}
	there := map[string]ecssim.DiskState{}
	for _, d := range w.sim.Disks() {
		name, ours := marks(d)
		if !ours {
			continue
		}
		if other, twice := there[name]; twice {
			wrong = append(wrong, fmt.Errorf("%s has two disks: %s and %s", name, other.ID, d.ID))
		}
		there[name] = d
	}
	for _, v := range w.model.inOrder() {
		d, ok := there[v.csiName()]
		delete(there, v.csiName())
		wrong = append(wrong, v.against(w, d, ok))
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		wrong = append(wrong, fmt.Errorf("nobody knows the disk %s of %s", there[name].ID, name))
	}
	return errors.Join(append(wrong, w.checkShots())...)
}

func (m *model) inOrder() []*modelVolume {
	var list []*modelVolume
	for _, name := range slices.Sorted(maps.Keys(m.volumes)) {
		list = append(list, m.volumes[name])
	}
	return list
}

// against holds a volume against the disk of its name.
func (v *modelVolume) against(w *world, d ecssim.DiskState, there bool) error {
	switch {
	case there && v.phase == absent:
		return fmt.Errorf("%s is not there, but its disk %s is", v.name, d.ID)
	case !there && v.phase == present:
		return fmt.Errorf("%s has lost its disk %s", v.name, v.id)
	case !there || v.phase == creating:
		return nil
	case d.ID != v.id:
		return fmt.Errorf("%s has the disk %s, and should have %s", v.name, d.ID, v.id)
	case !v.size.holds(d.Size):
		return fmt.Errorf("%s has %d GiB, and should have %v", v.name, d.Size, v.size)
	}
	on := map[string]string{}
	for _, a := range d.Attachments {
		on[a.Instance] = a.Phase
		hidden := w.config.Doubts.HideDetaching && len(d.Attachments) > 1 && a.Phase == "Detaching" // no read can tell
		if v.bonds[a.Instance].is == off && !hidden {
			return fmt.Errorf("%s is %s on %s, where it isn't published", v.name, a.Phase, a.Instance)
		}
	}
	return v.bound(on)
}

// bound holds where the volume is published against where ECS has it.
func (v *modelVolume) bound(phases map[string]string) error {
	for node, b := range v.bonds {
		if b.is == on && phases[node] != "In_use" {
			return fmt.Errorf("%s is published to %s, and is %q there", v.name, node, phases[node])
		}
	}
	return nil
}

// checkShots is check for snapshots and groups of them.
func (w *world) checkShots() error {
	there := map[string][]string{} // IDs by name
	for _, n := range w.sim.Snapshots() {
		name, id := n.Tags[disk.SnapshotNameTag], n.ID
		if n.Group != "" {
			name, id = n.Tags[disk.GroupNameTag], n.Group
		}
		if name != "" && !slices.Contains(there[name], id) { // the others are temporary
			there[name] = append(there[name], id)
		}
	}
	var wrong []error
	for _, name := range slices.Sorted(maps.Keys(w.model.shots)) {
		s := w.model.shots[name]
		ids := there[s.csiName()]
		delete(there, s.csiName())
		switch {
		case len(ids) > 1:
			wrong = append(wrong, fmt.Errorf("%s is there more than once: %v", name, ids))
		case len(ids) == 1 && s.phase == absent:
			wrong = append(wrong, fmt.Errorf("%s is not there, but %s is", name, ids[0]))
		case len(ids) == 0 && s.phase == present:
			wrong = append(wrong, fmt.Errorf("%s has lost %s", name, s.id))
		}
	}
	for name, ids := range there {
		wrong = append(wrong, fmt.Errorf("nobody knows %v of %s", ids, name))
	}
	return errors.Join(wrong...)
}

// peace lets ECS be well, and repeats what is open until that is ended.
func (w *world) peace() error {
	w.net.worsen(0, 0, "")
	w.sim.ClearFaults()
	w.sim.Unstick("")
	w.must(w.sim.SetThrottle(ecssim.Throttle{}))
	for _, level := range w.sim.State().Stock {
		w.must(w.sim.SetStock(level.Zone, level.Category, ecssim.Unlimited))
	}
	for _, node := range walkNodes {
		w.instanceBecomes(node, "running")
	}
	w.repeats = w.repeats || w.scarce && w.config.BindFailedTokens
	w.scarce, w.calm = false, true
	defer func() { w.calm = false }()
	for tries := 0; ; tries++ {
		call := w.model.unended()
		switch {
		case call == "":
			w.stale, w.lag, w.echoes = false, 0, false
			w.must(w.sim.SetThrottle(w.config.Throttle))
			return nil
		case tries > mostTries:
			return fmt.Errorf("%s never ends", call)
		}
		if err := w.calls(call, "", 0); err != nil {
			return err
		}
		time.Sleep(betweenTries)
	}
}

// How often what is open is repeated in peace, all of it together, and how soon.
const (
	mostTries    = 1000
	betweenTries = 2 * time.Second
)

// unended is a call that has to be repeated; empty if none has.
func (m *model) unended() string {
	for _, v := range m.inOrder() {
		for _, node := range slices.Sorted(maps.Keys(v.bonds)) {
			b := v.bonds[node]
			switch {
			case b.is == unsure && b.last == "publish" && !b.refused && v.phase == present:
				return "publish " + v.name + " " + node + map[bool]string{true: " ro"}[b.readOnly]
			case b.is == unsure, b.is == on && v.phase == deleting:
				return "unpublish " + v.name + " " + node
			}
		}
		switch {
		case v.phase == creating:
			return "create " + v.name + " zones=" + v.zones
		case v.phase == deleting:
			return "delete " + v.name
		case v.size.least < v.size.most:
			return fmt.Sprintf("expand %s size=%dGi", v.name, v.size.most)
		case v.change != nil:
			return "modify " + v.name + " " + strings.Join(v.change, " ")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.shots)) {
		what := map[bool]string{true: "snapshot", false: "group"}[name[0] == 's']
		switch m.shots[name].phase {
		case creating:
			return what + " " + name + " -"
		case deleting:
			return "delete-" + what + " " + name
		}
	}
	return ""
}

// end deletes all that a walk has left, and says what is there still.
func (w *world) end() error {
	w.told = append(w.told, "the end")
	if err := w.peace(); err != nil {
		return err
	}
	time.Sleep(time.Minute)
	for _, v := range w.model.inOrder() {
		if v.phase == present {
			v.phase = deleting
		}
	}
	for _, s := range w.model.shots {
		if s.phase == present {
			s.phase = deleting
		}
	}
	if err := w.peace(); err != nil {
		return err
	}
	for range 2 { // the first one sees those that no call of this process was for
		time.Sleep(volume.OrphanKept)
		w.now.driver.controller.sweep(w.t.Context(), w.now.driver.inflight)
	}
	for _, d := range w.sim.Disks() {
		if _, ours := marks(d); ours {
			return fmt.Errorf("the disk %s is left", d.ID)
		}
	}
	for _, n := range w.sim.Snapshots() {
		return fmt.Errorf("the snapshot %s is left: %v", n.ID, n.Tags)
	}
	return nil
}
