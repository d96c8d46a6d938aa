package ecssim

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Instance is an ECS instance that runs.
type Instance struct {
	ID   string `json:"id"` // such as i-bp1a2b3c
	Zone string `json:"zone"`
	Type string `json:"type"` // such as ecs.g7.large
}

// InstanceType is what the instances of one type can do.
type InstanceType struct {
	ID           string `json:"id"`
	DiskQuantity int    `json:"diskQuantity"` // cloud disks of an instance, the system disk included
	NVMe         string `json:"nvme"`         // unsupported, supported or required
	// Categories are the disk categories that it takes. Nil is all ordinary
	// ones, cloud_essd_entry only for the families ecs.u1 and ecs.e.
	Categories []string `json:"categories,omitempty"`
}

// StandardTypes are the instance types that every simulator knows. An
// instance of a type that nobody described has the properties of the first.
var StandardTypes = []InstanceType{
	{ID: "ecs.sim.large", DiskQuantity: 17, NVMe: "unsupported"},
	{ID: "ecs.simn.large", DiskQuantity: 17, NVMe: "required"},
	{ID: "ecs.sim.dense", DiskQuantity: 65, NVMe: "unsupported"},
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
	return category != "cloud_essd_entry" || t.family() == "ecs.u1" || t.family() == "ecs.e"
}

// instance is an instance and its tags.
type instance struct {
	Instance
	seq  int // in the order of the Config
	tags tagSet
}

// fleet is the instances and the types that are known.
type fleet struct {
	instances map[string]*instance
	types     map[string]InstanceType
}

func newFleet(c Config) fleet {
	f := fleet{instances: map[string]*instance{}, types: map[string]InstanceType{}}
	for _, t := range slices.Concat(StandardTypes, c.InstanceTypes) {
		f.types[t.ID] = t
	}
	for n, i := range c.Instances {
		f.instances[i.ID] = &instance{Instance: i, seq: n + 1, tags: tagSet{current: map[string]string{}}}
		if _, ok := f.types[i.Type]; !ok {
			t := StandardTypes[0]
			t.ID = i.Type
			f.types[i.Type] = t
		}
	}
	return f
}

// inOrder returns the instances in the order of the Config.
func (f fleet) inOrder() []*instance {
	return slices.SortedFunc(maps.Values(f.instances), func(a, b *instance) int { return a.seq - b.seq })
}

// typeNames returns the IDs of the types, sorted.
func (f fleet) typeNames() []string { return slices.Sorted(maps.Keys(f.types)) }
