package actions

import (
	"slices"

	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var modifyDiskAttributeAction = Action{
	Name: "ModifyDiskAttribute",
	optional: []string{
		"DiskId", "DiskIds.N", "DiskName", "Description", "DeleteWithInstance", "DeleteAutoSnapshot", "EnableAutoSnapshot", "BurstingEnabled",
	},
	regionCode: wire.Refusal{Status: 400, Code: "InvalidRegionId.MalFormed"},
	about:      [][2]string{{"disk", "DiskId"}, {"disk", "DiskIds"}},
	do:         modifyDiskAttribute,
}

// maxModified is how many disks one request may change.
const maxModified = 100

// modifyDiskAttribute gives one or many disks new values: all of them or none.
func modifyDiskAttribute(req *Request) (wire.Object, *wire.Refusal) {
	change, no := readAttributes(req)
	if no != nil {
		return nil, no
	}
	disks, no := attributeTargets(req)
	if no != nil {
		return nil, no
	}
	for _, d := range disks {
		if no := checkAttributes(req, d, change); no != nil {
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
func readAttributes(req *Request) (attributes, *wire.Refusal) {
	var c attributes
	for name, into := range map[string]**string{"DiskName": &c.name, "Description": &c.description} {
		if v := req.Params[name]; v != "" {
			*into = &v
		}
	}
	for name, into := range map[string]**bool{
		"DeleteWithInstance": &c.deleteWithInstance, "DeleteAutoSnapshot": &c.deleteAutoSnapshot,
		"EnableAutoSnapshot": &c.autoSnapshot, "BurstingEnabled": &c.burst,
	} {
		if req.Params[name] == "" {
			continue
		}
		v, no := req.Params.Boolean(name, false)
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
func attributeTargets(req *Request) ([]*state.Disk, *wire.Refusal) {
	ids := req.Params.List("DiskIds")
	if len(ids) > maxModified {
		return nil, wire.Refuse(400, "InvalidParameter", "The specified parameter DiskIds.N is not valid: at most %d disks.", maxModified)
	}
	if req.Disk != "" && !slices.Contains(ids, req.Disk) {
		ids = append(ids, req.Disk)
	}
	if len(ids) == 0 {
		return nil, wire.Refuse(400, "IncompleteParamter", "Some fields can not be null in this request: DiskId or DiskIds.N.")
	}
	if len(ids) == 1 {
		req.Disk = ids[0]
	}
	var disks []*state.Disk
	for _, id := range ids {
		d, no := findDisk(req, id)
		if no != nil {
			return nil, no
		}
		disks = append(disks, d)
	}
	return disks, nil
}

// checkAttributes refuses new values that a disk can't have.
func checkAttributes(req *Request, d *state.Disk, c attributes) *wire.Refusal {
	burst := c.burst != nil && *c.burst
	spec := state.Categories[d.Category]
	switch {
	case c.burst != nil && (d.Task != nil || !d.Modified.IsZero() && req.Now.Before(d.Modified.Add(req.Timing.BurstReady))):
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
