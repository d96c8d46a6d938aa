package ecssim

import (
	"maps"
	"slices"

	"github.com/topodisk/topodisk/ecssim/wire"
)

// The API versions that are spoken, which tell the products apart.
const (
	versionECS = "2014-05-26"
	versionSTS = "2015-04-01"
)

// action is one operation of the API.
type action struct {
	name     string
	version  string
	required []string                // parameters that are mandatory; Tag.N and the like stand for their list
	optional []string                // others that it takes; Tag.N.Key stands for a list
	absent   map[string]wire.Refusal // status and code by mandatory parameter, where it is not MissingParameter
	// notEmpty has the refusals of parameters that may be absent but not sent
	// with an empty value; see emptyCounts for all others.
	notEmpty map[string]wire.Refusal
	// regionCode is the status and the code of a refusal of another region.
	regionCode wire.Refusal
	anyRegion  bool
	unsigned   bool // anybody may call it
	do         func(*Server, *exchange) (wire.Object, *wire.Refusal)
}

// actions is the table of all operations, by name. Each is declared in the
// file of its verb or noun.
var actions = table(
	createDisk, deleteDisk, describeDisks, attachDisk, detachDisk, resizeDisk,
	modifyDiskSpec, describeTasks, modifyDiskAttribute,
	createSnapshot, deleteSnapshot, describeSnapshots,
	createSnapshotGroup, deleteSnapshotGroup, describeSnapshotGroups,
	describeRegions, describeZones, describeAvailableResource,
	describeInstances, describeInstanceTypes,
	tagResources, untagResources, listTagResources, addTags, removeTags, describeTags,
	getCallerIdentity, assumeRole, assumeRoleWithOIDC,
	readMetadata, metadataToken,
)

// table indexes operations by name and fills in what most have in common.
func table(list ...action) map[string]action {
	byName := map[string]action{}
	for _, a := range list {
		if a.version == "" {
			a.version = versionECS
		}
		if a.regionCode.Code == "" {
			a.regionCode = wire.Refusal{Status: 404, Code: "InvalidRegionId.NotFound"}
		}
		byName[a.name] = a
	}
	return byName
}

// wrongRegion is the refusal of a region that is not served here.
func (a action) wrongRegion(region string) *wire.Refusal {
	return wire.Refuse(a.regionCode.Status, a.regionCode.Code, "The specified RegionId %q does not exist.", region)
}

// ownerParameters are taken by every action and mean nothing to a disk driver.
var ownerParameters = []string{"RegionId", "OwnerId", "OwnerAccount", "ResourceOwnerId", "ResourceOwnerAccount"}

// takes tells whether the action knows a parameter, its numbers replaced by N.
func (a action) takes(name string) bool {
	return slices.Contains(a.required, name) || slices.Contains(a.optional, name) || slices.Contains(ownerParameters, name)
}

// ActionNames returns the names of all operations, sorted.
func ActionNames() []string { return slices.Sorted(maps.Keys(actions)) }

// namesOf returns the names of the operations that are such, sorted.
func namesOf(such func(action) bool) []string {
	return slices.DeleteFunc(ActionNames(), func(name string) bool { return !such(actions[name]) })
}

// signedActions are those that somebody signs.
func signedActions() []string { return namesOf(func(a action) bool { return !a.unsigned }) }
