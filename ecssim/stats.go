package ecssim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim/actions"
	"github.com/topodisk/topodisk/ecssim/faults"
)

// Stats are counts since the start, or since ResetStats.
type Stats struct {
	Calls      int            `json:"calls"`      // all requests
	Actions    []ActionStats  `json:"actions"`    // by action, "" for requests that named none
	Throttled  int            `json:"throttled"`  // refused with a code of ThrottleCodes, or with any that begins with Throttling
	Faults     map[string]int `json:"faults"`     // calls that a fault hit, by its Do
	MostAtOnce int            `json:"mostAtOnce"` // requests that were under way together
	// Connections are those that requests came over, if Connected marks them.
	Connections int `json:"connections"`

	Volumes        int         `json:"volumes"`        // disks that were made or named
	CallsPerVolume float64     `json:"callsPerVolume"` // calls to ECS divided by Volumes
	OwnCalls       map[int]int `json:"ownCalls"`       // how many disks had how many calls that named them alone
	// BatchSizes has for each read how many of its calls named how many IDs.
	BatchSizes map[string]map[int]int `json:"batchSizes"`
}

// ActionStats are the counts of one action.
type ActionStats struct {
	Action string         `json:"action"`
	Codes  map[string]int `json:"codes"` // "" for success
	Calls  int            `json:"calls"`
	Mean   time.Duration  `json:"meanNanoseconds"` // from a request's arrival to its reply
	Most   time.Duration  `json:"mostNanoseconds"`
	// Took has how many calls took at most 1, 2, 4, 8 ... milliseconds, and
	// more than half of that.
	Took map[string]int `json:"took"`
}

// keptVolumes is of how many disks that don't exist VolumeCalls knows.
const keptVolumes = 1000

// statistics is what Stats are made from.
type statistics struct {
	actions map[string]*ActionStats
	faults  map[string]int
	// volumes are the calls that named a disk alone, by disk and action: of
	// disks that exist, and of the last keptVolumes others.
	volumes map[string]map[string]int
	gone    []string    // those others, in the order of their first call without the disk
	retired map[int]int // of the others before: how many had how many calls
	batches map[string]map[int]int
	active  int
	most    int

	connections int
}

func newStatistics() statistics {
	return statistics{
		actions: map[string]*ActionStats{}, faults: map[string]int{}, volumes: map[string]map[string]int{}, batches: map[string]map[int]int{},
		retired: map[int]int{},
	}
}

// enter counts a request as in flight; leave ends that when it was answered or
// its caller hung up.
func (t *statistics) enter() {
	t.active++
	t.most = max(t.most, t.active)
}

func (t *statistics) leave() { t.active-- }

// count counts a call.
func (t *statistics) count(c Call) {
	a := t.actions[c.Action]
	if a == nil {
		a = &ActionStats{Action: c.Action, Codes: map[string]int{}, Took: map[string]int{}}
		t.actions[c.Action] = a
	}
	a.Calls++
	a.Codes[c.Code]++
	a.Mean += c.Took // the sum, until somebody looks
	a.Most = max(a.Most, c.Took)
	a.Took[atMost(c.Took)]++
	if c.Fault != "" {
		t.faults[c.Fault]++
	}
	if n, ok := batchSize(c.Params); ok {
		if t.batches[c.Action] == nil {
			t.batches[c.Action] = map[int]int{}
		}
		t.batches[c.Action][n]++
	}
	if c.Disk != "" {
		if t.volumes[c.Disk] == nil {
			t.volumes[c.Disk] = map[string]int{}
		}
		t.volumes[c.Disk][c.Action]++
	}
}

// diskGone says that a disk whose calls were counted does not exist. Of the
// oldest such disk the number of calls is kept alone; if it is named once
// more, it counts as another disk.
func (t *statistics) diskGone(disk string) {
	if t.volumes[disk] == nil || slices.Contains(t.gone, disk) {
		return
	}
	t.gone = append(t.gone, disk)
	if len(t.gone) > keptVolumes {
		t.retired[sum(t.volumes[t.gone[0]])]++
		delete(t.volumes, t.gone[0])
		t.gone = slices.Delete(t.gone, 0, 1)
	}
}

func sum(counts map[string]int) int {
	n := 0
	for _, count := range counts {
		n += count
	}
	return n
}

// atMost is the bucket of a duration.
func atMost(d time.Duration) string {
	limit := time.Millisecond
	for d > limit {
		limit *= 2
	}
	return fmt.Sprintf("%dms", limit.Milliseconds())
}

// batchSize is how many IDs a read names.
func batchSize(params map[string]string) (int, bool) {
	for _, name := range []string{"DiskIds", "SnapshotIds", "InstanceIds"} {
		if ids := params[name]; ids != "" {
			return strings.Count(ids, `"`) / 2, true
		}
	}
	if ids := params["TaskIds"]; ids != "" {
		return strings.Count(ids, ",") + 1, true
	}
	return 0, false
}

// Stats returns the counts.
func (s *Server) Stats() Stats {
	return seen(s, func(time.Time) Stats { return s.ledger.stats.export() })
}

// ResetStats lets the counts of Stats begin anew. Calls and Count go on.
func (s *Server) ResetStats() {
	s.look(func(time.Time) {
		active := s.ledger.stats.active
		s.ledger.stats = newStatistics()
		s.ledger.stats.active, s.ledger.stats.most = active, active
	})
}

// VolumeCalls returns how many calls named a disk alone, by action. Of disks
// that don't exist any more it knows those of the last 1000.
func (s *Server) VolumeCalls(disk string) map[string]int {
	return seen(s, func(time.Time) map[string]int { return maps.Clone(s.ledger.stats.volumes[disk]) })
}

func (t *statistics) export() Stats {
	st := Stats{
		Faults: maps.Clone(t.faults), MostAtOnce: t.most, Connections: t.connections, Volumes: len(t.volumes), OwnCalls: maps.Clone(t.retired),
		BatchSizes: map[string]map[int]int{}, Actions: []ActionStats{},
	}
	for _, n := range t.retired {
		st.Volumes += n
	}
	ofECS := 0
	for _, name := range slices.Sorted(maps.Keys(t.actions)) {
		a := *t.actions[name]
		a.Codes, a.Took = maps.Clone(a.Codes), maps.Clone(a.Took)
		a.Mean /= time.Duration(a.Calls)
		st.Actions = append(st.Actions, a)
		st.Calls += a.Calls
		if actions.OfECS(name) {
			ofECS += a.Calls
		}
		for code, n := range a.Codes {
			if strings.HasPrefix(code, "Throttling") || slices.Contains(faults.ThrottleCodes, code) {
				st.Throttled += n
			}
		}
	}
	if st.Volumes > 0 {
		st.CallsPerVolume = float64(ofECS) / float64(st.Volumes)
	}
	for _, byAction := range t.volumes {
		st.OwnCalls[sum(byAction)]++
	}
	for action, sizes := range t.batches {
		st.BatchSizes[action] = maps.Clone(sizes)
	}
	return st
}
