// Package actions is what ECS does: each action has a file, and a row in the
// table of this one. It answers requests, whoever sent them and however they
// came, from what is true in a region, and changes that.
package actions

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

// Action is one operation of the API.
type Action struct {
	Name     string
	version  string
	required []string                // parameters that are mandatory; Tag.N and the like stand for their list
	optional []string                // others that it takes; Tag.N.Key stands for a list
	absent   map[string]wire.Refusal // status and code by mandatory parameter, where it is not MissingParameter
	// notEmpty has the refusals of parameters that may be absent but not sent
	// with an empty value; package wire has the rules for all others.
	notEmpty map[string]wire.Refusal
	// regionCode is the status and the code of a refusal of another region.
	regionCode wire.Refusal
	anyRegion  bool
	Unsigned   bool // anybody may call it
	tagged     bool // takes Tag.N.Key and Tag.N.Value, or by their old names Tag.N.key and Tag.N.value
	ordered    bool // replies with the ID of an order
	lags       bool // a read that can show what was some time ago
	// about names the resources that the action is checked for, as ECS's page on
	// RAM authorization lists them: type, and the parameter that holds the ID;
	// without one the resource is to be made. Nil is everything.
	about [][2]string
	do    func(*Request) (wire.Object, *wire.Refusal)
}

// byName is the table of all actions, by name: a row an action, which its file
// declares.
var byName = table(
	createDiskAction,
	deleteDiskAction,
	describeDisksAction,
	attachDiskAction,
	detachDiskAction,
	resizeDiskAction,
	modifyDiskSpecAction,
	describeTasksAction,
	modifyDiskAttributeAction,
	createSnapshotAction,
	deleteSnapshotAction,
	describeSnapshotsAction,
	createSnapshotGroupAction,
	deleteSnapshotGroupAction,
	describeSnapshotGroupsAction,
	describeRegionsAction,
	describeZonesAction,
	describeAvailableResourceAction,
	describeInstancesAction,
	describeInstanceTypesAction,
	tagResourcesAction,
	untagResourcesAction,
	listTagResourcesAction,
	addTagsAction,
	removeTagsAction,
	describeTagsAction,
	getCallerIdentityAction,
	assumeRoleAction,
	assumeRoleWithOIDCAction,
	readMetadataAction,
	metadataTokenAction,
)

// table indexes operations by name and fills in what most have in common.
func table(list ...Action) map[string]Action {
	byName := map[string]Action{}
	for _, a := range list {
		if a.version == "" {
			a.version = versionECS
		}
		if a.regionCode.Code == "" {
			a.regionCode = wire.Refusal{Status: 404, Code: "InvalidRegionId.NotFound"}
		}
		byName[a.Name] = a
	}
	return byName
}

// wrongRegion is the refusal of a region that is not served here.
func (a Action) wrongRegion(region string) *wire.Refusal {
	return wire.Refuse(a.regionCode.Status, a.regionCode.Code, "The specified RegionId %q does not exist.", region)
}

// ownerParameters are taken by every action and mean nothing to a disk driver.
var ownerParameters = []string{"RegionId", "OwnerId", "OwnerAccount", "ResourceOwnerId", "ResourceOwnerAccount"}

// tagParameters are taken by every action that is tagged.
var tagParameters = []string{"Tag.N.Key", "Tag.N.Value", "Tag.N.key", "Tag.N.value"}

// takes tells whether the action knows a parameter, its numbers replaced by N.
func (a Action) takes(name string) bool {
	return slices.Contains(a.required, name) || slices.Contains(a.optional, name) || slices.Contains(ownerParameters, name) ||
		a.tagged && slices.Contains(tagParameters, name)
}

// Names returns the names of all actions, sorted.
func Names() []string { return slices.Sorted(maps.Keys(byName)) }

// Signed returns the names of the actions that somebody signs.
func Signed() []string { return namesOf(func(a Action) bool { return !a.Unsigned }) }

// Lagging returns the names of the reads that can show what was some time ago.
func Lagging() []string { return namesOf(func(a Action) bool { return a.lags }) }

// OfSTS returns the names of the actions of STS.
func OfSTS() []string { return namesOf(func(a Action) bool { return a.version == versionSTS }) }

func namesOf(such func(Action) bool) []string {
	return slices.DeleteFunc(Names(), func(name string) bool { return !such(byName[name]) })
}

// OfECS tells whether an action is one of ECS, not of another service.
func OfECS(name string) bool { return byName[name].version == versionECS }
