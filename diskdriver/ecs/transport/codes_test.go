package transport

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/ecstest"
	"github.com/topodisk/topodisk/diskdriver/ecs/ratelimit"
	"github.com/topodisk/topodisk/ecssim"
)

// attachingAnswers lists the codes of AttachDisk.
var attachingAnswers = []answer{
	{attachDisk, 400, "IncorrectInstanceStatus", disk.Pending},
	{attachDisk, 400, "InvalidParameter", disk.Invalid},
	{attachDisk, 400, "InvalidRegionId.MalFormed", disk.Invalid},
	{attachDisk, 400, "InvalidDevice.Malformed", disk.Invalid},
	{attachDisk, 400, "InvalidOperation.InstanceTypeNotSupport", disk.Blocked},
	{attachDisk, 400, "DiskCategory.OperationNotSupported", disk.Invalid},
	{attachDisk, 400, "OperationConflict.DisksAttachingParallellyExceed", disk.Pending},
	{attachDisk, 400, "InvalidParameterForce.DiskCategoryNotSupported", disk.Invalid},
	{attachDisk, 400, "InvalidParameterForce.PrepaidDiskNotSupported", disk.Invalid},
	{attachDisk, 400, "InvalidParameterForce.MultiAttachDiskNotSupported", disk.Invalid},
	{attachDisk, 400, "InvalidParameterForce.RegionNotSupported", disk.Invalid},
	{attachDisk, 400, "InvalidDisk.DiskNotBootable", disk.Invalid},
	{attachDisk, 403, "IncorrectDiskStatus", disk.InUse},
	{attachDisk, 403, "IncorrectDiskStatus.Initializing", disk.Pending},
	{attachDisk, 403, "InstanceDiskLimitExceeded", disk.NodeFull},
	{attachDisk, 403, "InstanceDiskNumber.Exceed", disk.NodeFull},
	{attachDisk, 403, "InvalidOperation.Conflict", disk.Pending},
	{attachDisk, 409, "InvalidOperation.Conflict", disk.Pending},
	{attachDisk, 403, "InvalidDevice.InUse", disk.Pending},
	{attachDisk, 403, "DiskNotPortable", disk.Invalid},
	{attachDisk, 403, "ResourcesNotInSameZone", disk.Invalid},
	{attachDisk, 403, "InstanceLockedForSecurity", disk.Blocked},
	{attachDisk, 403, "InstanceExpiredOrInArrears", disk.Quota},
	{attachDisk, 403, "DiskInArrears", disk.Quota},
	{attachDisk, 403, "DiskError", disk.Blocked},
	{attachDisk, 403, "DiskId.ValueNotSupported", disk.Invalid},
	{attachDisk, 403, "DiskId.StatusNotSupported", disk.InUse},
	{attachDisk, 403, "InvalidInstanceType.NotSupportDiskCategory", disk.Blocked},
	{attachDisk, 403, "NotSupportDiskCategory", disk.Blocked},
	{attachDisk, 403, "InvalidInstanceType.NotSupportPL0", disk.Blocked},
	{attachDisk, 403, "InvalidInstanceType.NvmeRequired", disk.Blocked},
	{attachDisk, 403, "InvalidInstanceType.NvmeUnsupported", disk.Blocked},
	{attachDisk, 403, "InvalidInstanceType.NotSupportMultiAttachDisk", disk.Blocked},
	{attachDisk, 403, "DiskAttachedNumberExceeded", disk.InUse},
	{attachDisk, 403, "DeleteWithInstance.Conflict", disk.Invalid},
	{attachDisk, 403, "InvalidParameter.DeleteWithInstance", disk.Invalid},
	{attachDisk, 403, "InvalidOperation.OtherInstanceUnsupported", disk.Blocked},
	{attachDisk, 403, "InvalidInstance.ZoneConflict", disk.Invalid},
	{attachDisk, 403, "InvalidOperation.DiskQueueNumberNotEnough", disk.NodeFull},
	{attachDisk, 403, "IncorrectInstanceStatus.NotSupportESSD", disk.Blocked},
	{attachDisk, 403, "InvalidParameter.KMSKeyId.CMKNotEnabled", disk.Invalid},
	{attachDisk, 403, "InvalidParameter.KMSKeyId.KMSUnauthorized", disk.Denied},
	{attachDisk, 403, "UserNotInTheWhiteList", disk.Denied},
	{attachDisk, 404, "InvalidInstanceId.NotFound", disk.NotFound},
	{attachDisk, 404, "InvalidDiskId.NotFound", disk.NotFound},
	{attachDisk, 404, "InvalidDisk.InUse", disk.InUse},
	{attachDisk, 404, "InvalidKMSKeyId.NotFound", disk.Invalid},
	{attachDisk, 500, "InternalError", disk.UnknownOutcome},
	{attachDisk, 400, "NeverHeardOf", disk.UnknownOutcome},
	{attachDisk, 503, "NeverHeardOf", disk.UnknownOutcome},
	{attachDisk, 400, "InvalidNeverHeardOf", disk.Invalid},
	{attachDisk, 403, "InvalidOperation.NeverHeardOf", disk.Unexpected},
	{attachDisk, 403, "InvalidDiskStatus.NeverHeardOf", disk.Unexpected},
	{attachDisk, 403, "InvalidAccountStatus.NeverHeardOf", disk.Unexpected},
}

// detachingAnswers lists the codes of DetachDisk.
var detachingAnswers = []answer{
	{detachDisk, 400, "InvalidParameter", disk.Invalid},
	{detachDisk, 400, "InvalidOperation.InstanceTypeNotSupport", disk.Blocked},
	{detachDisk, 400, "DisksDetachingOnEcsExceeded", disk.Pending},
	{detachDisk, 403, "IncorrectDiskStatus", disk.InUse},
	{detachDisk, 403, "DependencyViolation", disk.Blocked},
	{detachDisk, 403, "InvalidOperation.DiskDetachingFromThisEcs", disk.Pending},
	{detachDisk, 403, "InvalidOperation.Conflict", disk.Pending},
	{detachDisk, 403, "DiskNotPortable", disk.Invalid},
	{detachDisk, 403, "DiskTypeViolation", disk.Invalid},
	{detachDisk, 403, "IncorrectInstanceStatus", disk.Pending},
	{detachDisk, 403, "InstanceLockedForSecurity", disk.Blocked},
	{detachDisk, 403, "DeleteWithInstance.Conflict", disk.Invalid},
	{detachDisk, 403, "InvalidParameter.DeleteWithInstance", disk.Invalid},
	{detachDisk, 403, "InvalidOperation.DiskCategoryUnsupported", disk.Invalid},
	{detachDisk, 404, "InvalidInstanceId.NotFound", disk.NotFound},
	{detachDisk, 404, "InvalidDiskId.NotFound", disk.NotFound},
	{detachDisk, 404, "InvalidDisk.AlreadyDetached", disk.Blocked},
	{detachDisk, 404, "InvalidDiskId.OperationNotSupported", disk.Invalid},
	{detachDisk, 500, "InternalError", disk.UnknownOutcome},
}

// resizing lists the codes of ResizeDisk.
var resizing = []answer{
	{resizeDisk, 400, "InvalidDataDiskSize.ValueNotSupported", disk.OutOfRange},
	{resizeDisk, 400, "InvalidParameter", disk.OutOfRange}, // gardener/pvc-autoscaler#293
	{resizeDisk, 400, "IncompleteParamter", disk.Invalid},
	{resizeDisk, 400, "InvalidParam.Type", disk.Invalid},
	{resizeDisk, 400, "LastOrderProcessing", disk.Pending},
	{resizeDisk, 403, "LastTokenProcessing", disk.Pending},
	{resizeDisk, 400, "InvalidStatus.Upgrading", disk.Pending},
	{resizeDisk, 400, "QuotaExceed.DiskCapacity", disk.Quota},
	{resizeDisk, 400, "OperationDenied.UnfinishedOrder", disk.Pending},
	{resizeDisk, 400, "OperationDenied.NotEnoughCapacity", disk.Quota},
	{resizeDisk, 403, "InvalidDiskSize.TooSmall", disk.OutOfRange},
	{resizeDisk, 403, "InvalidDiskSize", disk.OutOfRange},
	{resizeDisk, 403, "InvalidDiskSize.TooLarge", disk.OutOfRange},
	{resizeDisk, 403, "OperationDenied", disk.Blocked},
	{resizeDisk, 403, "IncorrectDiskStatus", disk.Pending},
	{resizeDisk, 403, "IncorrectInstanceStatus", disk.Pending},
	{resizeDisk, 403, "InvalidInstanceStatus.NotRunning", disk.Blocked},
	{resizeDisk, 403, "InvalidDiskCategory.NotSupported", disk.Blocked},
	{resizeDisk, 403, "InvalidRegion.NotSupport", disk.Invalid},
	{resizeDisk, 403, "InvalidOperation.InstanceTypeNotSupportOnlineResize", disk.Blocked},
	{resizeDisk, 403, "InvalidDiskSize.NotSupportResizeOnline", disk.Blocked},
	{resizeDisk, 403, "InvalidOperation.MultiAttachDiskNotSupportResizeOnline", disk.Blocked},
	{resizeDisk, 403, "DiskCreatingSnapshot", disk.Pending},
	{resizeDisk, 403, "DiskInArrears", disk.Quota},
	{resizeDisk, 403, "Operation.Conflict", disk.Pending},
	{resizeDisk, 403, "QuotaExceeded.PostpaidDataDiskCapacity", disk.Quota},
	{resizeDisk, 403, "InvalidDiskSize.NotSupportMultiAttachDisk", disk.OutOfRange},
	{resizeDisk, 403, "InvalidParameter.KMSKeyId.CMKNotEnabled", disk.Invalid},
	{resizeDisk, 404, "InvalidDiskId.NotFound", disk.NotFound},
	{resizeDisk, 404, "InvalidInstanceId.NotFound", disk.NotFound},
	{resizeDisk, 500, "InternalError", disk.UnknownOutcome},
}

// modifying lists the codes of ModifyDiskSpec and ModifyDiskAttribute.
var modifying = []answer{
	{modifyDiskSpec, 400, "InvalidPerformanceLevel.Malformed", disk.Invalid},
	{modifyDiskSpec, 400, "InvalidDiskCategory.ValueNotSupported", disk.Invalid},
	{modifyDiskSpec, 400, "InvalidPerformanceLevelParam.Mismatch", disk.Invalid},
	{modifyDiskSpec, 400, "ProvisionedIopsForDiskCategoryUnsupported", disk.Invalid},
	{modifyDiskSpec, 400, "InvalidProvisionedIops.LimitExceed", disk.Invalid},
	{modifyDiskSpec, 400, "QuotaExceed.DiskCapacity", disk.Quota},
	{modifyDiskSpec, 400, "InvalidOperation.InstanceStatusUnsupported", disk.Blocked},
	{modifyDiskSpec, 400, "MissingParameter.DestinationZoneId", disk.Invalid},
	{modifyDiskSpec, 400, "InvalidDestinationZoneId.NotSupported", disk.Invalid},
	{modifyDiskSpec, 403, "OperationDenied.PerformanceLevelNotMatch", disk.Blocked},
	{modifyDiskSpec, 403, "OperationDenied.NoStock", disk.OutOfStock},
	{modifyDiskSpec, 403, "IncorrectDiskStatus", disk.Pending},
	{modifyDiskSpec, 403, "InvalidStatus.DiskNotReady", disk.Pending},
	{modifyDiskSpec, 403, "DiskCreatingSnapshot", disk.Pending},
	{modifyDiskSpec, 403, "ModifyingDiskCategoryLimitExceed", disk.Blocked},
	{modifyDiskSpec, 403, "DiskInCoolingPeriod", disk.Blocked},
	{modifyDiskSpec, 403, "NoChangeInDiskCategoryAndPerformanceLevel", disk.Blocked},
	{modifyDiskSpec, 403, "InvalidDiskCategory.InstanceTypeUnsupported", disk.Blocked},
	{modifyDiskSpec, 403, "InvalidInstanceType.NotSupportDiskCategory", disk.Blocked},
	{modifyDiskSpec, 403, "InvalidOperation.MultiAttachDisk", disk.Invalid},
	{modifyDiskSpec, 403, "OperationDenied.DiskExpansionUnfinished", disk.Pending},
	{modifyDiskSpec, 403, "Downgrade.NotSupported", disk.Invalid},
	{modifyDiskSpec, 403, "InvalidPerformanceLevel.TooLow", disk.Invalid},
	{modifyDiskSpec, 404, "InvalidDiskId.NotFound", disk.NotFound},
	{modifyDiskSpec, 400, "Throttling.ConcurrentLimitExceeded", disk.Throttled},
	{modifyDiskSpec, 404, "InternalError", disk.UnknownOutcome},
	{modifyDiskAttribute, 400, "InvalidDiskName.Malformed", disk.Invalid},
	{modifyDiskAttribute, 400, "NoAttributeToModify", disk.Invalid},
	{modifyDiskAttribute, 400, "IncompleteParamter", disk.Invalid},
	{modifyDiskAttribute, 400, "InvalidRegionId.MalFormed", disk.Invalid},
	{modifyDiskAttribute, 403, "DiskNotPortable", disk.Invalid},
	{modifyDiskAttribute, 403, "IncorrectDiskStatus", disk.Pending},
	{modifyDiskAttribute, 403, "UserNotInTheWhiteList", disk.Denied},
	{modifyDiskAttribute, 403, "BurstingEnabledForModifyingDiskUnsupported", disk.Pending},
	{modifyDiskAttribute, 404, "InvalidDiskId.NotFound", disk.NotFound},
	{modifyDiskAttribute, 404, "InvalidDescription.Malformed", disk.Invalid},
	{modifyDiskAttribute, 404, "InvalidInstanceId.NotFound", disk.NotFound},
}

// snapshotting lists the codes of the operations on snapshots.
var snapshotting = []answer{
	{createSnapshot, 400, "IncorrectInstanceStatus", disk.Pending},
	{createSnapshot, 400, "InvalidSnapshotName.Malformed", disk.Invalid},
	{createSnapshot, 400, "InvalidRetentionDays.Malformed", disk.Invalid},
	{createSnapshot, 400, "DiskCategory.OperationNotSupported", disk.Invalid},
	{createSnapshot, 400, "Duplicate.TagKey", disk.Invalid},
	{createSnapshot, 400, "InvalidTagKey.Malformed", disk.Invalid},
	{createSnapshot, 400, "InvalidTagValue.Malformed", disk.Invalid},
	{createSnapshot, 403, "QuotaExceed.Snapshot", disk.OutOfStock},
	{createSnapshot, 403, "QuotaExceed.ConcurrentSnapshotQuota", disk.Blocked},
	{createSnapshot, 403, "QuotaExceed.Tags", disk.Invalid},
	{createSnapshot, 403, "IncorrectDiskStatus", disk.Pending},
	{createSnapshot, 403, "IncorrectDiskStatus.CreatingSnapshot", disk.Pending},
	{createSnapshot, 403, "IncorrectDiskStatus.TooManyCreatingSnapshots", disk.Pending},
	{createSnapshot, 403, "IncorrectDiskStatus.NeverAttached", disk.Blocked},
	{createSnapshot, 403, "IncorrectDiskStatus.NeverUsed", disk.Blocked},
	{createSnapshot, 403, "IncorrectDiskStatus.Transferring", disk.Pending},
	{createSnapshot, 403, "IncorrectDiskStatus.Invalid", disk.Blocked},
	{createSnapshot, 403, "CreateSnapshot.Failed", disk.Unexpected},
	{createSnapshot, 403, "IdempotentParameterMismatch", disk.Mismatch},
	{createSnapshot, 403, "IdempotentProcessing", disk.Pending},
	{createSnapshot, 403, "InstanceLockedForSecurity", disk.Blocked},
	{createSnapshot, 403, "DiskInArrears", disk.Quota},
	{createSnapshot, 403, "InvalidAccountStatus.SnapshotServiceUnavailable", disk.Denied},
	{createSnapshot, 404, "InvalidDiskId.NotFound", disk.NotFound},
	{createSnapshot, 404, "InvalidDescription.Malformed", disk.Invalid},
	{createSnapshot, 404, "InvalidInstanceId.NotFound", disk.NotFound},
	{createSnapshot, 500, "InternalError", disk.UnknownOutcome},
	{deleteSnapshot, 404, "InvalidSnapshotId.NotFound", disk.NotFound},
	{deleteSnapshot, 403, "SnapshotCreatedDisk", disk.InUse},
	{deleteSnapshot, 403, "SnapshotCreatedImage", disk.InUse},
	{deleteSnapshot, 403, "Operation.Conflict", disk.Pending},
	{deleteSnapshot, 400, "MissingParameter", disk.Invalid},
	{describeSnapshots, 403, "InvalidSnapshotIds.Malformed", disk.Invalid},
	{describeSnapshots, 400, "InvalidSnapshotType.ValueNotSupported", disk.Invalid},
	{describeSnapshots, 404, "InvalidFilterKey.NotFound", disk.Invalid},
	{describeSnapshots, 400, "InvalidUsage.ValueNotSupported", disk.Invalid},
	{deleteSnapshotGroup, 404, "InvalidSnapshotGroupId.NotFound", disk.NotFound},
	{describeInstances, 403, "InvalidInstanceIds.Malformed", disk.Invalid},
	{createSnapshotGroup, 400, "InvalidDiskIds.NotInSameZone", disk.Blocked},
	{createSnapshotGroup, 403, "NumberExceed.TooManyDisks", disk.Blocked},
	{createSnapshotGroup, 403, "CapacityExceed.TooManyDisks", disk.Blocked},
	{createSnapshotGroup, 403, "InvalidOperation.MultiAttachDisk", disk.Blocked},
	{createSnapshotGroup, 403, "InvalidDisk.DiskCategoryInconsistent", disk.Blocked},
	{createSnapshotGroup, 403, "IncorrectDiskStatus", disk.Pending},
	{createSnapshotGroup, 403, "IdempotentProcessing", disk.Pending},
	{createSnapshotGroup, 403, "QuotaExceed.Snapshot", disk.OutOfStock},
	{createSnapshotGroup, 400, "DiskCategory.OperationNotSupported", disk.Blocked},
}

// tagging lists the codes of the operations on tags and available resources.
var tagging = []answer{
	{tagResources, 400, "NumberExceed.ResourceIds", disk.Invalid},
	{tagResources, 400, "NumberExceed.Tags", disk.Invalid},
	{tagResources, 400, "Duplicate.TagKey", disk.Invalid},
	{tagResources, 400, "InvalidTagKey.Malformed", disk.Invalid},
	{tagResources, 400, "InvalidTagValue.Malformed", disk.Invalid},
	{tagResources, 400, "InvalidTagCount", disk.Invalid},
	{tagResources, 400, "OperationDenied.QuotaExceed", disk.Quota},
	{tagResources, 403, "QuotaExceed.Tags", disk.Invalid},
	{tagResources, 403, "InvalidResourceId.NotSupported", disk.Invalid},
	{tagResources, 403, "NoPermission.Tag", disk.Denied},
	{tagResources, 404, "InvalidRegionId.NotFound", disk.Invalid},
	{tagResources, 404, "MissingParameter.ResourceType", disk.Invalid},
	{tagResources, 404, "InvalidResourceId.NotFound", disk.NotFound},
	{tagResources, 404, "InvalidResourceType.NotFound", disk.Invalid},
	{describeAvailableResource, 400, "Invalid.Param", disk.Invalid},
	{describeAvailableResource, 400, "Invalid.InstanceChargeType", disk.Invalid},
	{describeAvailableResource, 400, "InvalidRegionId.MalFormed", disk.Invalid},
	{describeAvailableResource, 403, "InvalidParam.TypeAndCpuMem.Conflict", disk.Invalid},
	{describeAvailableResource, 404, "Invalid.RegionId", disk.Invalid},
	{describeAvailableResource, 404, "Invalid.ResourceType", disk.Invalid},
	{describeAvailableResource, 404, "Invalid.DestinationResource", disk.Invalid},
	{describeAvailableResource, 404, "InvalidResourceId.NotFound", disk.NotFound},
}

func TestEveryCodeOfECSsTablesIsTested(t *testing.T) {
	type reached struct{ row, code string }
	tested := map[reached]bool{}
	for _, a := range documented() {
		if _, row, ok := rowOf(a.action.Name, a.code); ok {
			tested[reached{row, a.code}] = true
		}
	}
	for _, name := range ecssim.ActionNames() {
		if strings.HasPrefix(name, "Assume") || strings.HasPrefix(name, "Metadata") {
			continue // other services, with errors of their own (oidc.go, ramrole.go)
		}
		for _, documented := range ecssim.Codes(name) {
			_, row, ok := rowOf(name, documented.Code)
			switch {
			case !ok:
				t.Errorf("%s may answer HTTP %d %s, which no row of the table knows", name, documented.Status, documented.Code)
			case !tested[reached{row, documented.Code}]:
				t.Errorf("%s may answer HTTP %d %s, which no test row is for", name, documented.Status, documented.Code)
			}
		}
	}
}

// Over the wire, through the SDK, each code has the Kind that the table says.
func TestEveryCodeHasItsKindOverTheWire(t *testing.T) {
	do := map[string]func(context.Context, *Session) error{
		createDisk.Name:    create,
		deleteDisk.Name:    remove,
		describeDisks.Name: describe,
	}
	for _, a := range []action{createDisk, deleteDisk, describeDisks} {
		for _, documented := range ecssim.Codes(a.Name) {
			synctest.Test(t, func(t *testing.T) {
				sim := ecstest.NewSim(t, nil)
				if err := sim.AddFault(ecssim.Fault{Action: a.Name, Do: ecssim.FaultError, Status: documented.Status, Code: documented.Code}); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				err := do[a.Name](ctx, newSession(t, Config{RoundTripper: sim}))
				e := ecstest.WantKind(t, err, a.KindOf(documented.Status, documented.Code, ""))
				if !strings.Contains(e.Error(), documented.Code) || e.RequestID == "" {
					t.Errorf("error %q lacks the code %s or the request ID", e, documented.Code)
				}
			})
		}
	}
}

func TestNothingElseIsRetried(t *testing.T) {
	for _, a := range documented() {
		if a.want == disk.Throttled {
			continue
		}
		l := ratelimit.New(a.action.Name, callsInFlight, func() func() { return func() {} })
		turn := l.Arrive()
		if err := turn.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if turn.Done(&disk.Error{Kind: a.want}) || l.Throttled() {
			t.Errorf("%s: it is sent again, or throttled: %v", a.code, l.Throttled())
		}
	}
}
