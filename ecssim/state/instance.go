package state

import (
	"maps"
	"slices"
	"time"
)

// InstanceSpec is what is said of an instance when it is added.
type InstanceSpec struct {
	ID   string `json:"id"` // such as i-bp1a2b3c
	Zone string `json:"zone"`
	Type string `json:"type"` // such as ecs.g7.large
	// Status is one of Pending, Running, Starting, Stopping and Stopped;
	// empty is Running.
	Status string `json:"status,omitempty"`

	Role           string `json:"role,omitempty"`           // name of the RAM role whose keys the metadata service gives out
	TokensRequired bool   `json:"tokensRequired,omitempty"` // the metadata service takes requests in token mode only
	MetadataOff    bool   `json:"metadataOff,omitempty"`    // the metadata service is not there
}

// The states of an instance in which disks can be attached.
const (
	InstanceRunning = "Running"
	InstanceStopped = "Stopped"
)

// InstanceStates are the values that DescribeInstances takes for Status.
var InstanceStates = []string{"Pending", InstanceRunning, "Starting", "Stopping", InstanceStopped}

// Instance is an instance and what belongs to it.
type Instance struct {
	InstanceSpec
	Seq         int // in the order of the Config, then of AddInstance
	Kind        InstanceType
	Locked      bool // for security
	Started     time.Time
	Tags        TagSet
	Attachments []*Attachment // in the order of AttachDisk
}

// fleet is the instances and the types that are known.
type fleet struct {
	instances map[string]*Instance
	types     map[string]InstanceType
	made      int
}

func newFleet(c Config) fleet {
	f := fleet{instances: map[string]*Instance{}, types: c.types()}
	for _, i := range c.Instances {
		f.add(i, time.Time{}) // it has been there for long
	}
	return f
}

// add adds an instance of a type that is known.
func (f *fleet) add(i InstanceSpec, started time.Time) {
	if i.Status == "" {
		i.Status = InstanceRunning
	}
	f.made++
	f.instances[i.ID] = &Instance{
		InstanceSpec: i, Seq: f.made, Kind: f.types[i.Type], Started: started, Tags: NewTagSet(map[string]string{}, time.Time{}),
	}
}

// inOrder returns the instances in the order of the Config, then of AddInstance.
func (f fleet) inOrder() []*Instance {
	return slices.SortedFunc(maps.Values(f.instances), func(a, b *Instance) int { return a.Seq - b.Seq })
}
