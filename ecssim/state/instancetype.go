package state

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/topodisk/topodisk/ecssim/config"
)

// InstanceType is what the instances of one type can do.
type InstanceType struct {
	ID string `json:"id"` // such as ecs.g7.large
	// Family is the instance family; empty is the ID up to its first hyphen or
	// its second dot: ecs.u1 of ecs.u1-c1m2.large, as ECS has it for most types.
	Family       string `json:"family,omitempty"`
	DiskQuantity int    `json:"diskQuantity"` // cloud disks of an instance, the system disk included
	NVMe         string `json:"nvme"`         // unsupported, supported or required
	// Categories are the disk categories that it takes. Nil is all that types
	// like it take: cloud alone if it is NotIOOptimized, none older than ESSDs
	// if NVMe is required, and cloud_essd_entry for the families ecs.u1 and
	// ecs.e only.
	Categories []string `json:"categories,omitempty"`
	// NoPL0 refuses disks of performance level PL0.
	NoPL0 bool `json:"noPL0,omitempty"`
	// NotIOOptimized is true of old types, which take no encrypted disks.
	NotIOOptimized bool `json:"notIoOptimized,omitempty"`
}

// InstanceTypes returns the instance types that every simulator knows, sorted
// by ID: real ones, with the figures of public pages.
func InstanceTypes() []InstanceType {
	var list []InstanceType
	for _, row := range instanceFamilies {
		list = append(list, row.instanceTypes()...)
	}
	slices.SortFunc(list, func(a, b InstanceType) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

var (
	typeForm   = regexp.MustCompile(`^ecs\.[a-z0-9-]+\.[a-z0-9-]+$`)
	familyForm = regexp.MustCompile(`^ecs\.[a-z0-9-]+$`)
)

// NVMeSupport are the values of NvmeSupport.
var NVMeSupport = []string{"unsupported", "supported", "required"}

func (t InstanceType) check() error {
	switch {
	case !typeForm.MatchString(t.ID):
		return config.Invalid("InstanceTypes", t.ID, "an instance type such as ecs.g7.large")
	case t.Family != "" && !familyForm.MatchString(t.Family):
		return config.Invalid("InstanceTypes", t.Family, "a Family such as ecs.g7")
	case t.DiskQuantity < 1:
		return config.Invalid("InstanceTypes", t.ID, "a DiskQuantity of 1 or more")
	case !slices.Contains(NVMeSupport, t.NVMe):
		return config.Invalid("InstanceTypes", t.NVMe, "an NVMe of "+config.List(NVMeSupport))
	case t.Categories != nil && len(t.Categories) == 0:
		return config.Invalid("InstanceTypes", t.ID, "one of Categories or more, for its system disk")
	}
	for _, name := range t.Categories {
		if _, ok := Categories[name]; !ok {
			return config.Invalid("InstanceTypes", name, "Categories of "+config.List(slices.Sorted(maps.Keys(Categories))))
		}
	}
	return nil
}

// checkKnown refuses a type that is neither in the table nor declared.
func checkKnown(id string, known map[string]InstanceType) error {
	if !typeForm.MatchString(id) {
		return config.Invalid("Instances", id, "an instance type such as ecs.g7.large")
	}
	if _, ok := known[id]; ok {
		return nil
	}
	similar := closest(slices.Sorted(maps.Keys(known)), id)
	return config.Invalid("Instances", id, "an instance type of the simulator's table (did you mean "+similar+"?), or one that is declared with --instance-type or Config.InstanceTypes")
}

// closest returns the name that it takes the fewest edits to turn id into.
func closest(names []string, id string) string {
	return slices.MinFunc(names, func(a, b string) int { return edits(a, id) - edits(b, id) })
}

// edits is how many characters must be put in, taken out or changed to turn a
// into b.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j := range b {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// FamilyName returns the type's family: ecs.g7 of ecs.g7.large.
func (t InstanceType) FamilyName() string {
	if t.Family != "" {
		return t.Family
	}
	end := strings.IndexAny(t.ID[len("ecs."):], "-.")
	return t.ID[:len("ecs.")+end]
}

// Takes tells whether disks of a category can be attached to the type.
func (t InstanceType) Takes(category string) bool {
	switch {
	case t.Categories != nil:
		return slices.Contains(t.Categories, category)
	case t.NotIOOptimized:
		return category == "cloud"
	case category == "cloud_essd_entry":
		return t.FamilyName() == "ecs.u1" || t.FamilyName() == "ecs.e"
	case t.NVMe == "required":
		return category != "cloud" && category != "cloud_efficiency" && category != "cloud_ssd"
	}
	return true
}
