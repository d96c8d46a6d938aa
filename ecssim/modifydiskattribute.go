package ecssim

import (
	"slices"

	"github.com/topodisk/topodisk/ecssim/state"
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
func (s *Server) attributeTargets(x *exchange) ([]*state.Disk, *wire.Refusal) {
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
	var disks []*state.Disk
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
func (s *Server) checkAttributes(x *exchange, d *state.Disk, c attributes) *wire.Refusal {
	burst := c.burst != nil && *c.burst
	spec := state.Categories[d.Category]
	switch {
	case c.burst != nil && (d.Task != nil || !d.Modified.IsZero() && x.now.Before(d.Modified.Add(s.timing.BurstReady))):
		return wire.Refuse(403, "BurstingEnabledForModifyingDiskUnsupported", "The disk %s is being changed: BurstingEnabled can't be set.", d.ID)
	case d.Creating || d.Modifying:
		return wrongState(d)
	case c.deleteWithInstance != nil && *c.deleteWithInstance && d.MultiAttach:
		return wire.Refuse(403, "DeleteWithInstance.Conflict", "A disk with MultiAttach can't be released together with an instance.")
	case c.burst != nil && (!spec.Auto || spec.Regional):
		return wire.Refuse(400, "BurstingEnabledForDiskCategoryUnsupported", "The disk category %s does not support bursting.", d.Category)
	case burst && d.MultiAttach:
		return wire.Refuse(400, "BurstingEnabledForMultiAttachDiskUnsupported", "A disk with MultiAttach does not support bursting.")
	case burst && d.Size <= 3:
		return wire.Refuse(400, "InvalidBurstingEnabled.DiskSizeTooSmall", "The disk size %d is too small for bursting: it takes more than 3 GiB.", d.Size)
	}
	return nil
}

func (c attributes) apply(d *state.Disk) {
	set(&d.Name, c.name)
	set(&d.Description, c.description)
	set(&d.DeleteWithInstance, c.deleteWithInstance)
	set(&d.KeepAutoSnapshot, negated(c.deleteAutoSnapshot))
	set(&d.NoAutoSnapshot, negated(c.autoSnapshot))
	set(&d.Bursting, c.burst)
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
