package ecssim

import (
	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// What the packages below declare and clients of the simulator use.
type (
	// ConfigError is a value that the simulator can't work with.
	ConfigError = config.Error
	// ErrorCode is a code that an action may be refused with, and its HTTP status.
	ErrorCode = wire.ErrorCode

	// Fault is a misbehaviour and the calls that it hits.
	Fault = faults.Fault
	// Latency says how long things take.
	Latency = faults.Latency
	// LatencyForm is a Latency in JSON.
	LatencyForm = faults.LatencyForm
	// Throttle says how many calls of each action the account may make.
	Throttle = faults.Throttle
	// ThrottleState is the limits in force and how far they are used up.
	ThrottleState = faults.ThrottleState
	// ThrottleLevel is how far an action has used up its window.
	ThrottleLevel = faults.ThrottleLevel
	// Denial is a permission that somebody does not have.
	Denial = faults.Denial
	// Policy is a RAM policy: what it doesn't allow is denied.
	Policy = faults.Policy
)

// What a Fault does: the comments are in package faults.
const (
	FaultError       = faults.Error
	FaultThrottle    = faults.Throttled
	FaultLostRequest = faults.LostRequest
	FaultLostReply   = faults.LostReply
	FaultErrorAfter  = faults.ErrorAfter
	FaultTruncated   = faults.Truncated
	FaultEmpty       = faults.Empty
	FaultHTML        = faults.HTML
	FaultDelay       = faults.Delay
	FaultStuck       = faults.Stuck
	FaultFails       = faults.Fails
	FaultStops       = faults.Stops
	FaultVanishes    = faults.Vanishes
	FaultBrownOut    = faults.BrownOut
	FaultRefused     = faults.Refused
	FaultReset       = faults.Reset
	FaultTrickle     = faults.Trickle
	FaultStale       = faults.Stale
	FaultNothing     = faults.Nothing
	FaultPartial     = faults.Partial
	FaultDuplicate   = faults.Duplicate
	FaultEcho        = faults.Echo
	FaultLate        = faults.Late
	FaultHidden      = faults.Hidden
	FaultIgnored     = faults.Ignored
	FaultDate        = faults.Date
	FaultFlood       = faults.Flood
)

// DefaultSpread is the Spread of the profiles real and fast.
const DefaultSpread = faults.DefaultSpread

// The values that fields and functions take.
var (
	FaultKinds       = faults.Kinds            // of Fault.Do
	Profiles         = faults.Profiles         // of Profile
	ThrottleProfiles = faults.ThrottleProfiles // of ThrottleProfile
	ThrottleCodes    = faults.ThrottleCodes    // of Throttle.Code
)

// Codes returns the error codes of an action, as wire.Codes does.
func Codes(action string) []ErrorCode { return wire.Codes(action) }

// Profile returns latencies by the name of a profile, one of Profiles.
func Profile(name string) (Latency, error) { return faults.Profile(name) }

// ThrottleProfile returns limits by the name of a profile, one of
// ThrottleProfiles.
func ThrottleProfile(name string) (Throttle, error) {
	return faults.ThrottleProfile(name, namesOf(func(a action) bool { return a.version == versionSTS }))
}
