package ecssim

import (
	"maps"
	"slices"
	"time"
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
	// Initializing is the time from a disk's creation for which DeleteDisk
	// refuses it with IncorrectDiskStatus.Initializing.
	Initializing time.Duration
	// Visible is the time from a disk's creation for which no read finds it.
	Visible time.Duration
	// TagsVisible is the time from a change of tags until a search by tags
	// goes by it.
	TagsVisible time.Duration
}

// Profiles are the names that Profile knows.
var Profiles = []string{"zero", "fast", "real"}

// Profile returns latencies by name: "real" is the middle of what ECS takes,
// "fast" is a hundredth of it, "zero" is none.
func Profile(name string) (Latency, error) {
	switch name {
	case "zero":
		return Latency{}, nil
	case "fast":
		return realLatency(100), nil
	case "real":
		return realLatency(1), nil
	}
	return Latency{}, &ConfigError{"Latency", name, "one of " + quoted(Profiles)}
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
			"DescribeAvailableResource": 700 * ms,
		},
		PerDisk:      ms,
		Available:    1500 * ms,
		Initializing: 1000 * ms,
	}
	for action := range l.API {
		l.API[action] /= scale
	}
	l.PerDisk /= scale
	l.Available /= scale
	l.Initializing /= scale
	return l
}

// of returns the time from a request to its reply.
func (l Latency) of(action string) time.Duration {
	if d, ok := l.API[action]; ok {
		return d
	}
	return l.API[""]
}

func (l Latency) check() error {
	for _, action := range slices.Sorted(maps.Keys(l.API)) {
		if _, ok := actions[action]; !ok && action != "" {
			return &ConfigError{"Latency.API", action, `"" or one of ` + quoted(ActionNames())}
		}
		if l.API[action] < 0 {
			return &ConfigError{"Latency.API", l.API[action].String(), "a duration of zero or more"}
		}
	}
	for name, d := range map[string]time.Duration{
		"Latency.PerDisk": l.PerDisk, "Latency.Available": l.Available, "Latency.Initializing": l.Initializing,
		"Latency.Visible": l.Visible, "Latency.TagsVisible": l.TagsVisible,
	} {
		if d < 0 {
			return &ConfigError{name, d.String(), "a duration of zero or more"}
		}
	}
	return nil
}

// ActionNames returns the names of all operations, sorted.
func ActionNames() []string { return slices.Sorted(maps.Keys(actions)) }
