package transport

import (
	"testing"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// answer is one refusal as ECS documents it, and what it means.
type answer struct {
	action action
	status int
	code   string
	want   disk.Kind
}

// everywhere lists the codes that ECS's gateway has for any action, as answers
// to CreateDisk.
var everywhere = []answer{
	{createDisk, 400, "Throttling", disk.Throttled},
	{createDisk, 400, "Throttling.User", disk.Throttled},
	{createDisk, 400, "Throttling.Api", disk.Throttled},
	{createDisk, 400, "Throttling.ConcurrentLimitExceeded", disk.Throttled},
	{createDisk, 503, "Throttling.User", disk.Throttled},
	{createDisk, 400, "Rejected.Throttling", disk.Throttled},
	{createDisk, 503, "ServiceUnavailable", disk.UnknownOutcome},
	{createDisk, 503, "ServiceUnavailable.RegionMaintaining", disk.UnknownOutcome},
	{createDisk, 500, "InternalError", disk.UnknownOutcome},
	{createDisk, 404, "InternalError", disk.UnknownOutcome},
	{createDisk, 400, "UnknownError", disk.UnknownOutcome},
	{createDisk, 409, "OperationConflict", disk.Pending},
	{createDisk, 409, "OperationConflict.Another", disk.Pending},
	{createDisk, 403, "InvalidOperation.Conflict", disk.Pending},
	{createDisk, 403, "Operation.Conflict", disk.Pending},
	{createDisk, 403, "LastOrderProcessing", disk.Pending},
	{createDisk, 400, "MissingParameter", disk.Invalid},
	{createDisk, 400, "MissingParameter.Size", disk.Invalid},
	{createDisk, 400, "InvalidParameter", disk.Invalid},
	{createDisk, 400, "UnsupportedParameter", disk.Invalid},
	{createDisk, 404, "InvalidAction.NotFound", disk.Unexpected},
	{createDisk, 403, "UnsupportedHTTPMethod", disk.Unexpected},
	{createDisk, 404, "InvalidAccessKeyId.NotFound", disk.Unauthenticated},
	{createDisk, 403, "InvalidAccessKeyId.Inactive", disk.Unauthenticated},
	{createDisk, 403, "Forbidden.AccessKeyDisabled", disk.Unauthenticated},
	{createDisk, 400, "SignatureDoesNotMatch", disk.Unauthenticated},
	{createDisk, 400, "IncompleteSignature", disk.Unauthenticated},
	{createDisk, 400, "SignatureNonceUsed", disk.UnknownOutcome},
	{createDisk, 400, "InvalidTimeStamp.Expired", disk.Unauthenticated},
	{createDisk, 400, "IllegalTimestamp", disk.Unauthenticated},
	{createDisk, 400, "InvalidTimeStamp.Format", disk.Unauthenticated},
	{createDisk, 400, "InvalidSignatureMethod", disk.Unauthenticated},
	{createDisk, 400, "InvalidSecurityToken.Expired", disk.Unauthenticated},
	{createDisk, 400, "InvalidSecurityToken.Malformed", disk.Unauthenticated},
	{createDisk, 400, "InvalidSecurityToken.MismatchWithAccessKey", disk.Unauthenticated},
	{createDisk, 400, "MissingSecurityToken", disk.Unauthenticated},
	{createDisk, 403, "Forbidden", disk.Denied},
	{createDisk, 403, "Forbidden.RAM", disk.Denied},
	{createDisk, 403, "Forbidden.SubUser", disk.Denied},
	{createDisk, 403, "Forbidden.Unauthorized", disk.Denied},
	{createDisk, 403, "Forbidden.RiskControl", disk.Denied},
	{createDisk, 403, "NoPermission", disk.Denied},
	{createDisk, 403, "RealNameAuthenticationError", disk.Denied},
	{createDisk, 400, "InsufficientBalance", disk.Quota},
	{createDisk, 400, "Account.Arrearage", disk.Quota},
	{createDisk, 400, "IdempotentParameterMismatch", disk.Mismatch},
	{createDisk, 403, "InvalidIdempotenceParameter.Mismatch", disk.Mismatch},
	{createDisk, 403, "LastTokenProcessing", disk.Pending},
	{createDisk, 403, "IdempotentProcessing", disk.Pending},
	{createDisk, 400, "DryRunOperation", disk.Unexpected},
	{createDisk, 400, "InvalidOperation.NotSupportedEndpoint", disk.Unexpected},
}

// creating lists the codes of CreateDisk.
var creating = []answer{
	{createDisk, 400, "InvalidSize.ValueNotSupported", disk.Unfit},
	{createDisk, 400, "InvalidDiskName.Malformed", disk.Invalid},
	{createDisk, 400, "InvalidDescription.Malformed", disk.Invalid},
	{createDisk, 400, "InvalidDiskCategory.NotSupported", disk.OutOfStock},
	{createDisk, 400, "InvalidDiskCategory.ValueNotSupported", disk.OutOfStock},
	{createDisk, 403, "InvalidDiskCategory.ValueUnauthorized", disk.OutOfStock},
	{createDisk, 400, "InvalidDataDiskCategory.NotSupported", disk.OutOfStock},
	{createDisk, 403, "InvalidDataDiskCategory.NotSupported", disk.OutOfStock},
	{createDisk, 403, "InvalidDataDiskCategory.ValueNotSupported", disk.OutOfStock},
	{createDisk, 400, "InvalidParameter.Conflict", disk.Invalid},
	{createDisk, 400, "OperationDenied", disk.OutOfStock},
	{createDisk, 403, "OperationDenied.NoStock", disk.OutOfStock},
	{createDisk, 403, "OperationDenied.ZoneNotAllowed", disk.OutOfStock},
	{createDisk, 403, "OperationDenied.ZoneSystemCategoryNotMatch", disk.OutOfStock},
	{createDisk, 403, "OperationDenied.CloudSSDNotSupported", disk.OutOfStock},
	{createDisk, 400, "OperationDenied.RiskIssue", disk.Denied},
	{createDisk, 403, "OperationDenied.PerformanceLevelNotMatch", disk.Unfit},
	{createDisk, 403, "OperationDenied.SnapshotNotAllowed", disk.Invalid},
	{createDisk, 403, "OperationDenied.ZoneNotSupportMultiAttachDisk", disk.OutOfStock},
	{createDisk, 403, "OperationDenied.NeverHeardOf", disk.UnknownOutcome},
	{createDisk, 400, "InvalidDiskSize.NotSupported", disk.Unfit},
	{createDisk, 400, "InvalidDiskSizeOrCategory", disk.OutOfStock},
	{createDisk, 403, "InvalidDataDiskSize.ValueNotSupported", disk.Unfit},
	{createDisk, 403, "InvalidDiskSize.TooSmall", disk.OutOfRange},
	{createDisk, 400, "InvalidDiskSize.ExceedsMultiAttachLimit", disk.OutOfRange},
	{createDisk, 400, "InvalidParameter.EncryptedIllegal", disk.Invalid},
	{createDisk, 400, "InvalidParameter.Encrypted", disk.Invalid},
	{createDisk, 403, "InvalidParameter.EncryptedNotSupported", disk.Invalid},
	{createDisk, 400, "InvalidEncrypted.NotMatchKmsKeyId", disk.Invalid},
	{createDisk, 403, "InvalidEncrypted.NotMatchSnapshot", disk.Invalid},
	{createDisk, 403, "InvalidEncrypted.NotMatchDiskDefaultEncryption", disk.Invalid},
	{createDisk, 400, "EncryptedOption.Conflict", disk.Invalid},
	{createDisk, 400, "InvalidKMSKeyId.NotSymmetric", disk.Invalid},
	{createDisk, 400, "InvalidParameter.KmsNotEnabled", disk.Invalid},
	{createDisk, 403, "InvalidParameter.KMSKeyId.CMKNotEnabled", disk.Invalid},
	{createDisk, 404, "InvalidParameter.KMSKeyId.NotFound", disk.Invalid},
	{createDisk, 403, "InvalidParameter.KMSKeyId.KMSUnauthorized", disk.Denied},
	{createDisk, 403, "InvalidParameter.KMSKeyId.CMKUnauthorized", disk.Denied},
	{createDisk, 400, "Duplicate.TagKey", disk.Invalid},
	{createDisk, 400, "InvalidTagKey.Malformed", disk.Invalid},
	{createDisk, 400, "InvalidTagValue.Malformed", disk.Invalid},
	{createDisk, 400, "NumberExceed.Tags", disk.Invalid},
	{createDisk, 403, "QuotaExceed.Tags", disk.Invalid},
	{createDisk, 400, "InvalidPerformanceLevel.Malformed", disk.Unfit},
	{createDisk, 400, "InvalidPerformanceLevel.ValueNotSupported", disk.OutOfStock},
	{createDisk, 400, "ProvisionedIopsForDiskCategoryUnsupported", disk.Unfit},
	{createDisk, 400, "InvalidProvisionedIops.LimitExceed", disk.Unfit},
	{createDisk, 400, "BurstingEnabledForDiskCategoryUnsupported", disk.Unfit},
	{createDisk, 400, "BurstingEnabledForMultiAttachDiskUnsupported", disk.Invalid},
	{createDisk, 400, "InvalidBurstingEnabled.DiskSizeTooSmall", disk.Unfit},
	{createDisk, 400, "QuotaExceed.DiskCapacity", disk.OutOfStock},
	{createDisk, 403, "QuotaExceed.PortableCloudDisk", disk.Quota},
	{createDisk, 403, "QuotaExceed.PostPaidDisk", disk.Quota},
	{createDisk, 403, "QuotaExceeded.PostpaidDataDiskCapacity", disk.Quota},
	{createDisk, 400, "OperationDenied.QuotaExceed", disk.Quota},
	{createDisk, 400, "InvalidZoneId.DiskCategoryUnsupported", disk.Invalid},
	{createDisk, 404, "InvalidZoneId.NotFound", disk.OutOfStock},
	{createDisk, 403, "Zone.NotOnSale", disk.OutOfStock},
	{createDisk, 400, "Zone.NotOnSale", disk.OutOfStock},
	{createDisk, 403, "RegionUnauthorized", disk.Denied},
	{createDisk, 404, "InvalidRegionId.NotFound", disk.Invalid},
	{createDisk, 404, "InvalidStorageClusterId.NotExist", disk.Invalid},
	{createDisk, 404, "InvalidResourceGroup.NotFound", disk.Invalid},
	{createDisk, 404, "InvalidInstanceId.NotFound", disk.Invalid},
	{createDisk, 403, "InvalidSnapshot.NotReady", disk.Pending},
	{createDisk, 403, "InvalidSnapshotId.NotReady", disk.Pending},
	{createDisk, 403, "InvalidSnapshot.TooOld", disk.Invalid},
	{createDisk, 403, "InvalidSnapshot.TooLarge", disk.Invalid},
	{createDisk, 403, "InvalidSnapshotId.NotDataDiskSnapshot", disk.Invalid},
	{createDisk, 404, "InvalidSnapshotId.NotFound", disk.Invalid},
	{createDisk, 403, "InvalidOperation.CreateFromSnapshotUnsupported", disk.Invalid},
	{createDisk, 403, "InvalidParameter.MultiAttach", disk.Invalid},
	{createDisk, 403, "InvalidParameter.DiskCategoryAndMultiAttachNotMatch", disk.Unfit},
	{createDisk, 403, "InvalidParameter.DiskCategoryAndMultiAttachConflict", disk.Unfit},
	{createDisk, 403, "UserNotInTheWhiteList", disk.Denied},
	{createDisk, 403, "InvalidPayMethod", disk.Denied},
	{createDisk, 403, "InvalidAccountStatus.NotEnoughBalance", disk.Quota},
	{createDisk, 403, "InvalidAccountStatus.SnapshotServiceUnavailable", disk.Denied},
	{createDisk, 403, "InvalidParam.ZoneIdAndInstanceId.Conflict", disk.Invalid},
	{createDisk, 418, "NeverHeardOf", disk.UnknownOutcome},
	{createDisk, 400, "NeverHeardOf", disk.UnknownOutcome},
	{createDisk, 408, "InvalidParameter", disk.UnknownOutcome}, // whoever gave up waiting knows nothing of the effect
	{createDisk, 429, "InvalidParameter", disk.UnknownOutcome},
	{createDisk, 429, "Throttling.User", disk.Throttled},
	{createDisk, 500, "NeverHeardOf", disk.UnknownOutcome},
	{createDisk, 400, "", disk.UnknownOutcome},
	{createDisk, 502, "", disk.UnknownOutcome},
	{createDisk, 500, "QuotaExceed.DiskCapacity", disk.UnknownOutcome},
}

// deleting lists the codes of DeleteDisk.
var deleting = []answer{
	{deleteDisk, 400, "InvalidRegionId.MalFormed", disk.Invalid},
	{deleteDisk, 403, "IncorrectDiskStatus", disk.InUse},
	{deleteDisk, 403, "IncorrectDiskStatus.Initializing", disk.Pending},
	{deleteDisk, 403, "DiskStillAttached", disk.InUse},
	{deleteDisk, 403, "DiskCreatingSnapshot", disk.Pending},
	{deleteDisk, 403, "DiskNotPortable", disk.Invalid},
	{deleteDisk, 403, "DiskTypeViolation", disk.Invalid},
	{deleteDisk, 403, "InvalidDiskStatus.DeleteProtection", disk.Denied},
	{deleteDisk, 403, "UserNotInTheWhiteList", disk.Denied},
	{deleteDisk, 404, "InvalidDiskId.NotFound", disk.NotFound},
	{deleteDisk, 500, "InternalError", disk.UnknownOutcome},
	{deleteDisk, 503, "InvalidDiskId.NotFound", disk.UnknownOutcome},
	{deleteDisk, 403, "", disk.UnknownOutcome},
	{deleteDisk, 403, "NeverHeardOf", disk.UnknownOutcome},
}

// describing lists the codes of DescribeDisks. Of a read nothing is unknown: it
// was answered or it was not.
var describing = []answer{
	{describeDisks, 400, "InvalidDiskType.ValueNotSupported", disk.Invalid},
	{describeDisks, 400, "InvalidCategory.ValueNotSupported", disk.Invalid},
	{describeDisks, 400, "InvalidStatus.ValueNotSupported", disk.Invalid},
	{describeDisks, 400, "InvalidTag.Mismatch", disk.Invalid},
	{describeDisks, 400, "InvalidTagCount", disk.Invalid},
	{describeDisks, 400, "InvalidRegion.NotFound", disk.Invalid},
	{describeDisks, 400, "InvalidZoneId.NotFound", disk.Invalid},
	{describeDisks, 400, "MissingParamter.RegionId", disk.Invalid},
	{describeDisks, 400, "IncompleteParamter", disk.Invalid},
	{describeDisks, 400, "InvalidParamter", disk.Invalid},
	{describeDisks, 400, "InvalidParameter.DiskIds", disk.Invalid},
	{describeDisks, 400, "InvalidSnapshot.NotFound", disk.NotFound},
	{describeDisks, 404, "InvalidSnapshotId.NotFound", disk.NotFound},
	{describeDisks, 404, "InvalidInstanceId.NotFound", disk.NotFound},
	{describeDisks, 403, "InvalidDiskIds.Malformed", disk.Invalid},
	{describeDisks, 403, "InvalidParameter.MultiAttach", disk.Invalid},
	{describeDisks, 404, "InvalidFilterKey.NotFound", disk.Invalid},
	{describeDisks, 404, "InvalidFilterValue", disk.Invalid},
	{describeDisks, 404, "InvalidDiskIds.ValueNotSupported", disk.Invalid},
	{describeDisks, 404, "InvalidDiskChargeType.NotFound", disk.Invalid},
	{describeDisks, 404, "InvalidLockReason.NotFound", disk.Invalid},
	{describeDisks, 500, "InternalError", disk.Unreachable},
	{describeDisks, 503, "ServiceUnavailable", disk.Unreachable},
	{describeDisks, 400, "UnknownError", disk.Unreachable},
	{describeDisks, 502, "", disk.Unreachable},
	{describeDisks, 400, "Throttling", disk.Throttled},
	{describeDisks, 400, "NeverHeardOf", disk.Unexpected},
	{describeDisks, 408, "NeverHeardOf", disk.Unreachable},
	{describeDisks, 429, "NeverHeardOf", disk.Unreachable},
}

func documented() []answer {
	var all []answer
	for _, list := range [][]answer{everywhere, creating, deleting, describing, attachingAnswers, detachingAnswers, resizing, modifying, snapshotting, tagging} {
		all = append(all, list...)
	}
	return all
}

func TestEveryCodeHasItsKind(t *testing.T) {
	for _, a := range documented() {
		if got := a.action.KindOf(a.status, a.code, "some message"); got != a.want {
			t.Errorf("%s answered HTTP %d %q: %v, want %v", a.action.Name, a.status, a.code, got, a.want)
		}
	}
}

func TestEveryRowOfTheTableIsTested(t *testing.T) {
	reached := map[string]bool{}
	for _, a := range documented() {
		if _, row, ok := rowOf(a.action.Name, a.code); ok {
			reached[row] = true
		}
	}
	for row := range codes {
		if !reached[row] {
			t.Errorf("no documented code reaches row %q", row)
		}
	}
	for action, rows := range codesOf {
		for row := range rows {
			if !reached[action+" "+row] {
				t.Errorf("no documented code of %s reaches its row %q", action, row)
			}
		}
	}
}

func TestSoldOutIsKnownByItsMessage(t *testing.T) {
	for message, want := range map[string]disk.Kind{
		"The specified AZone inventory is insufficient.":                              disk.OutOfStock,
		"The resource is out of stock in the specified zone. Please try other types.": disk.OutOfStock,
		"The specified parameter 'DataDisk.n.Category' is not valid in this region.":  disk.OutOfStock,
		"The specified parameter Size is not valid.":                                  disk.Invalid,
	} {
		if got := createDisk.KindOf(400, "InvalidParameter", message); got != want {
			t.Errorf("message %q: %v, want %v", message, got, want)
		}
	}
	if got := createDisk.KindOf(500, "InternalError", "inventory is insufficient"); got != disk.UnknownOutcome {
		t.Errorf("a server that fails is believed: %v", got)
	}
	if got := deleteDisk.KindOf(400, "InvalidParameter", "inventory is insufficient"); got != disk.Invalid {
		t.Errorf("DeleteDisk: %v", got)
	}
}
