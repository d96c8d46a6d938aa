package disk

import "time"

// Reply is how ECS has replied to a call that attaches or detaches a disk, where only reads say what has come of it.
type Reply struct {
	Answer Answer
	Err    error         // nil if the answer is Accepted or Unsent
	Age    time.Duration // of the call, since it was sent
}

// Answer is what a Reply says.
type Answer int

const (
	// Unsent is a call that was not made, or that ECS has not looked at.
	Unsent Answer = iota
	// Accepted is a call that ECS works on.
	Accepted
	// NoAnswer is a call of which nobody knows whether ECS has it.
	NoAnswer
	// Refused is a call that ECS will not carry out, for a reason of which reads say nothing.
	Refused
	// WrongState is a disk whose state doesn't allow the call. Reads may not show that state: that the disk is being attached, say.
	WrongState
	// AlreadyDetaching is a disk that is being detached from the instance.
	AlreadyDetaching
	// Elsewhere is a disk that the instance doesn't have, and others may.
	Elsewhere
	// NotAttached is a disk that no instance has.
	NotAttached
	// NoInstance is an instance that doesn't exist.
	NoInstance
)

// RequestLifetime is how long a signed request that changes something may be on
// its way to ECS: ECS refuses it after that, for its Timestamp. One that takes no
// Timestamp from the past gets requests without that bound, which is logged.
const RequestLifetime = 20 * time.Second
