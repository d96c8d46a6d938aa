package ecssim

import (
	"maps"
	"slices"
	"time"
)

// Instance is an ECS instance.
type Instance struct {
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

const (
	instanceRunning = "Running"
	instanceStopped = "Stopped"
)

// instanceStates are the values that DescribeInstances takes for Status.
var instanceStates = []string{"Pending", instanceRunning, "Starting", "Stopping", instanceStopped}

// instance is an instance and what belongs to it.
type instance struct {
	Instance
	seq         int // in the order of the Config, then of AddInstance
	kind        InstanceType
	locked      bool // for security
	started     time.Time
	tags        tagSet
	attachments []*attachment // in the order of AttachDisk
}

// fleet is the instances and the types that are known.
type fleet struct {
	instances map[string]*instance
	types     map[string]InstanceType
	made      int
}

func newFleet(c Config) fleet {
	f := fleet{instances: map[string]*instance{}, types: c.types()}
	for _, i := range c.Instances {
		f.add(i, time.Time{}) // it has been there for long
	}
	return f
}

// add adds an instance of a type that is known.
func (f *fleet) add(i Instance, started time.Time) {
	if i.Status == "" {
		i.Status = instanceRunning
	}
	f.made++
	f.instances[i.ID] = &instance{
		Instance: i, seq: f.made, kind: f.types[i.Type], started: started, tags: newTagSet(map[string]string{}, time.Time{}),
	}
}

// inOrder returns the instances in the order of the Config, then of AddInstance.
func (f fleet) inOrder() []*instance {
	return slices.SortedFunc(maps.Values(f.instances), func(a, b *instance) int { return a.seq - b.seq })
}

// typeNames returns the IDs of the types, sorted.
func (f fleet) typeNames() []string { return slices.Sorted(maps.Keys(f.types)) }
