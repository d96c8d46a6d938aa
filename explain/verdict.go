package explain

import "github.com/topodisk/topodisk/internal/shell"

// State says whether an object waits.
type State string

// The states.
const (
	// Waits means that something the verdict names holds the object up.
	Waits State = "Waits"
	// Works means that nothing does.
	Works State = "Works"
	// Unknown means that the facts don't suffice: the verdict names what is missing.
	Unknown State = "Unknown"
)

// Actor is who must act for the object to get on.
type Actor string

// The actors.
const (
	Nobody       Actor = "nobody" // it ends by itself
	User         Actor = "user"   // the owner of the Pod or claim
	ClusterAdmin Actor = "cluster-admin"
	CloudAdmin   Actor = "cloud-admin"
)

// Evidence is a fact that a verdict rests on.
type Evidence struct {
	Object Ref    `json:"object"`
	Field  string `json:"field"` // a path, e.g. spec.nodeAffinity
	Value  string `json:"value"` // as the API server has it; None if there is no such object or field, or it is empty
}

// None is the value of what isn't there, as kubectl prints it.
const None = "<none>"

// Verdict says why an object waits.
type Verdict struct {
	Subject Ref    `json:"subject"`
	State   State  `json:"state"`
	Cause   Cause  `json:"cause,omitempty"` // empty if the object works
	Message string `json:"message"`         // in one sentence or two
	// Evidence is never empty for an object that waits.
	Evidence []Evidence `json:"evidence,omitempty"`
	Actor    Actor      `json:"actor,omitempty"`
	// Next are commands to type next, the most useful first.
	Next []shell.Command `json:"next,omitempty"`
	// Retried says who tries again, and when.
	Retried string `json:"retried,omitempty"`
	// Reasons is an inclusion-minimal set of reasons that leaves a Pod no node: without any one of them some node would do.
	Reasons []Reason `json:"reasons,omitempty"`
	// Missing is what could not be read and might have changed the verdict.
	Missing []Unread `json:"missing,omitempty"`
	// Error is what the driver or ECS answered, if the verdict rests on that.
	Error *DriverError `json:"error,omitempty"`
}

// DriverError is the error of a CSI call, as it stands in events and statuses.
type DriverError struct {
	Kind      string   `json:"kind,omitempty"`      // of docs/errors.md, e.g. OUT_OF_STOCK, if an event says so
	Code      string   `json:"code,omitempty"`      // of gRPC, e.g. ResourceExhausted
	Action    string   `json:"action,omitempty"`    // of ECS, e.g. CreateDisk
	ECSCode   string   `json:"ecsCode,omitempty"`   // e.g. OperationDenied.NoStock
	RequestID string   `json:"requestID,omitempty"` // of ECS, for a support ticket
	Zones     []string `json:"zones,omitempty"`     // those that had no disk, if an event says so
	Text      string   `json:"text"`                // all of it, without the code
}

// Reason excludes nodes.
type Reason struct {
	Cause   Cause  `json:"cause"`
	Message string `json:"message"`
	Nodes   int    `json:"nodes"` // how many it excludes
}
