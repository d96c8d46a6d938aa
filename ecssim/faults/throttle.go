package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// throttleWindow is the length of a window. ECS counts calls by the minute,
// and an action that was throttled in one minute works again in the next.
const throttleWindow = time.Minute

// ThrottleCodes are the codes that a gateway throttles with.
var ThrottleCodes = []string{"Throttling", "Throttling.User", "Throttling.Api", "Throttling.ConcurrentLimitExceeded", "Rejected.Throttling"}

// ThrottleProfiles are the names that ThrottleProfile knows.
var ThrottleProfiles = []string{"off", "tight", "default", "generous"}

// Throttle says how many calls of each action the account may make. All its
// clients count, and each action counts for itself. A call that is refused
// has no effect and does not count. The zero value limits nothing.
type Throttle struct {
	// Limits are calls a minute by action, "" standing for every action that
	// is not mentioned. Without a limit, or with one of zero, all calls pass.
	Limits map[string]int
	// Code is that of the refusals, one of ThrottleCodes; default Throttling.
	Code string
	// Phase is how long after the full minute of the simulator's clock its
	// windows begin; below a minute.
	Phase time.Duration
	// Bucket lets the limit trickle in second by second, where by default all
	// of it is there when a window begins.
	Bucket bool
	// StickyMinute keeps an action that was refused once refused until the end
	// of its window. It changes something with Bucket only.
	StickyMinute bool
}

// publishedLimits are the calls a minute that ECS publishes, by account and
// region: on the API pages of AttachDisk and DetachDisk (500 in 60 s) and ModifyDiskSpec
// (1,000 in 60 s). The limits of other actions are in the Quota Center of each
// account only ("API throttling", ECS's documentation).
var publishedLimits = map[string]int{"AttachDisk": 500, "DetachDisk": 500, "ModifyDiskSpec": 1000}

// ThrottleProfile returns limits by name: "default" is what ECS publishes and,
// as a guess, 600 calls a minute of most other actions; "tight" is an account
// of 60 mutations a minute, "generous" one whose limits were raised to 6000 of
// each action; "off" limits nothing. sts names the actions of STS, which
// publishes 100 calls a second; the metadata service has no limit.
func ThrottleProfile(name string, sts []string) (Throttle, error) {
	switch name {
	case "off":
		return Throttle{}, nil
	case "tight":
		return withSTS(map[string]int{"": 60, "DescribeDisks": 120}, sts), nil
	case "default":
		limits := map[string]int{
			"": 600, "DescribeDisks": 1200, "DescribeInstances": 1200, "DescribeAvailableResource": 300, "TagResources": 300,
		}
		maps.Copy(limits, publishedLimits)
		return withSTS(limits, sts), nil
	case "generous":
		return withSTS(map[string]int{"": 6000}, sts), nil
	}
	return Throttle{}, config.Invalid("Throttle", name, config.OneOf(ThrottleProfiles))
}

func withSTS(limits map[string]int, sts []string) Throttle {
	for _, name := range sts {
		limits[name] = 6000
	}
	return Throttle{Limits: limits}
}

// Check refuses limits that can't be. actions are the names that Limits may have;
// the error is a *config.Error.
func (t Throttle) Check(actions []string) error {
	for _, action := range slices.Sorted(maps.Keys(t.Limits)) {
		if action != "" && !slices.Contains(actions, action) {
			return config.Invalid("Throttle.Limits", action, `"" or `+config.OneOf(actions))
		}
		if t.Limits[action] < 0 {
			return config.Invalid("Throttle.Limits", fmt.Sprint(t.Limits[action]), "a number of calls a minute, zero for no limit")
		}
	}
	if t.Code != "" && !slices.Contains(ThrottleCodes, t.Code) {
		return config.Invalid("Throttle.Code", t.Code, config.OneOf(ThrottleCodes))
	}
	if t.Phase < 0 || t.Phase >= throttleWindow {
		return config.Invalid("Throttle.Phase", t.Phase.String(), "a duration of zero or more and below a minute")
	}
	return nil
}

// CallLimits counts the calls of each action against its limit.
type CallLimits struct {
	Throttle
	by map[string]*callCount
}

// callCount is the count of one action.
type callCount struct {
	limit   int       // of the action
	window  time.Time // when the current window began
	used    int       // calls let through in it
	refused int       // calls refused since the limits were set
	shut    bool      // refused until the window's end
	tokens  float64   // of a bucket, as of filled
	filled  time.Time
}

// NewCallLimits returns counts that begin at zero.
func NewCallLimits(t Throttle) *CallLimits {
	t.Limits = maps.Clone(t.Limits)
	if t.Code == "" {
		t.Code = ThrottleCodes[0]
	}
	return &CallLimits{Throttle: t, by: map[string]*callCount{}}
}

// limit is what an action may do in a minute, zero for no limit. What is not of
// ECS is not limited by ECS's limits.
func (g *CallLimits) limit(action string, ofECS bool) int {
	if n, ok := g.Limits[action]; ok || !ofECS {
		return n
	}
	return g.Limits[""]
}

// Pass counts a call, or refuses it. ofECS says whether it is one of ECS, not of
// another service.
func (g *CallLimits) Pass(action string, ofECS bool, now time.Time) *wire.Refusal {
	limit := g.limit(action, ofECS)
	if limit == 0 {
		return nil
	}
	w := g.at(action, now)
	w.limit = limit
	if !w.shut && w.take(limit, g.Bucket, now) {
		w.used++
		return nil
	}
	w.refused++
	w.shut = g.StickyMinute
	return wire.Refuse(400, g.Code, "%s", throttleText(g.Code))
}

// at returns the count of an action in the window of this moment.
func (g *CallLimits) at(action string, now time.Time) *callCount {
	w := g.by[action]
	if w == nil {
		w = &callCount{}
		g.by[action] = w
	}
	if window := now.Add(-g.Phase).Truncate(throttleWindow).Add(g.Phase); !window.Equal(w.window) {
		w.window, w.used, w.shut = window, 0, false
	}
	return w
}

// take says whether a call still fits; from a bucket, which holds what comes in
// in one second, it takes the call's token.
func (w *callCount) take(limit int, bucket bool, now time.Time) bool {
	if !bucket {
		return w.used < limit
	}
	rate := float64(limit) / throttleWindow.Seconds()
	size := max(rate, 1)
	if w.filled.IsZero() {
		w.tokens = size
	} else {
		w.tokens = min(w.tokens+rate*now.Sub(w.filled).Seconds(), size)
	}
	w.filled = now
	if w.tokens < 1 {
		return false
	}
	w.tokens--
	return true
}

func throttleText(code string) string {
	switch {
	case strings.HasSuffix(code, ".User"):
		return "Request was denied due to user flow control."
	case strings.HasSuffix(code, ".Api"):
		return "Request was denied due to api flow control."
	}
	return "Request was denied due to request throttling."
}

// ThrottleLevel is how far an action has used up its window.
type ThrottleLevel struct {
	Action  string    `json:"action"`
	Limit   int       `json:"limit"`   // calls a window
	Used    int       `json:"used"`    // in the current window
	Refused int       `json:"refused"` // since the limits were set
	Renewed time.Time `json:"renewed"` // when the next window begins
}

// levels lists the actions that were called since the limits were set.
func (g *CallLimits) levels(now time.Time) []ThrottleLevel {
	return wire.Each(slices.Sorted(maps.Keys(g.by)), func(action string) ThrottleLevel {
		w := g.at(action, now)
		return ThrottleLevel{action, w.limit, w.used, w.refused, w.window.Add(throttleWindow)}
	})
}

// ThrottleState is the limits in force and how far they are used up.
type ThrottleState struct {
	Limits       map[string]int  `json:"limits"` // calls a minute by action, "" for the others; empty for none
	Code         string          `json:"code"`
	Phase        time.Duration   `json:"phaseNanoseconds"`
	Bucket       bool            `json:"bucket"`
	StickyMinute bool            `json:"stickyMinute"`
	Levels       []ThrottleLevel `json:"levels"`
}

// State returns the limits and how far they are used up.
func (g *CallLimits) State(now time.Time) ThrottleState {
	return ThrottleState{maps.Clone(g.Limits), g.Code, g.Phase, g.Bucket, g.StickyMinute, g.levels(now)}
}
