package ecssim

import (
	"maps"
	"regexp"
	"slices"
	"strings"
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

// InstanceType is what the instances of one type can do.
type InstanceType struct {
	ID           string `json:"id"`
	DiskQuantity int    `json:"diskQuantity"` // cloud disks of an instance, the system disk included
	NVMe         string `json:"nvme"`         // unsupported, supported or required
	// Categories are the disk categories that it takes. Nil is all ordinary
	// ones, cloud_essd_entry only for the families ecs.u1 and ecs.e.
	Categories []string `json:"categories,omitempty"`
	// NoPL0 refuses disks of performance level PL0.
	NoPL0 bool `json:"noPL0,omitempty"`
	// NotIOOptimized is true of old types, which take no encrypted disks and,
	// if Categories is nil, those of cloud and cloud_efficiency only.
	NotIOOptimized bool `json:"notIoOptimized,omitempty"`
}

// StandardTypes are the instance types that every simulator knows. An
// instance of a type that nobody described has the properties of the first.
var StandardTypes = []InstanceType{
	{ID: "ecs.sim.large", DiskQuantity: 17, NVMe: "unsupported"},
	{ID: "ecs.simn.large", DiskQuantity: 17, NVMe: "required"},
	{ID: "ecs.sim.dense", DiskQuantity: 65, NVMe: "unsupported"},
	{ID: "ecs.sim.legacy", DiskQuantity: 5, NVMe: "unsupported", NotIOOptimized: true},
}

var typeForm = regexp.MustCompile(`^ecs\.[a-z0-9-]+\.[a-z0-9-]+$`)

// nvmeSupport are the values of NvmeSupport.
var nvmeSupport = []string{"unsupported", "supported", "required"}

func (t InstanceType) check() error {
	switch {
	case !typeForm.MatchString(t.ID):
		return &ConfigError{"InstanceTypes", t.ID, "an instance type such as ecs.g7.large"}
	case t.DiskQuantity < 1:
		return &ConfigError{"InstanceTypes", t.ID, "a DiskQuantity of 1 or more"}
	case !slices.Contains(nvmeSupport, t.NVMe):
		return &ConfigError{"InstanceTypes", t.NVMe, "an NVMe of " + quoted(nvmeSupport)}
	}
	for _, name := range t.Categories {
		if _, ok := categories[name]; !ok {
			return &ConfigError{"InstanceTypes", name, "Categories of " + quoted(slices.Sorted(maps.Keys(categories)))}
		}
	}
	return nil
}

// family returns the type's family: ecs.g7 for ecs.g7.large.
func (t InstanceType) family() string { return t.ID[:strings.LastIndex(t.ID, ".")] }

// takes tells whether disks of a category can be attached to the type.
func (t InstanceType) takes(category string) bool {
	if t.Categories != nil {
		return slices.Contains(t.Categories, category)
	}
	if t.NotIOOptimized {
		return category == "cloud" || category == "cloud_efficiency"
	}
	return category != "cloud_essd_entry" || t.family() == "ecs.u1" || t.family() == "ecs.e"
}

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
	f := fleet{instances: map[string]*instance{}, types: map[string]InstanceType{}}
	for _, t := range slices.Concat(StandardTypes, c.InstanceTypes) {
		f.types[t.ID] = t
	}
	for _, i := range c.Instances {
		f.add(i, time.Time{}) // it has been there for long
	}
	return f
}

// add adds an instance. A type that nobody described has the properties of
// the first of StandardTypes.
func (f *fleet) add(i Instance, started time.Time) {
	if _, ok := f.types[i.Type]; !ok {
		t := StandardTypes[0]
		t.ID = i.Type
		f.types[i.Type] = t
	}
	if i.Status == "" {
		i.Status = instanceRunning
	}
	f.made++
	f.instances[i.ID] = &instance{
		Instance: i, seq: f.made, kind: f.types[i.Type], started: started, tags: tagSet{current: map[string]string{}},
	}
}

// inOrder returns the instances in the order of the Config, then of AddInstance.
func (f fleet) inOrder() []*instance {
	return slices.SortedFunc(maps.Values(f.instances), func(a, b *instance) int { return a.seq - b.seq })
}

// typeNames returns the IDs of the types, sorted.
func (f fleet) typeNames() []string { return slices.Sorted(maps.Keys(f.types)) }
