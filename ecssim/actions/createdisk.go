package actions

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var createDiskAction = Action{
	Name: "CreateDisk",
	optional: []string{
		"ZoneId", "InstanceId", "Size", "SnapshotId", "DiskCategory", "PerformanceLevel", "ProvisionedIops",
		"BurstingEnabled", "Encrypted", "KMSKeyId", "DiskName", "Description", "MultiAttach", "ResourceGroupId", "StorageClusterId", "ClientToken",
	},
	tagged:   true,
	required: []string{"RegionId"},
	about:    [][2]string{{"disk"}, {"snapshot", "SnapshotId"}},
	do:       createDisk,
}

// createDisk makes a disk, or returns the one that its ClientToken made before.
func createDisk(req *Request) (wire.Object, *wire.Refusal) {
	id, no := underToken(req, makeDisk)
	if no != nil {
		return nil, no
	}
	req.Disk = id
	return wire.Object{"DiskId": id}, nil
}

// makeDisk checks a request for a new disk, takes it from the stock and adds it.
func makeDisk(req *Request) (string, *wire.Refusal) {
	d := &state.Disk{Token: req.Params["ClientToken"], Created: req.Now, Creating: true}
	steps := []func(*Request, *state.Disk) *wire.Refusal{
		readOwner, readCategory, readSource, readSize, readLevel, readZone, readNames, readEncryption,
		readMultiAttach, readPerformance, readGroups,
	}
	for _, step := range steps {
		if no := step(req, d); no != nil {
			return "", no
		}
	}
	tags, no := newTags(req)
	if no != nil {
		return "", no
	}
	d.Tags = state.NewTagSet(tags, req.Now)
	for _, check := range []func() *wire.Refusal{
		func() *wire.Refusal { return checkStock(req, d.Zone, d.Category) },
		func() *wire.Refusal { return checkQuota(req) },
		func() *wire.Refusal { return checkCapacity(req, d.Zone, d.Category, d.Size) },
	} {
		if no := check(); no != nil {
			return "", no
		}
	}
	req.Region.TakeStock(d.Zone, d.Category)
	req.Region.AddDisk(d, req.Cause())
	plan(req, state.Transition{
		At: req.Now.Add(req.Timing.Vary(req.Timing.Available)), Disk: d.ID,
		Valid: func() bool { return req.Region.Disk(d.ID) == d },
		Done:  func(t state.Transition) { d.Creating = false; req.Region.Note(d, t.At, t.Cause) },
		Fail:  func(state.Transition) { req.Region.DeleteDisk(d) },
	})
	return d.ID, nil
}

// readOwner refuses a disk that is bought for one instance by subscription,
// which this account can't.
func readOwner(req *Request, _ *state.Disk) *wire.Refusal {
	id := req.Params["InstanceId"]
	switch {
	case id == "":
		return nil
	case req.Region.Instance(id) == nil:
		return wire.Refuse(404, "InvalidInstanceId.NotFound", "The specified InstanceId %q does not exist.", id)
	case req.Params["ZoneId"] != "":
		return wire.Refuse(403, "InvalidParam.ZoneIdAndInstanceId.Conflict", "The specified param ZoneId and InstanceId are conflict.")
	}
	return wire.Refuse(403, "InvalidPayMethod", "The specified pay method is not valid: subscription disks are not for sale to this account.")
}

// readCategory reads DiskCategory. ECS's own default is the old category cloud.
func readCategory(req *Request, d *state.Disk) *wire.Refusal {
	d.Category = req.Params["DiskCategory"]
	if d.Category == "" {
		d.Category = "cloud"
	}
	if slices.Contains(state.LocalCategories, d.Category) {
		return wire.Refuse(400, "InvalidDiskCategory.NotSupported", "The specified disk category %q is not supported by this operation.", d.Category)
	}
	if _, ok := state.Categories[d.Category]; !ok {
		return wire.Refuse(400, "InvalidDiskCategory.ValueNotSupported", "The specified parameter DiskCategory %q is not valid.", d.Category)
	}
	return nil
}

// readSize reads Size. A snapshot's own size stands in for it, and for one
// that is less.
func readSize(req *Request, d *state.Disk) *wire.Refusal {
	size := req.Params["Size"]
	if size == "" && d.Source == nil {
		return wire.Missing("Size")
	}
	n, err := wire.ReadNumber(size)
	if size != "" && (err != nil || n <= 0) {
		return wire.Refuse(400, "InvalidSize.ValueNotSupported", "The specified parameter Size %q is not valid: it must be a number of GiB above zero.", size)
	}
	if d.Source != nil && n < d.Source.Size {
		if size != "" && req.Rules.Doubts.RefuseLessThanSnapshot {
			return wire.Refuse(403, "InvalidDiskSize.TooSmall", "The specified disk size %d is less than the %d GiB of snapshot %s.", n, d.Source.Size, d.Source.ID)
		}
		n = d.Source.Size
	}
	d.Size, d.Largest = n, n
	spec := state.Categories[d.Category]
	if n < spec.Min || n > spec.Max {
		return wire.Refuse(400, "InvalidDiskSize.NotSupported", "The specified disk size %d is not supported: category %s takes %d to %d GiB.", n, d.Category, spec.Min, spec.Max)
	}
	return nil
}

// readLevel reads PerformanceLevel, which defaults to PL1 where there are any.
func readLevel(req *Request, d *state.Disk) *wire.Refusal {
	levels := state.Categories[d.Category].Levels
	d.Level = req.Params["PerformanceLevel"]
	if levels == nil {
		if d.Level != "" {
			return wire.Refuse(400, "InvalidPerformanceLevel.Malformed", "The specified parameter PerformanceLevel %q is not valid: category %s has none.", d.Level, d.Category)
		}
		return nil
	}
	if d.Level == "" {
		d.Level = "PL1"
	}
	limits, ok := levels[d.Level]
	if !ok {
		return wire.Refuse(400, "InvalidPerformanceLevel.Malformed", "The specified parameter PerformanceLevel %q is not valid: PL0, PL1, PL2 or PL3.", d.Level)
	}
	if d.Size < limits.Min {
		return wire.Refuse(403, "OperationDenied.PerformanceLevelNotMatch", "The specified PerformanceLevel %s and disk size %d do not match: it takes %d GiB or more.", d.Level, d.Size, limits.Min)
	}
	return nil
}

// readZone reads ZoneId, which every disk must have but a regional one.
func readZone(req *Request, d *state.Disk) *wire.Refusal {
	d.Zone = req.Params["ZoneId"]
	if state.Categories[d.Category].Regional {
		if d.Zone != "" {
			return wire.Refuse(400, "InvalidZoneId.DiskCategoryUnsupported", "The specified ZoneId %q is not supported by disk category %s, which is regional.", d.Zone, d.Category)
		}
		return nil
	}
	if d.Zone == "" {
		return wire.Missing("ZoneId")
	}
	if !slices.Contains(req.Rules.Zones, d.Zone) {
		return wire.Refuse(404, "InvalidZoneId.NotFound", "The specified ZoneId %q does not exist.", d.Zone)
	}
	return nil
}

// readNames reads DiskName and Description.
func readNames(req *Request, d *state.Disk) *wire.Refusal {
	d.Name, d.Description = req.Params["DiskName"], req.Params["Description"]
	if d.Name != "" && !validName(d.Name) {
		return badName("InvalidDiskName.Malformed", "disk name")
	}
	if d.Description != "" && !validDescription(d.Description) {
		return badDescription(400)
	}
	return nil
}

func badName(code, what string) *wire.Refusal {
	return wire.Refuse(400, code, "The specified %s is wrongly formed: 2 to 128 letters, digits, colons, underscores, periods and hyphens, a letter first, not http:// or https://.", what)
}

// badDescription is the refusal of a description; its status is not the same
// for all actions.
func badDescription(status int) *wire.Refusal {
	return wire.Refuse(status, "InvalidDescription.Malformed", "The specified description is wrongly formed: 2 to 256 characters that don't begin with http:// or https://.")
}

func validDescription(text string) bool {
	n := utf8.RuneCountInString(text)
	return n >= 2 && n <= 256 && !linkFirst(text)
}

func linkFirst(s string) bool {
	return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://")
}

func validName(name string) bool {
	if n := utf8.RuneCountInString(name); n < 2 || n > 128 || linkFirst(name) {
		return false
	}
	for i, r := range name {
		letter := unicode.IsLetter(r)
		if i == 0 && !letter || !letter && !unicode.IsDigit(r) && !strings.ContainsRune(":_.-", r) {
			return false
		}
	}
	return true
}

// readEncryption reads Encrypted and KMSKeyId. Encryption without a key uses
// that of the snapshot, or else the service's own.
func readEncryption(req *Request, d *state.Disk) (no *wire.Refusal) {
	if d.Encrypted, no = req.Params.Boolean("Encrypted", false); no != nil {
		return no
	}
	d.KMSKey = req.Params["KMSKeyId"]
	if d.Source != nil && d.Source.Encrypted {
		if req.Params["Encrypted"] != "" && !d.Encrypted {
			return wire.Refuse(403, "InvalidEncrypted.NotMatchSnapshot", "The specified Encrypted=false does not match snapshot %s, which is encrypted.", d.Source.ID)
		}
		d.Encrypted = true
		if d.KMSKey == "" {
			d.KMSKey = d.Source.KMSKey
		}
	}
	switch {
	case d.KMSKey != "" && !d.Encrypted:
		return wire.Refuse(400, "InvalidEncrypted.NotMatchKmsKeyId", "The specified KMSKeyId is only valid for a disk with Encrypted=true.")
	case !known(req.Rules.KMSKeys, d.KMSKey):
		return wire.Refuse(404, "InvalidParameter.KMSKeyId.NotFound", "The specified KMSKeyId %q does not exist.", d.KMSKey)
	case d.Encrypted && d.KMSKey == "":
		d.KMSKey = "key-service-" + req.Rules.Region
	}
	return nil
}

// readMultiAttach reads MultiAttach.
func readMultiAttach(req *Request, d *state.Disk) *wire.Refusal {
	if !req.Params.OneOf("MultiAttach", "Enabled", "Disabled") {
		return wire.Refuse(403, "InvalidParameter.MultiAttach", "The specified parameter MultiAttach %q is not valid: Enabled or Disabled.", req.Params["MultiAttach"])
	}
	d.MultiAttach = req.Params["MultiAttach"] == "Enabled"
	if d.MultiAttach && !state.Categories[d.Category].Shared {
		return wire.Refuse(403, "InvalidParameter.DiskCategoryAndMultiAttachNotMatch", "The specified disk category %s does not support MultiAttach.", d.Category)
	}
	return nil
}

// readPerformance reads ProvisionedIops and BurstingEnabled, which AutoPL
// disks alone take.
func readPerformance(req *Request, d *state.Disk) (no *wire.Refusal) {
	if d.ProvisionedIOPS, no = req.Params.Integer("ProvisionedIops", 0); no != nil {
		return no
	}
	if d.Bursting, no = req.Params.Boolean("BurstingEnabled", false); no != nil {
		return no
	}
	auto := state.Categories[d.Category].Auto
	switch {
	case req.Params["ProvisionedIops"] != "" && !auto:
		return wire.Refuse(400, "ProvisionedIopsForDiskCategoryUnsupported", "The specified disk category %s does not support provisioned IOPS.", d.Category)
	case d.ProvisionedIOPS < 0 || d.ProvisionedIOPS > state.MaxProvisionedIOPS(d.Size) && d.ProvisionedIOPS != 0:
		return wire.Refuse(400, "InvalidProvisionedIops.LimitExceed", "The specified ProvisionedIops %d exceeds the limit: 0 to %d for %d GiB.", d.ProvisionedIOPS, state.MaxProvisionedIOPS(d.Size), d.Size)
	case d.Bursting && !auto:
		return wire.Refuse(400, "BurstingEnabledForDiskCategoryUnsupported", "The specified disk category %s does not support bursting.", d.Category)
	case d.Bursting && d.MultiAttach:
		return wire.Refuse(400, "BurstingEnabledForMultiAttachDiskUnsupported", "A disk with MultiAttach does not support bursting.")
	case d.Bursting && d.Size <= 3:
		return wire.Refuse(400, "InvalidBurstingEnabled.DiskSizeTooSmall", "The specified disk size %d is too small for bursting: it takes more than 3 GiB.", d.Size)
	}
	return nil
}

// readGroups reads ResourceGroupId and StorageClusterId.
func readGroups(req *Request, d *state.Disk) *wire.Refusal {
	d.ResourceGroup, d.StorageCluster = req.Params["ResourceGroupId"], req.Params["StorageClusterId"]
	if !known(req.Rules.ResourceGroups, d.ResourceGroup) {
		return wire.Refuse(404, "InvalidResourceGroup.NotFound", "The specified ResourceGroupId %q does not exist.", d.ResourceGroup)
	}
	if !known(req.Rules.StorageClusters, d.StorageCluster) {
		return wire.Refuse(404, "InvalidStorageClusterId.NotExist", "The specified StorageClusterId %q does not exist.", d.StorageCluster)
	}
	return nil
}

// known tells whether an ID is absent, or one of those that exist; nil is all.
func known(ids []string, id string) bool {
	return id == "" || ids == nil || slices.Contains(ids, id)
}
