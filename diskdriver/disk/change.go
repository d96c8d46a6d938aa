package disk

import (
	"fmt"
	"strings"
)

// Change is what a VolumeAttributesClass asks of a disk. What it doesn't name
// stays as it is (CSI spec, ControllerModifyVolume).
type Change struct {
	Move     Move
	Bursting *bool    // nil: as it is
	Tag      Tags     // to be added or changed
	Untag    []string // keys to be removed, sorted
}

// TaskID is the ID of a task of ECS: a change that goes on after the call.
type TaskID string

// Steps is what is left to do of a change to one disk, in this order.
type Steps struct {
	Untag      []string
	Tag        Tags
	StopBurst  bool // before the move, for only some categories burst
	Move       Move
	StartBurst bool // after it
}

// Move is a disk's way to another category, level or provisioned IOPS; what it
// doesn't name stays.
type Move struct {
	Category Category
	Level    Level
	IOPS     *int64
}

// None says whether everything stays.
func (m Move) None() bool { return m == Move{} }

// String returns the move in words: cloud_auto with 5000 provisioned IOPS.
func (m Move) String() string {
	var words []string
	if m.Category != "" {
		words = append(words, string(m.Category))
	}
	if m.Level != "" {
		words = append(words, string(m.Level))
	}
	if m.IOPS != nil {
		words = append(words, fmt.Sprintf("%d provisioned IOPS", *m.IOPS))
	}
	return strings.Join(words, " ")
}

// Done says whether nothing is left to do.
func (s Steps) Done() bool {
	return len(s.Untag) == 0 && len(s.Tag) == 0 && !s.StopBurst && s.Move.None() && !s.StartBurst
}

// Plan returns what is left to do to a disk. What the disk can't become is
// Invalid: nothing of the change may be applied then (CSI spec,
// ControllerModifyVolume Errors). Whether ECS leads from one category to the
// other is left to ECS, which says so before anything is changed.
func (c Change) Plan(d Disk) (Steps, error) {
	var s Steps
	for _, plan := range []func(Change, Disk) error{s.tags, s.move, s.burst} {
		if err := plan(c, d); err != nil {
			return Steps{}, &Error{Disk: d.ID, Kind: Invalid, Err: err}
		}
	}
	return s, nil
}

// tags sets the tags that come and go.
func (s *Steps) tags(c Change, d Disk) error {
	after := d.Tags.And(nil)
	for _, name := range c.Untag {
		if _, ok := after[name]; ok {
			s.Untag = append(s.Untag, name)
			delete(after, name)
		}
	}
	for name, value := range c.Tag {
		if has, ok := after[name]; ok && has == value {
			continue
		}
		if s.Tag == nil {
			s.Tag = Tags{}
		}
		s.Tag[name], after[name] = value, value
	}
	if n := after.counted(); len(s.Tag) > 0 && n > MostTags {
		return fmt.Errorf("the disk would have %d tags; at most %d are allowed", n, MostTags)
	}
	return nil
}

// becomes returns the category and the level that the disk is to have.
func (c Change) becomes(d Disk) Choice {
	to := Choice{Category: d.Category, Level: d.PerformanceLevel}
	if c.Move.Category != "" && c.Move.Category != d.Category {
		to = Choice{Category: c.Move.Category}
		to.Level = to.level()
	}
	if c.Move.Level != "" {
		to.Level = c.Move.Level
	}
	return to
}

// move sets where the disk is to go, and refuses what no disk can be.
func (s *Steps) move(c Change, d Disk) error {
	from, to := Choice{Category: d.Category, Level: d.PerformanceLevel}, c.becomes(d)
	traits := categories[to.Category]
	if c.Move.Level != "" && traits.Levels == nil {
		return fmt.Errorf("mutable parameter performanceLevel: %q is not allowed for %s, which has no levels", c.Move.Level, to.Category)
	}
	if c.Move.IOPS != nil && *c.Move.IOPS > 0 && !traits.IOPS {
		return fmt.Errorf("mutable parameter provisionedIops: %d is not allowed for %s, which takes none", *c.Move.IOPS, to.Category)
	}
	if most := mostIOPS(d.Size); c.Move.IOPS != nil && *c.Move.IOPS > most {
		return fmt.Errorf("mutable parameter provisionedIops: %d is not allowed for %s of %d GiB; allowed are 0 to %d", *c.Move.IOPS, to.Category, d.Size, most)
	}
	if traits.IOPS && c.Move.IOPS != nil && (*c.Move.IOPS != d.ProvisionedIOPS || to.Category != from.Category) {
		s.Move.IOPS = c.Move.IOPS
	}
	if to == from {
		return nil
	}
	sizes := to.Sizes()
	switch {
	case d.MultiAttach:
		return fmt.Errorf("a disk for several nodes keeps its type, %s", from)
	case to.Category.Regional() != from.Category.Regional():
		return fmt.Errorf("%s can't become %s, for the volume could be reached from other zones than its PersistentVolume says", from, to)
	case d.Size < sizes.Least || d.Size > sizes.Most:
		return fmt.Errorf("the disk has %d GiB, and %s takes %s", d.Size, to, sizes)
	}
	if to.Category != from.Category {
		s.Move.Category = to.Category
	}
	s.Move.Level = to.Level
	return nil
}

// LeastToBurst is the smallest disk that bursts (CreateDisk, BurstingEnabled).
const LeastToBurst GiB = 4

// burst sets when bursting is to be switched.
func (s *Steps) burst(c Change, d Disk) error {
	to := c.becomes(d).Category
	bursts := categories[to].Bursting
	want := d.Bursting && bursts
	if c.Bursting != nil {
		want = *c.Bursting
	}
	switch {
	case want && !bursts:
		return fmt.Errorf(`mutable parameter burstingEnabled: "true" is not allowed for %s, which doesn't burst`, to)
	case want && d.Size < LeastToBurst:
		return fmt.Errorf(`mutable parameter burstingEnabled: "true" is not allowed for a disk of %d GiB; it takes %d`, d.Size, LeastToBurst)
	case want && d.MultiAttach:
		return fmt.Errorf(`mutable parameter burstingEnabled: "true" is not allowed for a disk for several nodes`)
	}
	s.StopBurst = d.Bursting && !want
	s.StartBurst = want && !d.Bursting
	return nil
}
