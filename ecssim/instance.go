package ecssim

import (
	"regexp"
	"slices"
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
	return nil
}
