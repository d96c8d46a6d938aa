package disk

import "time"

// Reply is how ECS has replied to a call that attaches or detaches a disk, where only reads say what has come of it.
type Reply struct {
	Answer Answer
	Err    error         // nil if the answer is Accepted
	Age    time.Duration // of the call, since it was sent
}

// Answer is what a Reply says.
type Answer int

const (
	// Accepted is a call that ECS works on.
	Accepted Answer = iota
	// NoAnswer is a call of which nobody knows whether ECS has it.
	NoAnswer
	// WrongState is a disk whose state doesn't allow the call. Reads may not show that state: that the disk is being attached, say.
	WrongState
	// AlreadyDetaching is a disk that is being detached from the instance.
	AlreadyDetaching
	// NotAttached is a disk that the instance doesn't have.
	NotAttached
	// NoInstance is an instance that doesn't exist.
	NoInstance
)
