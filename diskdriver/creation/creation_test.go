package creation

import (
	"testing"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

const name = "disk-1"

// moment is a time of a test, in seconds from its beginning.
func moment(seconds float64) time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

// TestSteps tells short lives of a name, and what is next at the end of each.
func TestSteps(t *testing.T) {
	looked := func(at float64, found bool) func(*Record) {
		return func(r *Record) { r.looked(moment(at), found) }
	}
	answered := func(at float64, a Answer) func(*Record) {
		return func(r *Record) { r.answered(moment(at), a) }
	}
	deleted := func(at float64, id disk.ID) func(*Record) {
		return func(r *Record) { r.Returned("d-1"); r.Deleted(moment(at), id) }
	}
	for life, test := range map[string]struct {
		first      bool
		events     []func(*Record)
		at         float64
		seen       sight // by the call at that time
		next       step
		mayExist   bool
		generation int
	}{
		"a first call":                              {first: true, next: create},
		"a name of others":                          {next: look, mayExist: true},
		"it doesn't show":                           {events: []func(*Record){looked(0, false)}, seen: noneShown, next: create, mayExist: true},
		"it would show":                             {events: []func(*Record){looked(80, false)}, at: 80, seen: noneShown, next: create},
		"it was refused at first":                   {first: true, events: []func(*Record){answered(1, Refused)}, at: 2, next: create},
		"of others, it was refused":                 {events: []func(*Record){looked(0, false), answered(1, Refused)}, at: 2, next: look, mayExist: true},
		"of others, refused, and would show":        {events: []func(*Record){looked(0, false), answered(1, Refused), looked(80, false)}, at: 80, seen: noneShown, next: create},
		"it was made":                               {first: true, events: []func(*Record){answered(1, Made)}, at: 2, next: look, mayExist: true},
		"it was made, and is gone":                  {first: true, events: []func(*Record){answered(1, Made), looked(61, false)}, at: 61, seen: noneShown, next: create},
		"nobody knows":                              {first: true, events: []func(*Record){answered(1, Unclear)}, at: 2, next: look, mayExist: true},
		"nobody knows, and it doesn't show":         {first: true, events: []func(*Record){answered(1, Unclear), looked(80, false)}, at: 80, seen: noneShown, next: create, mayExist: true},
		"nobody knows, and it would show":           {first: true, events: []func(*Record){answered(1, Unclear), looked(81, false)}, at: 81, seen: noneShown, next: create},
		"the token is used":                         {first: true, events: []func(*Record){answered(1, Used)}, at: 1, next: look, mayExist: true},
		"the token is used, and nothing shows":      {first: true, events: []func(*Record){answered(1, Used), looked(60, false)}, at: 60, seen: noneShown, next: wait, mayExist: true},
		"the token is used, and its disk is gone":   {first: true, events: []func(*Record){answered(1, Used), looked(61, false)}, at: 61, seen: noneShown, next: create, generation: 2},
		"a refusal has used the token":              {first: true, events: []func(*Record){answered(1, Refused), answered(2, Used)}, at: 2, next: create, generation: 2},
		"after a refusal a disk is made and unseen": {first: true, events: []func(*Record){answered(1, Refused), answered(2, Unseen)}, at: 2, seen: noneShown, next: wait, mayExist: true},
		"a refusal or another call has":             {events: []func(*Record){looked(0, false), answered(1, Refused), answered(2, Used)}, at: 2, seen: noneShown, next: wait, mayExist: true},
		"a doubtful call after a refusal has":       {first: true, events: []func(*Record){answered(1, Refused), answered(2, Unclear), answered(3, Used)}, at: 3, seen: noneShown, next: wait, mayExist: true},
		"the disk was deleted as misplaced":         {first: true, events: []func(*Record){answered(1, Made), (*Record).Gone}, at: 2, next: look, mayExist: true, generation: 2},
		"the caller deletes what was made":          {first: true, events: []func(*Record){answered(1, Made), deleted(2, "d-1")}, at: 2, next: create, generation: 2},
		"it deletes another disk":                   {first: true, events: []func(*Record){answered(1, Made), deleted(2, "d-2")}, at: 2, next: look, mayExist: true},
		"it deletes it twice":                       {first: true, events: []func(*Record){answered(1, Made), deleted(2, "d-1"), func(r *Record) { r.Deleted(moment(2), "d-1") }}, at: 2, next: create, generation: 2},
		"it deletes what an earlier call may have made": {
			first: true, events: []func(*Record){answered(1, Unclear), answered(2, Made), deleted(3, "d-1")}, at: 3, next: look, mayExist: true, generation: 2,
		},
		"it deletes what was shown of others":         {events: []func(*Record){looked(1, true), deleted(3, "d-1")}, at: 3, next: look, mayExist: true, generation: 2},
		"it deletes what was made and shown":          {first: true, events: []func(*Record){answered(1, Made), looked(2, true), deleted(3, "d-1")}, at: 3, next: create, generation: 2},
		"ECS may have forgotten the token":            {first: true, events: []func(*Record){answered(1, Refused)}, at: 220, seen: noneShown, next: look},
		"ECS knows the token still":                   {first: true, events: []func(*Record){answered(1, Refused)}, at: 219, next: create},
		"of others, and the keys may not list":        {seen: hidden, next: wait, mayExist: true},
		"it didn't show, and the keys may not list":   {events: []func(*Record){looked(0, false)}, at: 219, seen: hidden, next: create, mayExist: true},
		"the same, and ECS may have forgotten":        {events: []func(*Record){looked(0, false)}, at: 220, seen: hidden, next: wait, mayExist: true},
		"the token is used, and the keys may not":     {first: true, events: []func(*Record){answered(1, Used)}, at: 1, seen: hidden, next: wait, mayExist: true},
		"it shows, so its token may be of any age":    {events: []func(*Record){looked(0, true)}, at: 1, seen: noneShown, next: look, mayExist: true},
		"a later answer doesn't bring the proof near": {first: true, events: []func(*Record){answered(1, Unclear), answered(2, Made), looked(80, false)}, at: 80, seen: noneShown, next: create, mayExist: true},
	} {
		t.Run(life, func(t *testing.T) {
			table := NewTable()
			table.begin(name, "A", test.first, moment(0))
			for _, event := range test.events {
				table.Update(name, moment(0), event)
			}
			r := table.Of(name, moment(0))
			if got := r.next(moment(test.at), test.seen); got != test.next {
				t.Errorf("next is step %d, want %d", got, test.next)
			}
			if got := r.MayExist(); got != test.mayExist {
				t.Errorf("a disk may exist: %v, want %v", got, test.mayExist)
			}
			if want := max(test.generation, 1); int(r.generation) != want {
				t.Errorf("the token is of generation %d, want %d", r.generation, want)
			}
		})
	}
}

func TestFirstCallIsNotBelievedAgainstMemory(t *testing.T) {
	table := NewTable()
	table.begin(name, "A", true, moment(0))
	table.Update(name, moment(1), func(r *Record) { r.answered(moment(1), Unclear) })
	table.begin(name, "A", true, moment(2))
	if r := table.Of(name, moment(2)); !r.MayExist() || r.next(moment(2), unread) != look {
		t.Errorf("it is %+v", r)
	}
}

// The process that has asked before may have asked another driver meanwhile.
func TestMemoryIsOfOneCaller(t *testing.T) {
	table := NewTable()
	table.begin(name, "A", false, moment(0))
	table.Update(name, moment(80), func(r *Record) { r.looked(moment(80), false) })
	table.begin(name, "A", false, moment(100))
	if r := table.Of(name, moment(100)); r.MayExist() {
		t.Errorf("the same caller: %+v", r)
	}
	table.begin(name, "B", false, moment(110))
	if r := table.Of(name, moment(110)); !r.MayExist() || r.next(moment(110), unread) != look || r.Provable() != moment(190) {
		t.Errorf("another caller: %+v", r)
	}
}

func TestWhatNobodyCanKnow(t *testing.T) {
	table := NewTable()
	unheard := func(made float64) bool {
		r := table.Of(name, moment(20))
		return r.Unheard(moment(made))
	}
	table.begin(name, "A", false, moment(10))
	table.begin(name, "A", false, moment(12))
	if unheard(9) || !unheard(11) {
		t.Error("another process can know what was made before the first call, and not what was made after it")
	}
	table.begin(name, "B", false, moment(13))
	if unheard(11) || !unheard(14) {
		t.Error("the caller before can know what was made in its time alone")
	}
	table.Update(name, moment(15), func(r *Record) { r.Returned("d-1") })
	if unheard(14) {
		t.Error("a caller knows what a call has returned")
	}
	table = NewTable()
	if unheard(19) {
		t.Error("of a name that isn't known another process can know anything")
	}
}

func TestForgottenNameIsOneThatIsNotKnown(t *testing.T) {
	table := NewTable()
	table.begin("old", "A", true, moment(0))
	table.Update("old", moment(0), (*Record).Gone)
	hour := forgetAfter.Seconds()
	table.begin("young", "A", true, moment(hour/2))
	table.begin("new", "A", true, moment(hour+1))
	now := moment(hour + 2)
	if old := table.Of("old", now); len(table.records) != 2 || old != unknown(now) {
		t.Errorf("%d names are known; of a forgotten one: %+v", len(table.records), old)
	}
	if young := table.Of("young", now); young.MayExist() {
		t.Errorf("a name is forgotten early: %+v", young)
	}
}
