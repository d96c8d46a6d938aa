package ecssim_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/topodisk/topodisk/ecssim"
)

// guessed are the refusals of the simulator that no table of ECS's has: cases
// that the documentation tells of without a code, or not at all. The metadata
// service has no table either.
var guessed = []string{
	" 405 MethodNotAllowed",
	"AssumeRoleWithOIDC 400 InvalidParameter.DurationSeconds",
	"AssumeRoleWithOIDC 403 AuthenticationFail.NoPermission",
	"AssumeRoleWithOIDC 404 EntityNotExist.OIDCProvider",
	"AssumeRoleWithOIDC 404 EntityNotExist.Role",
	"CreateSnapshot 400 InvalidRetentionDays.Malformed",
	"CreateSnapshotGroup 400 InvalidName.Malformed",
	"CreateSnapshotGroup 400 InvalidParameter.Conflict",
	"CreateSnapshotGroup 403 DependencyViolation",
	"DeleteSnapshotGroup 404 InvalidSnapshotGroupId.NotFound",
	"DescribeDisks 400 InvalidContentSha256",
	"DescribeDisks 400 InvalidTagKey.Malformed",
	"DescribeInstances 400 InvalidParameter.InstanceIds",
	"DescribeInstances 400 InvalidStatus.ValueNotSupported",
	"DescribeInstances 403 InvalidInstanceIds.Malformed",
	"DescribeSnapshots 400 InvalidParameter.SnapshotIds",
	"DescribeSnapshots 400 InvalidStatus.ValueNotSupported",
	"Metadata 401 Unauthorized",
	"Metadata 403 Forbidden",
	"Metadata 404 NotFound",
	"MetadataToken 400 BadRequest",
	"ModifyDiskSpec 400 InvalidDiskCategory.NotSupported",
	"ModifyDiskAttribute 400 BurstingEnabledForDiskCategoryUnsupported",
	"ModifyDiskAttribute 400 BurstingEnabledForMultiAttachDiskUnsupported",
	"ModifyDiskAttribute 400 InvalidBurstingEnabled.DiskSizeTooSmall",
	"ModifyDiskAttribute 403 DeleteWithInstance.Conflict",
	"ModifyDiskSpec 400 InvalidDestinationZoneId.NotFound",
	"ModifyDiskSpec 400 InvalidDestinationZoneId.ValueNotSupported",
}

// checkCodes checks that what a simulator refused itself was refused as the
// tables of error codes say. It is run at the end of every test.
func checkCodes(t *testing.T, s *ecssim.Server) {
	t.Helper()
	told := map[string]bool{}
	for _, call := range s.Calls() {
		if call.Code == "" || call.Status == 0 || call.Fault != "" {
			continue
		}
		text := fmt.Sprintf("%s %d %s", call.Action, call.Status, call.Code)
		if !slices.Contains(ecssim.Codes(call.Action), ecssim.ErrorCode{Code: call.Code, Status: call.Status}) && !slices.Contains(guessed, text) && !told[text] {
			told[text] = true
			t.Errorf("no table has the refusal %q", text)
		}
	}
}

func TestFaultHasTheStatusOfItsCode(t *testing.T) {
	for _, tt := range []struct {
		action, code string
		status       int
	}{
		{"AttachDisk", "DiskInArrears", 403},
		{"AttachDisk", "InvalidOperation.InstanceTypeNotSupport", 400},
		{"AttachDisk", "InvalidKMSKeyId.NotFound", 404},
		{"ModifyDiskSpec", "InternalError", 404}, // as that table has it
		{"DeleteDisk", "InternalError", 500},
		{"CreateDisk", "InvalidDataDiskCategory.NotSupported", 400},
		{"CreateDisk", "IdempotentParameterMismatch", 400},
		{"CreateSnapshot", "IdempotentParameterMismatch", 403},
		{"", "Forbidden.RAM", 403},
		{"DescribeZones", "ServiceUnavailable", 503},
		{"AttachDisk", "Unheard.Of", 500},
	} {
		s := newServer(t, nil)
		addFault(t, s, ecssim.Fault{Action: tt.action, Do: ecssim.FaultError, Code: tt.code})
		if got := s.Faults()[0].Status; got != tt.status {
			t.Errorf("%s %s has status %d, want %d", tt.action, tt.code, got, tt.status)
		}
	}
}

func TestCodesAreWellFormed(t *testing.T) {
	for _, action := range append(ecssim.ActionNames(), "") {
		codes := ecssim.Codes(action)
		if len(codes) < 30 {
			t.Errorf("%s has %d codes: those of the gateway are not among them", action, len(codes))
		}
		for i, c := range codes {
			if c.Code == "" || c.Status < 400 || c.Status > 599 || slices.Contains(codes[:i], c) {
				t.Errorf("%s has the code %+v", action, c)
			}
		}
	}
}
