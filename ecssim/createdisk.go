package ecssim

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/topodisk/topodisk/ecssim/wire"
)

var createDisk = action{
	name: "CreateDisk",
	optional: []string{
		"ZoneId", "InstanceId", "Size", "SnapshotId", "DiskCategory", "PerformanceLevel", "ProvisionedIops",
		"BurstingEnabled", "Encrypted", "KMSKeyId", "DiskName", "Description", "MultiAttach", "Tag.N.Key", "Tag.N.Value",
		"Tag.N.key", "Tag.N.value", "ResourceGroupId", "StorageClusterId", "ClientToken",
	},
	required: []string{"RegionId"},
	do:       (*Server).createDisk,
}

// createDisk makes a disk, or returns the one that its ClientToken made before.
func (s *Server) createDisk(x *exchange) (wire.Object, *wire.Refusal) {
	if no := checkToken(x.Params["ClientToken"]); no != nil {
		return nil, no
	}
	id, no := s.tokens.replay(x)
	if no == nil && id == "" {
		id, no = s.makeDisk(x)
		s.tokens.bind(x, id, no, s.config.BindFailedTokens)
	}
	if no != nil {
		return nil, no
	}
	x.disk = id
	return wire.Object{"DiskId": id}, nil
}

// makeDisk checks a request for a new disk, takes it from the stock and adds it.
func (s *Server) makeDisk(x *exchange) (string, *wire.Refusal) {
	d := &disk{token: x.Params["ClientToken"], created: x.now, creating: true}
	steps := []func(*exchange, *disk) *wire.Refusal{
		s.readOwner, readCategory, s.readSource, s.readSize, readLevel, s.readZone, readNames, s.readEncryption,
		readMultiAttach, readPerformance, s.readGroups,
	}
	for _, step := range steps {
		if no := step(x, d); no != nil {
			return "", no
		}
	}
	tags, no := newTags(x)
	if no != nil {
		return "", no
	}
	d.tags = newTagSet(tags, x.now)
	for _, check := range []func() *wire.Refusal{
		func() *wire.Refusal { return s.stock.check(d.zone, d.category) },
		s.checkQuota,
		func() *wire.Refusal { return s.checkCapacity(d.zone, d.category, d.size) },
		func() *wire.Refusal { return s.stock.take(d.zone, d.category) },
	} {
		if no := check(); no != nil {
			return "", no
		}
	}
	d.id = s.ids.resource(diskPrefix)
	s.disks.add(d)
	s.note(d, x.now, x.cause())
	s.plan(x, transition{
		at: x.now.Add(s.timing.Vary(s.timing.Available)), disk: d.id,
		valid: func() bool { return s.disks.byID[d.id] == d },
		done:  func(t transition) { d.creating = false; s.note(d, t.at, t.cause) },
		fail:  func(transition) { s.disks.remove(d); s.ledger.stats.diskGone(d.id) },
	})
	return d.id, nil
}

// readOwner refuses a disk that is bought for one instance by subscription,
// which this account can't.
func (s *Server) readOwner(x *exchange, _ *disk) *wire.Refusal {
	id := x.Params["InstanceId"]
	switch {
	case id == "":
		return nil
	case s.fleet.instances[id] == nil:
		return wire.Refuse(404, "InvalidInstanceId.NotFound", "The specified InstanceId %q does not exist.", id)
	case x.Params["ZoneId"] != "":
		return wire.Refuse(403, "InvalidParam.ZoneIdAndInstanceId.Conflict", "The specified param ZoneId and InstanceId are conflict.")
	}
	return wire.Refuse(403, "InvalidPayMethod", "The specified pay method is not valid: subscription disks are not for sale to this account.")
}

// readCategory reads DiskCategory. ECS's own default is the old category cloud.
func readCategory(x *exchange, d *disk) *wire.Refusal {
	d.category = x.Params["DiskCategory"]
	if d.category == "" {
		d.category = "cloud"
	}
	if slices.Contains(localCategories, d.category) {
		return wire.Refuse(400, "InvalidDiskCategory.NotSupported", "The specified disk category %q is not supported by this operation.", d.category)
	}
	if _, ok := categories[d.category]; !ok {
		return wire.Refuse(400, "InvalidDiskCategory.ValueNotSupported", "The specified parameter DiskCategory %q is not valid.", d.category)
	}
	return nil
}

// readSize reads Size. A snapshot's own size stands in for it, and for one
// that is less.
func (s *Server) readSize(x *exchange, d *disk) *wire.Refusal {
	size := x.Params["Size"]
	if size == "" && d.source == nil {
		return wire.Missing("Size")
	}
	n, err := wire.ReadNumber(size)
	if size != "" && (err != nil || n <= 0) {
		return wire.Refuse(400, "InvalidSize.ValueNotSupported", "The specified parameter Size %q is not valid: it must be a number of GiB above zero.", size)
	}
	if d.source != nil && n < d.source.size {
		if size != "" && s.config.Doubts.RefuseLessThanSnapshot {
			return wire.Refuse(403, "InvalidDiskSize.TooSmall", "The specified disk size %d is less than the %d GiB of snapshot %s.", n, d.source.size, d.source.id)
		}
		n = d.source.size
	}
	d.size, d.largest = n, n
	spec := categories[d.category]
	if n < spec.min || n > spec.max {
		return wire.Refuse(400, "InvalidDiskSize.NotSupported", "The specified disk size %d is not supported: category %s takes %d to %d GiB.", n, d.category, spec.min, spec.max)
	}
	return nil
}

// readLevel reads PerformanceLevel, which defaults to PL1 where there are any.
func readLevel(x *exchange, d *disk) *wire.Refusal {
	levels := categories[d.category].levels
	d.level = x.Params["PerformanceLevel"]
	if levels == nil {
		if d.level != "" {
			return wire.Refuse(400, "InvalidPerformanceLevel.Malformed", "The specified parameter PerformanceLevel %q is not valid: category %s has none.", d.level, d.category)
		}
		return nil
	}
	if d.level == "" {
		d.level = "PL1"
	}
	limits, ok := levels[d.level]
	if !ok {
		return wire.Refuse(400, "InvalidPerformanceLevel.Malformed", "The specified parameter PerformanceLevel %q is not valid: PL0, PL1, PL2 or PL3.", d.level)
	}
	if d.size < limits.min {
		return wire.Refuse(403, "OperationDenied.PerformanceLevelNotMatch", "The specified PerformanceLevel %s and disk size %d do not match: it takes %d GiB or more.", d.level, d.size, limits.min)
	}
	return nil
}

// readZone reads ZoneId, which every disk must have but a regional one.
func (s *Server) readZone(x *exchange, d *disk) *wire.Refusal {
	d.zone = x.Params["ZoneId"]
	if categories[d.category].regional {
		if d.zone != "" {
			return wire.Refuse(400, "InvalidZoneId.DiskCategoryUnsupported", "The specified ZoneId %q is not supported by disk category %s, which is regional.", d.zone, d.category)
		}
		return nil
	}
	if d.zone == "" {
		return wire.Missing("ZoneId")
	}
	if !slices.Contains(s.config.Zones, d.zone) {
		return wire.Refuse(404, "InvalidZoneId.NotFound", "The specified ZoneId %q does not exist.", d.zone)
	}
	return nil
}

// readNames reads DiskName and Description.
func readNames(x *exchange, d *disk) *wire.Refusal {
	d.name, d.description = x.Params["DiskName"], x.Params["Description"]
	if d.name != "" && !validName(d.name) {
		return badName("InvalidDiskName.Malformed", "disk name")
	}
	if d.description != "" && !validDescription(d.description) {
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
func (s *Server) readEncryption(x *exchange, d *disk) (no *wire.Refusal) {
	if d.encrypted, no = x.Params.Boolean("Encrypted", false); no != nil {
		return no
	}
	d.kmsKey = x.Params["KMSKeyId"]
	if d.source != nil && d.source.encrypted {
		if x.Params["Encrypted"] != "" && !d.encrypted {
			return wire.Refuse(403, "InvalidEncrypted.NotMatchSnapshot", "The specified Encrypted=false does not match snapshot %s, which is encrypted.", d.source.id)
		}
		d.encrypted = true
		if d.kmsKey == "" {
			d.kmsKey = d.source.kmsKey
		}
	}
	switch {
	case d.kmsKey != "" && !d.encrypted:
		return wire.Refuse(400, "InvalidEncrypted.NotMatchKmsKeyId", "The specified KMSKeyId is only valid for a disk with Encrypted=true.")
	case !known(s.config.KMSKeys, d.kmsKey):
		return wire.Refuse(404, "InvalidParameter.KMSKeyId.NotFound", "The specified KMSKeyId %q does not exist.", d.kmsKey)
	case d.encrypted && d.kmsKey == "":
		d.kmsKey = "key-service-" + s.config.Region
	}
	return nil
}

// readMultiAttach reads MultiAttach.
func readMultiAttach(x *exchange, d *disk) *wire.Refusal {
	if !x.Params.OneOf("MultiAttach", "Enabled", "Disabled") {
		return wire.Refuse(403, "InvalidParameter.MultiAttach", "The specified parameter MultiAttach %q is not valid: Enabled or Disabled.", x.Params["MultiAttach"])
	}
	d.multiAttach = x.Params["MultiAttach"] == "Enabled"
	if d.multiAttach && !categories[d.category].shared {
		return wire.Refuse(403, "InvalidParameter.DiskCategoryAndMultiAttachNotMatch", "The specified disk category %s does not support MultiAttach.", d.category)
	}
	return nil
}

// readPerformance reads ProvisionedIops and BurstingEnabled, which AutoPL
// disks alone take.
func readPerformance(x *exchange, d *disk) (no *wire.Refusal) {
	if d.provisionedIOPS, no = x.Params.Integer("ProvisionedIops", 0); no != nil {
		return no
	}
	if d.bursting, no = x.Params.Boolean("BurstingEnabled", false); no != nil {
		return no
	}
	auto := categories[d.category].auto
	switch {
	case x.Params["ProvisionedIops"] != "" && !auto:
		return wire.Refuse(400, "ProvisionedIopsForDiskCategoryUnsupported", "The specified disk category %s does not support provisioned IOPS.", d.category)
	case d.provisionedIOPS < 0 || d.provisionedIOPS > maxProvisionedIOPS(d.size) && d.provisionedIOPS != 0:
		return wire.Refuse(400, "InvalidProvisionedIops.LimitExceed", "The specified ProvisionedIops %d exceeds the limit: 0 to %d for %d GiB.", d.provisionedIOPS, maxProvisionedIOPS(d.size), d.size)
	case d.bursting && !auto:
		return wire.Refuse(400, "BurstingEnabledForDiskCategoryUnsupported", "The specified disk category %s does not support bursting.", d.category)
	case d.bursting && d.multiAttach:
		return wire.Refuse(400, "BurstingEnabledForMultiAttachDiskUnsupported", "A disk with MultiAttach does not support bursting.")
	case d.bursting && d.size <= 3:
		return wire.Refuse(400, "InvalidBurstingEnabled.DiskSizeTooSmall", "The specified disk size %d is too small for bursting: it takes more than 3 GiB.", d.size)
	}
	return nil
}

// readGroups reads ResourceGroupId and StorageClusterId.
func (s *Server) readGroups(x *exchange, d *disk) *wire.Refusal {
	d.resourceGroup, d.storageCluster = x.Params["ResourceGroupId"], x.Params["StorageClusterId"]
	if !known(s.config.ResourceGroups, d.resourceGroup) {
		return wire.Refuse(404, "InvalidResourceGroup.NotFound", "The specified ResourceGroupId %q does not exist.", d.resourceGroup)
	}
	if !known(s.config.StorageClusters, d.storageCluster) {
		return wire.Refuse(404, "InvalidStorageClusterId.NotExist", "The specified StorageClusterId %q does not exist.", d.storageCluster)
	}
	return nil
}

// known tells whether an ID is absent, or one of those that exist; nil is all.
func known(ids []string, id string) bool {
	return id == "" || ids == nil || slices.Contains(ids, id)
}
