package wire

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ErrorCode is a code that an action may be refused with, and its HTTP status.
type ErrorCode struct {
	Code   string `json:"code"`
	Status int    `json:"status"`
}

// Codes returns the error codes of an action as ECS documents them, those of
// the gateway included, sorted by code. A code that editions of the
// documentation give different statuses is there with each, the newest first.
// An action without a table of its own has those of the gateway.
func Codes(action string) []ErrorCode {
	var list []ErrorCode
	add := func(code string, status int) {
		if c := (ErrorCode{code, status}); !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	for _, name := range slices.Compact([]string{action, ""}) {
		for _, status := range slices.Sorted(maps.Keys(codeTables[name])) {
			for code := range strings.FieldsSeq(codeTables[name][status]) {
				add(code, status)
			}
		}
		for older := range strings.FieldsSeq(olderStatuses[name]) {
			add(splitStatus(older))
		}
	}
	slices.SortStableFunc(list, func(a, b ErrorCode) int { return strings.Compare(a.Code, b.Code) })
	return list
}

// splitStatus takes apart code=status.
func splitStatus(text string) (string, int) {
	code, digits, _ := strings.Cut(text, "=")
	status, err := strconv.Atoi(digits)
	if err != nil {
		panic("wire: " + text + " is not code=status")
	}
	return code, status
}

// StatusOf returns the HTTP status that a code of an action has, or fallback
// if no table has the code.
func StatusOf(action, code string, fallback int) int {
	for _, c := range Codes(action) {
		if c.Code == code {
			return c.Status
		}
	}
	return fallback
}

// kmsCodes are those of every action that uses a key.
const kmsCodes = " InvalidParameter.KMSKeyId.CMKNotEnabled InvalidParameter.KMSKeyId.KMSUnauthorized InvalidParameter.KMSKeyId.CMKUnauthorized "

// codeTables are the tables of error codes by action and HTTP status, "" for
// those of the gateway. The spellings are ECS's.
var codeTables = map[string]map[int]string{
	"": {
		400: `Throttling Throttling.User Throttling.Api Throttling.ConcurrentLimitExceeded Rejected.Throttling UnknownError MissingParameter
			InvalidParameter UnsupportedParameter InvalidAccessKeyId.NotFound SignatureDoesNotMatch IncompleteSignature SignatureNonceUsed
			InvalidSignatureMethod InvalidTimeStamp.Expired InvalidTimeStamp.Format IllegalTimestamp InvalidSecurityToken.Expired InvalidSecurityToken.Malformed
			InvalidSecurityToken.MismatchWithAccessKey InsufficientBalance Account.Arrearage IdempotentParameterMismatch DryRunOperation
			InvalidOperation.NotSupportedEndpoint`,
		403: `UnsupportedHTTPMethod Forbidden.AccessKeyDisabled InvalidAccessKeyId.Inactive Forbidden.RAM Forbidden.SubUser
			Forbidden.Unauthorized Forbidden.RiskControl RealNameAuthenticationError InvalidIdempotenceParameter.Mismatch LastTokenProcessing`,
		404: `InvalidAction.NotFound InvalidRegionId.NotFound`,
		409: `OperationConflict`,
		500: `InternalError`,
		503: `ServiceUnavailable ServiceUnavailable.RegionMaintaining`,
	},
	"CreateDisk": {
		400: `InvalidSize.ValueNotSupported InvalidDiskName.Malformed InvalidDescription.Malformed MissingParameter InvalidDiskCategory.NotSupported
			InvalidDiskCategory.ValueNotSupported InvalidDataDiskCategory.NotSupported InvalidParameter.Conflict OperationDenied
			InvalidDiskSize.NotSupported InvalidDiskSizeOrCategory InvalidParameter.EncryptedIllegal InvalidEncrypted.NotMatchKmsKeyId
			InvalidKMSKeyId.NotSymmetric InvalidParameter.KmsNotEnabled EncryptedOption.Conflict InvalidParameter.Encrypted Duplicate.TagKey
			InvalidTagKey.Malformed InvalidTagValue.Malformed InvalidPerformanceLevel.Malformed InvalidPerformanceLevel.ValueNotSupported
			ProvisionedIopsForDiskCategoryUnsupported InvalidProvisionedIops.LimitExceed BurstingEnabledForDiskCategoryUnsupported
			BurstingEnabledForMultiAttachDiskUnsupported InvalidBurstingEnabled.DiskSizeTooSmall QuotaExceed.DiskCapacity
			InvalidZoneId.DiskCategoryUnsupported Account.Arrearage OperationDenied.RiskIssue InvalidDiskSize.ExceedsMultiAttachLimit`,
		403: `Zone.NotOnSale RegionUnauthorized InvalidDataDiskCategory.ValueNotSupported InvalidDataDiskSize.ValueNotSupported InvalidDiskSize.TooSmall
			OperationDenied.PerformanceLevelNotMatch OperationDenied.NoStock QuotaExceed.PortableCloudDisk QuotaExceed.PostPaidDisk
			QuotaExceeded.PostpaidDataDiskCapacity QuotaExceed.Tags LastTokenProcessing InvalidSnapshot.NotReady InvalidSnapshotId.NotReady
			InvalidSnapshot.TooOld InvalidSnapshot.TooLarge InvalidSnapshotId.NotDataDiskSnapshot OperationDenied.SnapshotNotAllowed
			InvalidOperation.CreateFromSnapshotUnsupported InvalidParameter.MultiAttach InvalidParameter.DiskCategoryAndMultiAttachNotMatch
			InvalidParameter.DiskCategoryAndMultiAttachConflict OperationDenied.ZoneNotSupportMultiAttachDisk InvalidEncrypted.NotMatchSnapshot
			InvalidEncrypted.NotMatchDiskDefaultEncryption InvalidParameter.EncryptedNotSupported InvalidDiskCategory.ValueUnauthorized
			UserNotInTheWhiteList InvalidPayMethod InvalidAccountStatus.NotEnoughBalance InvalidAccountStatus.SnapshotServiceUnavailable
			InvalidParam.ZoneIdAndInstanceId.Conflict` + kmsCodes,
		404: `InvalidRegionId.NotFound InvalidZoneId.NotFound InvalidSnapshotId.NotFound InvalidResourceGroup.NotFound InvalidParameter.KMSKeyId.NotFound
			InvalidInstanceId.NotFound InvalidStorageClusterId.NotExist`,
		500: `InternalError`,
	},
	"DeleteDisk": {
		400: `InvalidRegionId.MalFormed`,
		403: `IncorrectDiskStatus IncorrectDiskStatus.Initializing DiskStillAttached DiskCreatingSnapshot DiskNotPortable DiskTypeViolation
			InvalidDiskStatus.DeleteProtection UserNotInTheWhiteList`,
		404: `InvalidDiskId.NotFound`,
		500: `InternalError`,
	},
	"DescribeDisks": {
		400: `InvalidDiskType.ValueNotSupported InvalidCategory.ValueNotSupported InvalidStatus.ValueNotSupported InvalidTag.Mismatch InvalidTagCount
			InvalidRegion.NotFound InvalidZoneId.NotFound MissingParamter.RegionId IncompleteParamter InvalidParamter InvalidSnapshot.NotFound
			InvalidParameter.DiskIds`,
		403: `InvalidDiskIds.Malformed InvalidParameter.MultiAttach`,
		404: `InvalidFilterKey.NotFound InvalidFilterValue InvalidDiskIds.ValueNotSupported InvalidDiskChargeType.NotFound InvalidLockReason.NotFound`,
		500: `InternalError`,
	},
	"AttachDisk": {
		400: `IncorrectInstanceStatus InvalidParameter InvalidRegionId.MalFormed InvalidDevice.Malformed InvalidOperation.InstanceTypeNotSupport
			DiskCategory.OperationNotSupported OperationConflict.DisksAttachingParallellyExceed InvalidParameterForce.DiskCategoryNotSupported
			InvalidParameterForce.PrepaidDiskNotSupported InvalidParameterForce.MultiAttachDiskNotSupported InvalidParameterForce.RegionNotSupported
			InvalidDisk.DiskNotBootable`,
		403: `IncorrectDiskStatus IncorrectDiskStatus.Initializing InstanceDiskLimitExceeded InvalidOperation.Conflict InvalidDevice.InUse DiskNotPortable
			ResourcesNotInSameZone InstanceLockedForSecurity InstanceExpiredOrInArrears DiskInArrears DiskError DiskId.ValueNotSupported
			DiskId.StatusNotSupported InvalidInstanceType.NotSupportDiskCategory InvalidInstanceType.NotSupportPL0 InvalidInstanceType.NvmeRequired
			InvalidInstanceType.NvmeUnsupported InvalidInstanceType.NotSupportMultiAttachDisk DiskAttachedNumberExceeded DeleteWithInstance.Conflict
			InvalidParameter.DeleteWithInstance InvalidOperation.OtherInstanceUnsupported InvalidInstance.ZoneConflict
			InvalidOperation.DiskQueueNumberNotEnough IncorrectInstanceStatus.NotSupportESSD UserNotInTheWhiteList` + kmsCodes,
		404: `InvalidInstanceId.NotFound InvalidDiskId.NotFound InvalidDisk.InUse InvalidKMSKeyId.NotFound`,
		500: `InternalError`,
	},
	"DetachDisk": {
		400: `InvalidParameter InvalidRegionId.MalFormed InvalidOperation.InstanceTypeNotSupport DisksDetachingOnEcsExceeded`,
		403: `IncorrectDiskStatus DependencyViolation InvalidOperation.DiskDetachingFromThisEcs InvalidOperation.Conflict DiskNotPortable
			DiskTypeViolation IncorrectInstanceStatus InstanceLockedForSecurity DeleteWithInstance.Conflict InvalidParameter.DeleteWithInstance
			InvalidOperation.DiskCategoryUnsupported`,
		404: `InvalidInstanceId.NotFound InvalidDiskId.NotFound InvalidDisk.AlreadyDetached InvalidDiskId.OperationNotSupported`,
		500: `InternalError`,
	},
	"ResizeDisk": {
		400: `InvalidDataDiskSize.ValueNotSupported IncompleteParamter InvalidParam.Type LastOrderProcessing InvalidStatus.Upgrading
			QuotaExceed.DiskCapacity OperationDenied.UnfinishedOrder OperationDenied.NotEnoughCapacity`,
		403: `InvalidDiskSize.TooSmall InvalidDiskSize InvalidDiskSize.TooLarge OperationDenied IncorrectDiskStatus IncorrectInstanceStatus
			InvalidInstanceStatus.NotRunning InvalidDiskCategory.NotSupported InvalidRegion.NotSupport
			InvalidOperation.InstanceTypeNotSupportOnlineResize InvalidDiskSize.NotSupportResizeOnline
			InvalidOperation.MultiAttachDiskNotSupportResizeOnline DiskCreatingSnapshot DiskInArrears Operation.Conflict
			QuotaExceeded.PostpaidDataDiskCapacity InvalidDiskSize.NotSupportMultiAttachDisk LastTokenProcessing` + kmsCodes,
		404: `InvalidDiskId.NotFound InvalidInstanceId.NotFound`,
		500: `InternalError`,
	},
	"ModifyDiskSpec": {
		400: `InvalidPerformanceLevel.Malformed InvalidDiskCategory.ValueNotSupported InvalidPerformanceLevelParam.Mismatch
			ProvisionedIopsForDiskCategoryUnsupported InvalidProvisionedIops.LimitExceed QuotaExceed.DiskCapacity
			InvalidOperation.InstanceStatusUnsupported MissingParameter.DestinationZoneId`,
		403: `OperationDenied.PerformanceLevelNotMatch OperationDenied.NoStock IncorrectDiskStatus InvalidStatus.DiskNotReady DiskCreatingSnapshot
			ModifyingDiskCategoryLimitExceed DiskInCoolingPeriod NoChangeInDiskCategoryAndPerformanceLevel
			InvalidDiskCategory.InstanceTypeUnsupported InvalidInstanceType.NotSupportDiskCategory InvalidOperation.MultiAttachDisk
			OperationDenied.DiskExpansionUnfinished Downgrade.NotSupported InvalidPerformanceLevel.TooLow`,
		404: `InvalidDiskId.NotFound InternalError`,
	},
	"ModifyDiskAttribute": {
		400: `InvalidDiskName.Malformed NoAttributeToModify IncompleteParamter InvalidRegionId.MalFormed`,
		403: `DiskNotPortable IncorrectDiskStatus UserNotInTheWhiteList BurstingEnabledForModifyingDiskUnsupported`,
		404: `InvalidDiskId.NotFound InvalidDescription.Malformed InvalidInstanceId.NotFound`,
	},
	"CreateSnapshot": {
		400: `IncorrectInstanceStatus InvalidSnapshotName.Malformed DiskCategory.OperationNotSupported Duplicate.TagKey InvalidTagKey.Malformed
			InvalidTagValue.Malformed`,
		403: `QuotaExceed.Snapshot IncorrectDiskStatus IncorrectDiskStatus.CreatingSnapshot IncorrectDiskStatus.NeverAttached
			IncorrectDiskStatus.NeverUsed IncorrectDiskStatus.Transferring IncorrectDiskStatus.Invalid CreateSnapshot.Failed
			IdempotentParameterMismatch IdempotentProcessing InstanceLockedForSecurity DiskInArrears
			InvalidAccountStatus.SnapshotServiceUnavailable QuotaExceed.Tags IncorrectDiskStatus.TooManyCreatingSnapshots
			QuotaExceed.ConcurrentSnapshotQuota`,
		404: `InvalidDiskId.NotFound InvalidDescription.Malformed InvalidInstanceId.NotFound`,
		500: `InternalError`,
	},
	"DeleteSnapshot": {
		400: `MissingParameter`,
		403: `SnapshotCreatedDisk SnapshotCreatedImage Operation.Conflict`,
		404: `InvalidSnapshotId.NotFound`,
	},
	"DescribeSnapshots": {
		403: `InvalidSnapshotIds.Malformed`,
		404: `InvalidFilterKey.NotFound InvalidFilterValue`,
	},
	"CreateSnapshotGroup": {
		400: `IncorrectInstanceStatus DiskCategory.OperationNotSupported Duplicate.TagKey InvalidTagKey.Malformed InvalidTagValue.Malformed
			InvalidDiskIds.NotInSameZone`,
		403: `QuotaExceed.Snapshot IncorrectDiskStatus IncorrectDiskStatus.CreatingSnapshot IncorrectDiskStatus.NeverAttached
			IncorrectDiskStatus.TooManyCreatingSnapshots QuotaExceed.ConcurrentSnapshotQuota IdempotentParameterMismatch IdempotentProcessing
			InstanceLockedForSecurity NumberExceed.TooManyDisks CapacityExceed.TooManyDisks InvalidOperation.MultiAttachDisk
			InvalidDisk.DiskCategoryInconsistent QuotaExceed.Tags`,
		404: `InvalidDiskId.NotFound InvalidInstanceId.NotFound`,
		500: `InternalError`,
	},
	"DescribeAvailableResource": {
		400: `Invalid.Param Invalid.InstanceChargeType InvalidRegionId.MalFormed`,
		404: `Invalid.RegionId Invalid.ResourceType Invalid.DestinationResource InvalidResourceId.NotFound`,
	},
	"TagResources":     tagCodes,
	"UntagResources":   tagCodes,
	"ListTagResources": tagCodes,
	"AddTags":          tagCodes,
	"RemoveTags":       tagCodes,
	"AssumeRole": {
		400: `InvalidParameter.RoleArn InvalidParameter.RoleSessionName InvalidParameter.DurationSeconds InvalidParameter.PolicyGrammar
			InvalidParameter.PolicySize`,
		403: `NoPermission`,
		404: `EntityNotExist.Role`,
		500: `InternalError`,
	},
	"AssumeRoleWithOIDC": {
		400: `AuthenticationFail.OIDCToken.Expired AuthenticationFail.OIDCToken.Invalid AuthenticationFail.OIDCToken.PublicKeyFingerprintMismatch`,
	},
}

var tagCodes = map[int]string{
	400: `NumberExceed.ResourceIds NumberExceed.Tags Duplicate.TagKey InvalidTagKey.Malformed InvalidTagValue.Malformed InvalidTagCount
		OperationDenied.QuotaExceed`,
	403: `QuotaExceed.Tags InvalidResourceId.NotSupported NoPermission.Tag`,
	404: `InvalidRegionId.NotFound MissingParameter.ResourceType InvalidResourceId.NotFound InvalidResourceType.NotFound`,
}

// olderStatuses are statuses that older editions give, or that clients have
// seen, by action.
var olderStatuses = map[string]string{
	"":           "InvalidAccessKeyId.NotFound=404 InvalidOperation.NotSupportedEndpoint=404",
	"AttachDisk": "InvalidOperation.Conflict=409",
	"DetachDisk": "InvalidOperation.Conflict=409",
	"CreateDisk": "InvalidDataDiskCategory.NotSupported=403 InvalidDiskSize.NotSupported=403 Zone.NotOnSale=400 RegionUnauthorized=400 InvalidDataDiskCategory.ValueNotSupported=400",
}
