package transport

import "github.com/topodisk/topodisk/diskdriver/disk"

// codes says what an error code of ECS means. The codes are those of the pages of
// the ECS API on the operations of disks, snapshots, tags and available
// resources, of its page on common error codes, and those that clients of ECS
// report besides. A code that ends in * stands for all that begin so; the longest
// match wins, so an exception stands beside its rule. What a code means for one
// action alone is in codesOf.
var codes = map[string]disk.Kind{
	// The rate of calls.
	"Throttling*":          disk.Throttled,
	"Rejected.Throttling*": disk.Throttled,

	// ECS doesn't say, or doesn't know, whether the call took effect.
	"InternalError":       disk.UnknownOutcome,
	"ServiceUnavailable*": disk.UnknownOutcome,
	"UnknownError":        disk.UnknownOutcome,
	"SignatureNonceUsed":  disk.UnknownOutcome, // something sent the request twice: the first one counts

	// The same call is under way, or what it needs is not ready.
	"LastTokenProcessing":                          disk.Pending,
	"LastOrderProcessing":                          disk.Pending,
	"IdempotentProcessing":                         disk.Pending,
	"OperationConflict*":                           disk.Pending,
	"InvalidOperation.Conflict":                    disk.Pending,
	"Operation.Conflict":                           disk.Pending,
	"IncorrectDiskStatus.Initializing":             disk.Pending,
	"InvalidSnapshot.NotReady":                     disk.Pending,
	"InvalidSnapshotId.NotReady":                   disk.Pending,
	"IncorrectDiskStatus.CreatingSnapshot":         disk.Pending,
	"IncorrectDiskStatus.TooManyCreatingSnapshots": disk.Pending,
	"IncorrectDiskStatus.Transferring":             disk.Pending,
	"InvalidStatus.DiskNotReady":                   disk.Pending, // its category is being changed
	"InvalidStatus.Upgrading":                      disk.Pending,
	"DiskCreatingSnapshot":                         disk.Pending,
	"IncorrectInstanceStatus":                      disk.Pending, // it starts or stops, or has just started
	"OperationDenied.UnfinishedOrder":              disk.Pending,
	"OperationDenied.DiskExpansionUnfinished":      disk.Pending,
	"DisksDetachingOnEcsExceeded":                  disk.Pending,
	"InvalidOperation.DiskDetachingFromThisEcs":    disk.Pending,
	"InvalidDevice.InUse":                          disk.Pending, // another attach was given the same name
	"BurstingEnabledForModifyingDiskUnsupported":   disk.Pending, // also for seconds after the change

	// The keys.
	"InvalidAccessKeyId*":         disk.Unauthenticated,
	"Forbidden.AccessKeyDisabled": disk.Unauthenticated,
	"SignatureDoesNotMatch":       disk.Unauthenticated,
	"IncompleteSignature":         disk.Unauthenticated,
	"InvalidSignatureMethod":      disk.Unauthenticated,
	"InvalidTimeStamp.*":          disk.Unauthenticated,
	"IllegalTimestamp":            disk.Unauthenticated,
	"InvalidSecurityToken*":       disk.Unauthenticated,
	"MissingSecurityToken":        disk.Unauthenticated,

	// What the keys may not do.
	"Forbidden":                   disk.Denied,
	"Forbidden.*":                 disk.Denied,
	"NoPermission*":               disk.Denied,
	"RealNameAuthenticationError": disk.Denied,
	"RegionUnauthorized":          disk.Denied,
	"UserNotInTheWhiteList":       disk.Denied,
	"InvalidPayMethod":            disk.Denied,
	"OperationDenied.RiskIssue":   disk.Denied,
	"InvalidAccountStatus.SnapshotServiceUnavailable": disk.Denied,
	"InvalidParameter.KMSKeyId.KMSUnauthorized":       disk.Denied,
	"InvalidParameter.KMSKeyId.CMKUnauthorized":       disk.Denied,
	"InvalidDiskStatus.DeleteProtection":              disk.Denied,

	// The client token was used with other parameters.
	"IdempotentParameterMismatch":          disk.Mismatch,
	"InvalidIdempotenceParameter.Mismatch": disk.Mismatch,

	// Not to be had of this category or level in this zone, now or ever: ECS
	// answers a category that is sold out as one that the zone doesn't know.
	"InvalidDataDiskCategory.*":                     disk.OutOfStock,
	"InvalidDiskCategory.*":                         disk.OutOfStock,
	"InvalidDiskSizeOrCategory":                     disk.OutOfStock,
	"InvalidPerformanceLevel.*":                     disk.OutOfStock, // some zones have no PL0
	"OperationDenied.ZoneNotSupportMultiAttachDisk": disk.OutOfStock,
	"OperationDenied":                               disk.OutOfStock, // "the specified zone is not available or not authorized"
	"OperationDenied.NoStock":                       disk.OutOfStock,
	"OperationDenied.ZoneNotAllowed":                disk.OutOfStock,
	"OperationDenied.ZoneSystemCategoryNotMatch":    disk.OutOfStock,
	"OperationDenied.CloudSSDNotSupported":          disk.OutOfStock,
	"Zone.NotOnSale":                                disk.OutOfStock,
	"QuotaExceed.DiskCapacity":                      disk.OutOfStock, // counted per zone and category

	// What the category or level doesn't take in any zone, however much there is.
	"InvalidDiskSize.NotSupported":                 disk.Unfit,
	"InvalidDataDiskSize.ValueNotSupported":        disk.Unfit,
	"InvalidSize.ValueNotSupported":                disk.Unfit,
	"InvalidPerformanceLevel.Malformed":            disk.Unfit, // of a level that the region doesn't have
	"OperationDenied.PerformanceLevelNotMatch":     disk.Unfit, // the disk is too small for the level
	"InvalidProvisionedIops.LimitExceed":           disk.Unfit,
	"ProvisionedIopsForDiskCategoryUnsupported":    disk.Unfit,
	"BurstingEnabledForDiskCategoryUnsupported":    disk.Unfit,
	"InvalidBurstingEnabled.*":                     disk.Unfit, // the disk is too small to burst
	"InvalidParameter.DiskCategoryAndMultiAttach*": disk.Unfit,

	// Limits of the account, money among them.
	"QuotaExceed.*":                         disk.Quota,
	"QuotaExceeded.*":                       disk.Quota,
	"OperationDenied.QuotaExceed":           disk.Quota,
	"Account.Arrearage":                     disk.Quota,
	"InsufficientBalance":                   disk.Quota,
	"InvalidAccountStatus.NotEnoughBalance": disk.Quota,
	"DiskInArrears":                         disk.Quota,
	"InstanceExpiredOrInArrears":            disk.Quota,
	"OperationDenied.NotEnoughCapacity":     disk.Quota, // of a dedicated cluster

	// An instance that takes no more disks.
	"InstanceDiskLimitExceeded":                 disk.NodeFull,
	"InstanceDiskNumber.Exceed":                 disk.NodeFull, // the older name
	"InvalidOperation.DiskQueueNumberNotEnough": disk.NodeFull,

	// A size that no other category would take either.
	"InvalidDiskSize.TooSmall":                  disk.OutOfRange, // smaller than the snapshot
	"InvalidDiskSize.ExceedsMultiAttachLimit":   disk.OutOfRange,
	"InvalidDiskSize":                           disk.OutOfRange, // not larger than the disk
	"InvalidDiskSize.TooLarge":                  disk.OutOfRange,
	"InvalidDiskSize.NotSupportMultiAttachDisk": disk.OutOfRange,

	// The request. A code that begins with Invalid names a parameter, but for those
	// that speak of a state: nothing follows from them unless they are listed.
	"Invalid*":                                       disk.Invalid,
	"InvalidOperation.*":                             disk.Unexpected,
	"InvalidDiskStatus.*":                            disk.Unexpected,
	"InvalidAccountStatus.*":                         disk.Unexpected,
	"MissingParameter*":                              disk.Invalid,
	"MissingParamter*":                               disk.Invalid, // ECS's spelling, here and in the next
	"IncompleteParamter*":                            disk.Invalid,
	"UnsupportedParameter*":                          disk.Invalid,
	"EncryptedOption.Conflict":                       disk.Invalid,
	"Duplicate.TagKey":                               disk.Invalid,
	"NumberExceed.Tags":                              disk.Invalid,
	"QuotaExceed.Tags":                               disk.Invalid, // more tags than one disk takes
	"OperationDenied.SnapshotNotAllowed":             disk.Invalid,
	"BurstingEnabledForMultiAttachDiskUnsupported":   disk.Invalid,
	"InvalidOperation.CreateFromSnapshotUnsupported": disk.Invalid,
	"InvalidOperation.DiskCategoryUnsupported":       disk.Invalid,
	"InvalidOperation.MultiAttachDisk":               disk.Invalid,
	"DiskNotPortable":                                disk.Invalid,
	"DiskTypeViolation":                              disk.Invalid,
	"DiskCategory.OperationNotSupported":             disk.Invalid,
	"DiskId.ValueNotSupported":                       disk.Invalid,
	"DeleteWithInstance.Conflict":                    disk.Invalid,
	"Downgrade.NotSupported":                         disk.Invalid,
	"NoAttributeToModify":                            disk.Invalid,
	"ResourcesNotInSameZone":                         disk.Invalid,
	"NumberExceed.ResourceIds":                       disk.Invalid,

	// What the request names.
	"InvalidDiskId.NotFound":          disk.NotFound,
	"InvalidSnapshot.NotFound":        disk.NotFound,
	"InvalidSnapshotId.NotFound":      disk.NotFound,
	"InvalidInstanceId.NotFound":      disk.NotFound,
	"InvalidSnapshotGroupId.NotFound": disk.NotFound,
	"InvalidResourceId.NotFound":      disk.NotFound,

	// Something else holds the disk.
	"IncorrectDiskStatus":        disk.InUse,
	"DiskStillAttached":          disk.InUse,
	"DiskId.StatusNotSupported":  disk.InUse,
	"InvalidDisk.InUse":          disk.InUse,
	"DiskAttachedNumberExceeded": disk.InUse, // by as many instances as a multi-attach disk may have
	"SnapshotCreatedDisk":        disk.InUse,
	"SnapshotCreatedImage":       disk.InUse,

	// The state of the disk or its instance, or a rule, is against it now.
	"IncorrectInstanceStatus.*":                              disk.Blocked,
	"InvalidInstanceStatus.*":                                disk.Blocked,
	"InstanceLockedForSecurity":                              disk.Blocked,
	"InvalidInstanceType.*":                                  disk.Blocked,
	"NotSupportDiskCategory":                                 disk.Blocked, // the older name
	"InvalidOperation.InstanceTypeNotSupport*":               disk.Blocked,
	"InvalidOperation.InstanceStatusUnsupported":             disk.Blocked,
	"InvalidOperation.OtherInstanceUnsupported":              disk.Blocked, // a disk that is one instance's for life
	"InvalidOperation.MultiAttachDiskNotSupportResizeOnline": disk.Blocked,
	"InvalidDiskSize.NotSupportResizeOnline":                 disk.Blocked,
	"DiskError":                                              disk.Blocked,
	"DependencyViolation":                                    disk.Blocked, // not attached to that instance; a read says what is
	"InvalidDisk.AlreadyDetached":                            disk.Blocked, // the same
	"DiskInCoolingPeriod":                                    disk.Blocked,
	"ModifyingDiskCategoryLimitExceed":                       disk.Blocked, // 50 at a time
	"NoChangeInDiskCategoryAndPerformanceLevel":              disk.Blocked, // there is nothing to do
	"QuotaExceed.ConcurrentSnapshotQuota":                    disk.Blocked,
	"IncorrectDiskStatus.NeverAttached":                      disk.Blocked,
	"IncorrectDiskStatus.NeverUsed":                          disk.Blocked,
	"IncorrectDiskStatus.Invalid":                            disk.Blocked,
	"NumberExceed.TooManyDisks":                              disk.Blocked, // of one snapshot group
	"CapacityExceed.TooManyDisks":                            disk.Blocked, // the same

	// Answers that only a mistake of this package or of the endpoint explains.
	"InvalidAction.NotFound":                disk.Unexpected,
	"UnsupportedHTTPMethod":                 disk.Unexpected,
	"InvalidOperation.NotSupportedEndpoint": disk.Unexpected,
	"DryRunOperation":                       disk.Unexpected,
}

// codesOf are the codes that mean something else for one action: what is not to be
// had for a new disk is, for a disk that there is, a wish that it can't fulfil.
var codesOf = map[string]map[string]disk.Kind{
	"CreateDisk": {
		"InvalidZoneId.NotFound": disk.OutOfStock, // a node's label may name any zone, and another node may do
	},
	"ResizeDisk": {
		"InvalidDataDiskSize.*":    disk.OutOfRange,
		"InvalidParameter":         disk.OutOfRange, // NewSize: of the others ECS takes what is sent
		"InvalidDiskCategory.*":    disk.Blocked,    // it can't be resized while it is in use
		"OperationDenied":          disk.Blocked,
		"QuotaExceed.DiskCapacity": disk.Quota,
		"IncorrectDiskStatus":      disk.Pending,
	},
	"ModifyDiskSpec": {
		"InvalidDiskCategory.*":                       disk.Invalid,
		"InvalidDiskCategory.InstanceTypeUnsupported": disk.Blocked,
		"InvalidPerformanceLevel.*":                   disk.Invalid,
		"InvalidProvisionedIops.*":                    disk.Invalid,
		"ProvisionedIopsForDiskCategoryUnsupported":   disk.Invalid,
		"OperationDenied.PerformanceLevelNotMatch":    disk.Blocked, // until the disk is larger
		"QuotaExceed.DiskCapacity":                    disk.Quota,
		"IncorrectDiskStatus":                         disk.Pending,
	},
	"ModifyDiskAttribute": {
		"IncorrectDiskStatus": disk.Pending,
	},
	"CreateSnapshot": {
		"IncorrectDiskStatus":   disk.Pending, // being made, attached, detached or changed
		"CreateSnapshot.Failed": disk.Unexpected,
		"QuotaExceed.Snapshot":  disk.OutOfStock, // CSI has a code of its own for it
	},
	// Disks that can't be snapshotted together may be made to (CSI spec,
	// CreateVolumeGroupSnapshot Errors).
	"CreateSnapshotGroup": {
		"IncorrectDiskStatus":                  disk.Pending,
		"QuotaExceed.Snapshot":                 disk.OutOfStock,
		"InvalidDiskIds.NotInSameZone":         disk.Blocked,
		"InvalidOperation.MultiAttachDisk":     disk.Blocked,
		"InvalidDisk.DiskCategoryInconsistent": disk.Blocked,
		"DiskCategory.OperationNotSupported":   disk.Blocked,
	},
}

// rowOf returns the Kind of a code for an action, and the row of the tables that
// says so.
func rowOf(action, code string) (disk.Kind, string, bool) {
	if kind, row, ok := longestMatch(codesOf[action], code); ok {
		return kind, action + " " + row, true
	}
	return longestMatch(codes, code)
}

// longestMatch looks a code up in one table.
func longestMatch(table map[string]disk.Kind, code string) (disk.Kind, string, bool) {
	if kind, ok := table[code]; ok {
		return kind, code, true
	}
	for end := len(code); end > 0; end-- {
		if kind, ok := table[code[:end]+"*"]; ok {
			return kind, code[:end] + "*", true
		}
	}
	return disk.Unexpected, "", false
}
