package diskdriver

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
)

// model is what a CO knows by the driver's answers.
type model struct {
	volumes map[string]*modelVolume
	shots   map[string]*shot // snapshots and groups
}

// phase is what is known of a thing's life.
type phase int

const (
	absent   phase = iota
	creating       // it may be there
	present
	deleting // it may be gone
)

// volume is a volume as the CO knows it.
type modelVolume struct {
	name    string
	phase   phase
	id      string
	words   []string // of the call that creates it, but for the zones
	zones   string
	used    int       // how often a volume of this name was deleted
	gone    time.Time // the last time
	changed bool      // since it was created
	size    span
	change  []string // words of a change that may have been made
	bonds   map[string]bond
}

// span is a size that is known no closer, in GiB.
type span struct{ least, most int64 }

// bond is what is known of a volume and a node.
type bond struct {
	is       hold
	readOnly bool
	last     string    // publish or unpublish
	asked    time.Time // the first unpublish since the last publish that was OK
	refused  bool      // the last call was, for good
	either   bool      // of calls whose end is not known one was for reading and one for writing
}

type hold int

const (
	off hold = iota
	unsure
	on
)

func newModel() *model {
	m := &model{volumes: map[string]*modelVolume{}, shots: map[string]*shot{}}
	for name := range walkVolumes {
		m.volumes[name] = &modelVolume{name: name, bonds: map[string]bond{}}
	}
	for _, name := range slices.Concat(walkSnapshots, walkGroups) {
		m.shots[name] = &shot{name: name}
	}
	return m
}

// csiName is the volume's name to the driver: a name comes again once.
func (v *modelVolume) csiName() string { return fmt.Sprintf("%s-%d", v.name, v.used/2) }

// open says whether the answer to a call is no answer: the call has to come again.
func open(err error) bool {
	switch status.Code(err) {
	case codes.Aborted, codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	}
	return false
}

// begin notes that a call is made, and returns it; nil if nobody would make it
// now, or if a call at the same time is about the same thing.
func (m *model) begin(w *world, words []string, busy map[string]bool) *call {
	name := ""
	if len(words) > 1 {
		name = words[1]
	}
	if busy[name] && name != "" {
		return nil
	}
	c := m.call(w, words, name, busy)
	if c == nil {
		return nil
	}
	busy[name] = true
	if c.timeout == 0 {
		c.timeout = time.Minute
	}
	for _, word := range words {
		if value, ok := strings.CutPrefix(word, "timeout="); ok {
			d, err := time.ParseDuration(value)
			w.must(err)
			c.timeout = d
		}
	}
	return c
}

func (m *model) call(w *world, words []string, name string, busy map[string]bool) *call {
	v, s := m.volumes[name], m.shots[name]
	switch words[0] {
	case "create":
		return v.create(w, words[2:])
	case "delete":
		return v.delete()
	case "publish":
		return v.publish(w, words[2], slices.Contains(words, "ro"))
	case "unpublish":
		node := ""
		if len(words) > 2 && strings.HasPrefix(words[2], "i-") {
			node = words[2]
		}
		return v.unpublish(node)
	case "expand":
		return v.expand(w, words[2])
	case "modify":
		return v.modify(words[2:])
	case "get":
		return v.get()
	case "snapshot", "group":
		return s.create(w, words[0], words[2])
	case "delete-snapshot", "delete-group":
		return s.delete(words[0])
	case "list", "list-snapshots", "capacity", "sweep":
		return m.read(w, words, busy)
	}
	w.t.Fatalf("%q is no call", words)
	return nil
}

// disk is the volume's disk in ECS.
func (v *modelVolume) disk(w *world) (ecssim.DiskState, bool) {
	for _, d := range w.sim.Disks() {
		if d.ID == v.id {
			return d, true
		}
	}
	return ecssim.DiskState{}, false
}

// create asks for the volume as it was asked for first. Until it is there the
// zones may be others: its Pod was rescheduled.
func (v *modelVolume) create(w *world, words []string) *call {
	before := v.phase
	switch {
	case before == deleting, before == present && v.changed, before == absent && time.Since(v.gone) < mostLag:
		return nil // a name comes again when ECS doesn't show any more what is gone
	case before == absent && !v.ask(w, words):
		return nil
	case before == creating:
		v.ask(w, words[:1])
	}
	req := w.createRequest(v.csiName(), v.words)
	req.AccessibilityRequirements = zoneRequirement(v.zones)
	if before == absent {
		v.phase = creating
	}
	return &call{method: "CreateVolume", req: req, timeout: 150 * time.Second, ended: func(w *world, answer any, err error) error {
		return v.created(w, before, answer, err)
	}}
}

// ask settles what the volume is to be; false if it is to be made from something
// that isn't there.
func (v *modelVolume) ask(w *world, words []string) bool {
	v.zones = strings.TrimPrefix(words[0], "zones=")
	class := strings.Fields(walkVolumes[v.name])
	source := ""
	for _, word := range words[1:] {
		if name, ok := strings.CutPrefix(word, "source="); ok {
			source = w.model.idOf(name)
			if source == "" {
				return false
			}
			class = slices.DeleteFunc(class, func(word string) bool { return strings.HasPrefix(word, "size=") })
			class = append(class, "source="+source)
		}
	}
	if len(words) > 1 || v.phase == absent {
		v.words = class
	}
	return true
}

// idOf is the ID of what is there.
func (m *model) idOf(name string) string {
	if v := m.volumes[name]; v != nil && v.phase == present {
		return v.id
	}
	if s := m.shots[name]; s != nil && s.phase == present {
		return s.id
	}
	return ""
}

// source is the ID of what the volume is made from.
func (v *modelVolume) source() string {
	for _, word := range v.words {
		if id, ok := strings.CutPrefix(word, "source="); ok {
			return id
		}
	}
	return ""
}

// created is what the answer to a create means. Only a volume, or the proof that
// there is none, ends a create that was open.
func (v *modelVolume) created(w *world, before phase, answer any, err error) error {
	switch code := status.Code(err); {
	case err == nil:
		return v.exists(w, before, answer.(*csi.CreateVolumeResponse).GetVolume())
	case open(err):
		return nil
	case code == codes.ResourceExhausted && (w.scarce || w.repeats) && before != present:
		v.over(absent)
		return nil
	case (code == codes.NotFound || code == codes.FailedPrecondition || code == codes.InvalidArgument) && v.source() != "" && before != present:
		// What it was to be made from is gone, or can't be copied.
		if w.calm {
			before = absent
		}
		v.over(before)
		return nil
	case code == codes.AlreadyExists && before == creating && v.followShared(w):
		return nil
	}
	return err
}

// followShared asks for the volume where its disk is, and says whether that is another zone and the disk may have several instances:
// whether one of an earlier process was ever attached doesn't show, so it is named and not deleted.
func (v *modelVolume) followShared(w *world) bool {
	for _, d := range w.sim.Disks() {
		if d.MultiAttach && d.Tags[disk.VolumeNameTag] == v.csiName() && !v.isIn(d.Zone) {
			v.zones = strings.TrimPrefix(d.Zone, "cn-hangzhou-")
			return true
		}
	}
	return false
}

// isIn says whether the volume was asked for in the zone.
func (v *modelVolume) isIn(zone string) bool {
	return slices.Contains(strings.Split(v.zones, ","), strings.TrimPrefix(zone, "cn-hangzhou-"))
}

// over ends a create that was refused. Whoever wants a copy of something else
// then uses another name.
func (v *modelVolume) over(now phase) {
	v.phase = now
	if v.phase == absent && v.source() != "" {
		v.used += 2
	}
}

// exists holds a volume that the driver says is there against ECS.
func (v *modelVolume) exists(w *world, before phase, got *csi.Volume) error {
	if before == present && v.id != got.GetVolumeId() {
		return fmt.Errorf("the volume was %s, and is %s now", v.id, got.GetVolumeId())
	}
	v.phase, v.id = present, got.GetVolumeId()
	d, ok := v.disk(w)
	switch {
	case !ok:
		return fmt.Errorf("there is no disk %s", v.id)
	case d.Zone != "" && !v.isIn(d.Zone):
		return fmt.Errorf("the disk is in %s", d.Zone)
	case int64(d.Size)<<30 != got.GetCapacityBytes():
		return fmt.Errorf("the disk has %d GiB, and the answer is %d bytes", d.Size, got.GetCapacityBytes())
	}
	v.size = span{int64(d.Size), int64(d.Size)}
	return nil
}

func (v *modelVolume) delete() *call {
	if v.phase != present && v.phase != deleting {
		return nil
	}
	before := v.phase
	v.phase = deleting
	return &call{method: "DeleteVolume", req: &csi.DeleteVolumeRequest{VolumeId: v.id}, ended: func(w *world, _ any, err error) error {
		d, there := v.disk(w)
		switch {
		case open(err), w.shownNothing(err):
			return nil
		case err == nil && there:
			return fmt.Errorf("disk %s is there still", d.ID)
		case err == nil && v.held(w):
			return fmt.Errorf("disk %s was deleted from under a node: %v", v.id, v.bonds)
		case err == nil:
			*v = modelVolume{name: v.name, used: v.used + 1, gone: time.Now(), bonds: map[string]bond{}}
			return nil
		case status.Code(err) == codes.FailedPrecondition && len(d.Attachments) > 0:
			if !w.echoes {
				v.phase = before
			}
			return nil
		}
		return err
	}}
}

// held says whether a node that is there has the volume for sure.
func (v *modelVolume) held(w *world) bool {
	for node, b := range v.bonds {
		if b.is == on && w.hasNode(node) {
			return true
		}
	}
	return false
}

func (w *world) hasNode(node string) bool {
	return slices.ContainsFunc(w.sim.State().Instances, func(i ecssim.InstanceState) bool { return i.ID == node })
}

// runsInPart says whether some of the instances that have the disk run, and others don't.
func (v *modelVolume) runsInPart(w *world) bool {
	d, _ := v.disk(w)
	statuses := map[string]bool{}
	for _, i := range w.sim.State().Instances {
		if slices.ContainsFunc(d.Attachments, func(a ecssim.AttachmentState) bool { return a.Instance == i.ID }) {
			statuses[i.Status] = true
		}
	}
	return len(statuses) > 1
}

func (v *modelVolume) expand(w *world, word string) *call {
	if v.phase != present {
		return nil
	}
	want := w.bytes(strings.TrimPrefix(word, "size="))
	before := v.size
	v.changed = true
	v.size.most = max(v.size.most, want>>30)
	req := &csi.ControllerExpandVolumeRequest{VolumeId: v.id, CapacityRange: &csi.CapacityRange{RequiredBytes: want}, VolumeCapability: w.capability(v.words)}
	return &call{method: "ControllerExpandVolume", req: req, ended: func(w *world, answer any, err error) error {
		switch {
		case open(err), w.unseen(err):
			return nil
		case status.Code(err) == codes.FailedPrecondition && w.config.Doubts.RefuseSharedOnlineResize && v.name == "v2":
			v.size = before
			if d, _ := v.disk(w); w.calm && before.holds(d.Size) {
				v.size = span{int64(d.Size), int64(d.Size)} // no retry tells whether an earlier call took effect
			}
			return nil
		case status.Code(err) == codes.FailedPrecondition && v.runsInPart(w):
			return nil
		case err != nil:
			return err
		}
		d, _ := v.disk(w)
		got := answer.(*csi.ControllerExpandVolumeResponse).GetCapacityBytes()
		// What is large enough isn't made larger, so no more than a read tells its
		// size: one that lags shows the size before it grew, never one too small.
		if got < want || got > int64(d.Size)<<30 || got < int64(d.Size)<<30 && !w.stale {
			return fmt.Errorf("the disk has %d GiB, and the answer is %d bytes", d.Size, got)
		}
		v.size.least = max(v.size.least, got>>30)
		return nil
	}}
}

func (v *modelVolume) modify(words []string) *call {
	if v.phase != present {
		return nil
	}
	v.changed, v.change = true, words
	req := &csi.ControllerModifyVolumeRequest{VolumeId: v.id, MutableParameters: parametersOf(words)}
	return &call{method: "ControllerModifyVolume", req: req, ended: func(w *world, _ any, err error) error {
		switch code := status.Code(err); {
		case open(err), w.unseen(err):
			return nil
		case code == codes.InvalidArgument, code == codes.FailedPrecondition, code == codes.ResourceExhausted && w.scarce:
			v.change = nil
			return nil
		case code == codes.Internal && w.failing("ModifyDiskSpec"):
			v.change = nil
			return nil
		case err != nil:
			return err
		}
		v.change = nil
		return v.modified(w, req.GetMutableParameters())
	}}
}

// modified holds what the driver says it has changed against ECS.
func (v *modelVolume) modified(w *world, parameters map[string]string) error {
	d, _ := v.disk(w)
	for name, want := range parameters {
		got := want
		switch name {
		case "type":
			got = d.Category
		case "performanceLevel":
			got = d.PerformanceLevel
		case "diskTags/team":
			got = d.Tags["team"]
		case "-diskTags/team":
			got = d.Tags["team"]
		}
		if got != want {
			return fmt.Errorf("%s is %q", name, got)
		}
	}
	return nil
}

// get reads a volume that is there.
func (v *modelVolume) get() *call {
	if v.phase != present {
		return nil
	}
	return &call{method: "ControllerGetVolume", req: &csi.ControllerGetVolumeRequest{VolumeId: v.id}, ended: func(w *world, _ any, err error) error {
		if open(err) || w.unseen(err) {
			return nil
		}
		return err
	}}
}

// unseen says whether an error may come from reads that lag.
func (w *world) unseen(err error) bool {
	return w.stale && status.Code(err) == codes.NotFound || w.shownNothing(err)
}

// holds says whether a disk may be so large.
func (s span) holds(size int) bool { return s.least <= int64(size) && int64(size) <= s.most }

// marks are the tags of a disk that say whose it is.
func marks(d ecssim.DiskState) (name string, ours bool) {
	return d.Tags[disk.VolumeNameTag], d.Tags[disk.ClusterTag] == cluster
}
