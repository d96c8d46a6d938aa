package faults

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
)

// Latency says how long things take. The zero value is: no time at all.
type Latency struct {
	// API is the time from a request to its reply by action, "" standing for
	// every action that is not mentioned. The effect comes at its beginning.
	API map[string]time.Duration
	// PerDisk is added to the reply of DescribeDisks for each disk in it.
	PerDisk time.Duration
	// Available is the time from a disk's creation until it is Available.
	Available time.Duration
	// Attach is the time from the reply to AttachDisk until the disk is In_use.
	Attach time.Duration
	// AttachShown is the time from the reply to AttachDisk for which reads
	// show the disk Available still.
	AttachShown time.Duration
	// DeviceVisible is the time from In_use until the guest sees the device.
	DeviceVisible time.Duration
	// Detach is the time from the reply to DetachDisk until the disk is
	// Available.
	Detach time.Duration
	// Order is the time from the reply to ResizeDisk for which another one is
	// refused with LastOrderProcessing.
	Order time.Duration
	// Modify and ModifyPerTiB are the time from the reply to ModifyDiskSpec
	// until its task is Finished.
	Modify, ModifyPerTiB time.Duration
	// CoolIOPS, CoolAuto and CoolCategory are the times from the end of a
	// change for which the next is refused with DiskInCoolingPeriod: of the
	// IOPS alone, to cloud_auto, and to another category.
	CoolIOPS, CoolAuto, CoolCategory time.Duration
	// BurstReady is the time from the end of a change for which
	// ModifyDiskAttribute refuses BurstingEnabled with
	// BurstingEnabledForModifyingDiskUnsupported.
	BurstReady time.Duration
	// SnapshotCut is the time from the reply to CreateSnapshot until the point
	// in time is cut, before which the snapshot has no CreationTime;
	// SnapshotUsable is the time until a snapshot of an ESSD is Available;
	// SnapshotDone is the time until it is accomplished, and any other
	// Available.
	SnapshotCut, SnapshotUsable, SnapshotDone time.Duration
	// FromSnapshot is Initializing for disks that are made from a snapshot.
	FromSnapshot time.Duration
	// InstanceReady is the time from the start of an instance for which
	// AttachDisk refuses it with IncorrectInstanceStatus, Running as it looks.
	InstanceReady time.Duration
	// Initializing is the time from a disk's creation for which DeleteDisk and
	// AttachDisk refuse it with IncorrectDiskStatus.Initializing.
	Initializing time.Duration
	// Visible is the time from a disk's creation for which no read finds it.
	Visible time.Duration
	// TagsVisible is the time from a change of tags until a search by tags
	// goes by it.
	TagsVisible time.Duration
	// Spread lets the times of replies, and how long disks, snapshots and
	// tasks take, vary about what is said above: it is the standard deviation
	// of the logarithm, so that 0.5 is a half to three times as long, nearly
	// always. Zero is exactly as above. The same Seed gives the same times.
	Spread float64
}

// Profiles are the names that Profile knows.
var Profiles = []string{"zero", "fast", "real", "awful"}

// DefaultSpread is the Spread of the profiles real and fast.
const DefaultSpread = 0.5

// Profile returns latencies by name: "real" is the middle of what ECS takes,
// "fast" is a hundredth of it, and both vary by DefaultSpread; "zero" is none;
// "awful" is the longest that clients have met, with reads that lag behind in
// every way, and always the same.
func Profile(name string) (Latency, error) {
	switch name {
	case "zero":
		return Latency{}, nil
	case "fast":
		return realLatency(100), nil
	case "real":
		return realLatency(1), nil
	case "awful":
		return awfulLatency(), nil
	}
	return Latency{}, config.Invalid("Latency", name, config.OneOf(Profiles))
}

// realLatency returns the medians that clients see, divided by scale. ECS
// publishes none.
func realLatency(scale time.Duration) Latency {
	ms := time.Millisecond
	l := Latency{
		API: map[string]time.Duration{
			"":                          300 * ms,
			"CreateDisk":                500 * ms,
			"DeleteDisk":                400 * ms,
			"DescribeDisks":             120 * ms,
			"AttachDisk":                500 * ms,
			"DetachDisk":                400 * ms,
			"ResizeDisk":                800 * ms,
			"CreateSnapshot":            600 * ms,
			"CreateSnapshotGroup":       600 * ms,
			"ModifyDiskSpec":            1000 * ms,
			"DescribeAvailableResource": 700 * ms,
			"Metadata":                  5 * ms,
			"MetadataToken":             5 * ms,
		},
		PerDisk:       ms,
		Available:     1500 * ms,
		Initializing:  1000 * ms,
		Attach:        2000 * ms,
		AttachShown:   300 * ms,
		DeviceVisible: 1000 * ms,
		Detach:        4000 * ms,

		Modify: 2 * time.Minute, ModifyPerTiB: 15 * time.Minute,
		CoolIOPS: time.Hour, CoolAuto: time.Hour, CoolCategory: 6 * time.Hour,
		SnapshotCut: 2 * time.Second, SnapshotUsable: 5 * time.Second, SnapshotDone: 2 * time.Minute,
		FromSnapshot: 10 * time.Second, Spread: DefaultSpread,
	}
	for action := range l.API {
		l.API[action] /= scale
	}
	for _, span := range l.spans() {
		*span.time /= scale
	}
	return l
}

// awfulLatency returns what clients see on a bad day.
func awfulLatency() Latency {
	l := realLatency(1)
	l.Spread = 0
	for action := range l.API {
		l.API[action] *= 4
	}
	for span, seconds := range map[*time.Duration]int{
		&l.Available: 10, &l.Initializing: 10, &l.FromSnapshot: 300, &l.Visible: 2, &l.TagsVisible: 5, &l.Order: 20, &l.InstanceReady: 30,
		&l.Attach: 15, &l.AttachShown: 3, &l.DeviceVisible: 10, &l.Detach: 60, &l.BurstReady: 10,
		&l.SnapshotCut: 10, &l.SnapshotUsable: 60, &l.SnapshotDone: 1800, &l.Modify: 1800,
	} {
		*span = time.Duration(seconds) * time.Second
	}
	return l
}

// span is a time that is not of one action's reply, and its name.
type span struct {
	name string
	time *time.Duration
}

// spans lists all of them.
func (l *Latency) spans() []span {
	return []span{
		{"PerDisk", &l.PerDisk}, {"Available", &l.Available}, {"Initializing", &l.Initializing},
		{"Attach", &l.Attach}, {"AttachShown", &l.AttachShown}, {"DeviceVisible", &l.DeviceVisible}, {"Detach", &l.Detach},
		{"Modify", &l.Modify}, {"ModifyPerTiB", &l.ModifyPerTiB}, {"BurstReady", &l.BurstReady},
		{"CoolIOPS", &l.CoolIOPS}, {"CoolAuto", &l.CoolAuto}, {"CoolCategory", &l.CoolCategory},
		{"SnapshotCut", &l.SnapshotCut}, {"SnapshotUsable", &l.SnapshotUsable}, {"SnapshotDone", &l.SnapshotDone}, {"FromSnapshot", &l.FromSnapshot},
		{"Order", &l.Order}, {"InstanceReady", &l.InstanceReady}, {"Visible", &l.Visible}, {"TagsVisible", &l.TagsVisible},
	}
}

// Of returns the time from a request to its reply.
func (l Latency) Of(action string) time.Duration {
	if d, ok := l.API[action]; ok {
		return d
	}
	return l.API[""]
}

// Check refuses latencies that can't be. actions are the names that API may have;
// the error is a *config.Error.
func (l Latency) Check(actions []string) error {
	for _, action := range slices.Sorted(maps.Keys(l.API)) {
		if action != "" && !slices.Contains(actions, action) {
			return config.Invalid("Latency.API", action, `"" or `+config.OneOf(actions))
		}
		if l.API[action] < 0 {
			return config.Invalid("Latency.API", l.API[action].String(), "a duration of zero or more")
		}
	}
	if l.Spread < 0 || l.Spread > maxSpread || math.IsNaN(l.Spread) {
		return config.Invalid("Latency.Spread", fmt.Sprint(l.Spread), fmt.Sprintf("a number from 0 to %d", maxSpread))
	}
	for _, span := range l.spans() {
		if *span.time < 0 {
			return config.Invalid("Latency."+span.name, span.time.String(), "a duration of zero or more")
		}
	}
	return nil
}

// maxSpread keeps times from growing beyond all bounds.
const maxSpread = 3

// Timing is the Latency in force, and the lots that spread it.
type Timing struct {
	Latency
	lots *rand.Rand
}

// NewTiming returns a Timing whose lots are drawn by a seed.
func NewTiming(l Latency, seed uint32) *Timing {
	return &Timing{l, rand.New(rand.NewPCG(uint64(seed), 0))}
}

// Vary spreads a time.
func (t *Timing) Vary(d time.Duration) time.Duration {
	if t.Spread == 0 || d == 0 {
		return d
	}
	return time.Duration(float64(d) * math.Exp(t.Spread*t.lots.NormFloat64()))
}

// ProfileName is the name of the profile that the latencies are those of, empty if
// there is none.
func (l Latency) ProfileName() string {
	for _, name := range Profiles {
		if p, err := Profile(name); err == nil && p.equal(l) {
			return name
		}
	}
	return ""
}

func (l Latency) equal(other Latency) bool {
	a, b := l.Form(), other.Form()
	return maps.Equal(a.API, b.API) && maps.Equal(a.Spans, b.Spans) && l.Spread == other.Spread
}
