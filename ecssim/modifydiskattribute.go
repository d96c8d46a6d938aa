package ecssim

import (
	"slices"

	"github.com/topodisk/topodisk/ecssim/wire"
)

var modifyDiskAttribute = action{
	name: "ModifyDiskAttribute",
	optional: []string{
		"DiskId", "DiskIds.N", "DiskName", "Description", "DeleteWithInstance", "DeleteAutoSnapshot", "EnableAutoSnapshot", "BurstingEnabled",
	},
	regionCode: wire.Refusal{Status: 400, Code: "InvalidRegionId.MalFormed"},
	do:         (*Server).modifyDiskAttribute,
}

// maxModified is how many disks one request may change.
const maxModified = 100

// modifyDiskAttribute gives one or many disks new values: all of them or none.
func (s *Server) modifyDiskAttribute(x *exchange) (wire.Object, *wire.Refusal) {
	change, no := readAttributes(x)
	if no != nil {
		return nil, no
	}
	disks, no := s.attributeTargets(x)
	if no != nil {
		return nil, no
	}
	for _, d := range disks {
		if no := s.checkAttributes(x, d, change); no != nil {
			return nil, no
		}
	}
	for _, d := range disks {
		change.apply(d)
	}
	return nil, nil
}

// attributes are what ModifyDiskAttribute changes; nil leaves a thing as it is.
type attributes struct {
	name, description                                           *string
	deleteWithInstance, deleteAutoSnapshot, autoSnapshot, burst *bool
}

// readAttributes reads the new values.
func readAttributes(x *exchange) (attributes, *wire.Refusal) {
	var c attributes
	for name, into := range map[string]**string{"DiskName": &c.name, "Description": &c.description} {
		if v := x.Params[name]; v != "" {
			*into = &v
		}
	}
	for name, into := range map[string]**bool{
		"DeleteWithInstance": &c.deleteWithInstance, "DeleteAutoSnapshot": &c.deleteAutoSnapshot,
		"EnableAutoSnapshot": &c.autoSnapshot, "BurstingEnabled": &c.burst,
	} {
		if x.Params[name] == "" {
			continue
		}
		v, no := x.Params.Boolean(name, false)
		if no != nil {
			return c, no
		}
		*into = &v
	}
	switch {
	case c == attributes{}:
		return c, wire.Refuse(400, "NoAttributeToModify", "No attribute to be modified in this request.")
	case c.name != nil && !validName(*c.name):
		return c, badName("InvalidDiskName.Malformed", "disk name")
	case c.description != nil && !validDescription(*c.description):
		return c, badDescription(404) // as ECS's table for this action has it
	}
	return c, nil
}

// attributeTargets returns the disks that a request names, all of which must
// exist.
func (s *Server) attributeTargets(x *exchange) ([]*disk, *wire.Refusal) {
	ids := x.Params.List("DiskIds")
	if len(ids) > maxModified {
		return nil, wire.Refuse(400, "InvalidParameter", "The specified parameter DiskIds.N is not valid: at most %d disks.", maxModified)
	}
	if x.disk != "" && !slices.Contains(ids, x.disk) {
		ids = append(ids, x.disk)
	}
	if len(ids) == 0 {
		return nil, wire.Refuse(400, "IncompleteParamter", "Some fields can not be null in this request: DiskId or DiskIds.N.")
	}
	if len(ids) == 1 {
		x.disk = ids[0]
	}
	var disks []*disk
	for _, id := range ids {
		d, no := s.findDisk(id)
		if no != nil {
			return nil, no
		}
		disks = append(disks, d)
	}
	return disks, nil
}

// checkAttributes refuses new values that a disk can't have.
func (s *Server) checkAttributes(x *exchange, d *disk, c attributes) *wire.Refusal {
	burst := c.burst != nil && *c.burst
	spec := categories[d.category]
	switch {
	case c.burst != nil && (d.task != nil || !d.modified.IsZero() && x.now.Before(d.modified.Add(s.timing.BurstReady))):
		return wire.Refuse(403, "BurstingEnabledForModifyingDiskUnsupported", "The disk %s is being changed: BurstingEnabled can't be set.", d.id)
	case d.creating || d.modifying:
		return wrongState(d)
	case c.deleteWithInstance != nil && *c.deleteWithInstance && d.multiAttach:
		return wire.Refuse(403, "DeleteWithInstance.Conflict", "A disk with MultiAttach can't be released together with an instance.")
	case c.burst != nil && (!spec.auto || spec.regional):
		return wire.Refuse(400, "BurstingEnabledForDiskCategoryUnsupported", "The disk category %s does not support bursting.", d.category)
	case burst && d.multiAttach:
		return wire.Refuse(400, "BurstingEnabledForMultiAttachDiskUnsupported", "A disk with MultiAttach does not support bursting.")
	case burst && d.size <= 3:
		return wire.Refuse(400, "InvalidBurstingEnabled.DiskSizeTooSmall", "The disk size %d is too small for bursting: it takes more than 3 GiB.", d.size)
	}
	return nil
}

func (c attributes) apply(d *disk) {
	set(&d.name, c.name)
	set(&d.description, c.description)
	set(&d.deleteWithInstance, c.deleteWithInstance)
	set(&d.keepAutoSnapshot, negated(c.deleteAutoSnapshot))
	set(&d.noAutoSnapshot, negated(c.autoSnapshot))
	set(&d.bursting, c.burst)
}

// set puts a new value in place, if there is one.
func set[T any](into *T, v *T) {
	if v != nil {
		*into = *v
	}
}

func negated(v *bool) *bool {
	if v == nil {
		return nil
	}
	not := !*v
	return &not
}
