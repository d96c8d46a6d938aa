package ecssim

import (
	"github.com/topodisk/topodisk/ecssim/actions"
	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// What the packages below declare and clients of the simulator use.
type (
	// ConfigError is a value that the simulator can't work with.
	ConfigError = config.Error
	// ErrorCode is a code that an action may be refused with, and its HTTP status.
	ErrorCode = wire.ErrorCode

	// Instance is what is said of an ECS instance when it is added.
	Instance = state.InstanceSpec
	// InstanceType is what the instances of one type can do.
	InstanceType = state.InstanceType
	// InstanceChange is what SetInstance changes.
	InstanceChange = state.InstanceChange
	// InstanceState is an instance as it is.
	InstanceState = state.InstanceState
	// Device is a data disk as the guest of an instance sees it.
	Device = state.Device
	// DiskState is a disk as it is, however much of it reads show already.
	DiskState = state.DiskState
	// AttachmentState is a disk's bond to an instance as it is.
	AttachmentState = state.AttachmentState
	// DiskOverview is a disk and what is about to change of it.
	DiskOverview = state.DiskOverview
	// PendingChange is a change of a disk that is under way.
	PendingChange = state.PendingChange
	// SnapshotState is a snapshot as it is.
	SnapshotState = state.SnapshotState
	// TaskState is a change of a disk's spec that takes its time.
	TaskState = state.TaskState
	// StockLevel is the stock of one category in one zone.
	StockLevel = state.StockLevel

	// Queues are how many disks an instance attaches and detaches at a time.
	Queues = actions.Queues
	// Doubts are the behaviours that sources disagree on.
	Doubts = actions.Doubts
	// Limits are how many of a thing there may be.
	Limits = actions.Limits
	// Quotas are what the account may have at most.
	Quotas = actions.Quotas
	// Role is a RAM role of the account.
	Role = actions.Role

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
	// Statement allows or denies actions on resources under conditions.
	Statement = faults.Statement
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

// Unlimited is the number of units of a category that never sells out.
const Unlimited = state.Unlimited

// The values that fields and functions take.
var (
	FaultKinds       = faults.Kinds             // of Fault.Do
	Profiles         = faults.Profiles          // of Profile
	ThrottleProfiles = faults.ThrottleProfiles  // of ThrottleProfile
	ThrottleCodes    = faults.ThrottleCodes     // of Throttle.Code
	SoldOutCodes     = state.SoldOutCodes       // of Config.SoldOutCode and SellOut
	LockReasons      = state.LockReasons        // of LockDisk
	QueueProfiles    = actions.QueueProfiles    // of QueueProfile
	InUseCodes       = actions.InUseCodes       // of Doubts.InUseCode
	DetachedCodes    = actions.DetachedCodes    // of Doubts.DetachedCode
	ResizeLimitCodes = actions.ResizeLimitCodes // of Doubts.ResizeLimitCode
	CreatingActions  = actions.CreatingActions  // of Doubts.RefuseCreating
	TagForms         = actions.TagForms         // of Doubts.TagsAs
)

// Serial and Parallel are the queues that accounts of ECS are known to have.
var (
	Serial   = actions.Serial
	Parallel = actions.Parallel
)

// Codes returns the error codes of an action, as wire.Codes does.
func Codes(action string) []ErrorCode { return wire.Codes(action) }

// Profile returns latencies by the name of a profile, one of Profiles.
func Profile(name string) (Latency, error) { return faults.Profile(name) }

// ThrottleProfile returns limits by the name of a profile, one of
// ThrottleProfiles.
func ThrottleProfile(name string) (Throttle, error) {
	return faults.ThrottleProfile(name, actions.OfSTS())
}

// InstanceTypes returns the instance types that every simulator knows, sorted
// by ID.
func InstanceTypes() []InstanceType { return state.InstanceTypes() }

// CategoryNames returns the disk categories of a zone, or of the region, sorted.
func CategoryNames(regional bool) []string { return state.CategoryNames(regional) }

// QueueProfile returns Serial or Parallel by its name.
func QueueProfile(name string) (Queues, error) { return actions.QueueProfile(name) }

// ActionNames returns the names of all operations, sorted.
func ActionNames() []string { return actions.Names() }
