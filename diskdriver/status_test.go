package diskdriver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/topodisk/topodisk/diskdriver/creation"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/internal/errorinfo"
	"github.com/topodisk/topodisk/internal/outofstock"
)

func TestEveryKindHasItsCode(t *testing.T) {
	want := map[disk.Kind]codes.Code{
		disk.Unexpected:      codes.Internal,
		disk.Invalid:         codes.InvalidArgument,
		disk.OutOfRange:      codes.OutOfRange,
		disk.Denied:          codes.PermissionDenied,
		disk.Unauthenticated: codes.Unauthenticated,
		disk.NotFound:        codes.NotFound,
		disk.Mismatch:        codes.AlreadyExists,
		disk.OutOfStock:      codes.ResourceExhausted,
		disk.Unfit:           codes.InvalidArgument,
		disk.NodeFull:        codes.ResourceExhausted,
		disk.Quota:           codes.FailedPrecondition,
		disk.InUse:           codes.FailedPrecondition,
		disk.Blocked:         codes.FailedPrecondition,
		disk.Pending:         codes.Aborted,
		disk.BadToken:        codes.Aborted,
		disk.Throttled:       codes.Unavailable,
		disk.Unreachable:     codes.Unavailable,
		disk.UnknownOutcome:  codes.Unavailable,
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	kinds := 0
	for k := disk.Kind(0); !strings.HasPrefix(k.String(), "kind "); k++ {
		kinds++
		err := fmt.Errorf("around: %w", &disk.Error{Kind: k, Err: io.EOF})
		if got := codeOf(t.Context(), err); got != want[k] {
			t.Errorf("%v is %v, want %v", k, got, want[k])
		}
		late := want[k]
		if late == codes.Unavailable {
			late = codes.DeadlineExceeded
		}
		if got := codeOf(ended, err); got != late {
			t.Errorf("%v after the context has ended is %v, want %v", k, got, late)
		}
	}
	if kinds != len(want) || kinds != len(answers) {
		t.Errorf("%d kinds, %d wanted, %d in the table", kinds, len(want), len(answers))
	}
}

// Whatever else an answer says, disk-provisioner learns that ECS has no stock.
func TestAnswersSayThatThereIsNoStock(t *testing.T) {
	soldOut := &disk.Error{Kind: disk.OutOfStock, Err: io.EOF}
	for name, test := range map[string]struct {
		err  error
		code codes.Code
		want bool
	}{
		"sold out":                  {soldOut, codes.ResourceExhausted, true},
		"a disk may have been made": {disk.Errorf(disk.Pending, "soon (%w)", soldOut), codes.Aborted, true},
		"that can't be seen":        {fmt.Errorf("%w (%w)", disk.Errorf(disk.UnknownOutcome, "lost"), soldOut), codes.Unavailable, true},
		"something else":            {disk.Errorf(disk.Pending, "soon (%w)", &disk.Error{Kind: disk.Quota, Err: io.EOF}), codes.Aborted, false},
		"neither":                   {io.EOF, codes.Internal, false},
		"in words only":             {disk.Errorf(disk.Pending, "soon (%v)", soldOut), codes.Aborted, false},
	} {
		_, err := translate(t.Context(), nil, nil, func(context.Context, any) (any, error) { return nil, test.err })
		if got := outofstock.Is(err); got != test.want || status.Code(err) != test.code || status.Convert(err).Message() != test.err.Error() {
			t.Errorf("%s: out of stock: %v, %v", name, got, err)
		}
	}
}

func TestErrorsWithoutAKindAreInternalUnlessTimeWasUp(t *testing.T) {
	for _, row := range []struct {
		err  error
		want codes.Code
	}{
		{errors.New("a mistake"), codes.Internal},
		{fmt.Errorf("read: %w", context.DeadlineExceeded), codes.DeadlineExceeded},
		{fmt.Errorf("read: %w", context.Canceled), codes.DeadlineExceeded},
		{disk.Errorf(disk.Kind(99), "new"), codes.Internal},
	} {
		if got := codeOf(t.Context(), row.err); got != row.want {
			t.Errorf("%v is %v, want %v", row.err, got, row.want)
		}
	}
}

func TestTranslateLeavesGRPCsOwnErrorsAlone(t *testing.T) {
	own := status.Error(codes.Unimplemented, "method not implemented")
	_, err := translate(t.Context(), nil, nil, func(context.Context, any) (any, error) { return nil, own })
	if !errors.Is(err, own) || status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v", err)
	}
}

func TestErrorsCarryKindCodeAndRequestID(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
		s.say("fault error action=AttachDisk status=403 code=InstanceDiskLimitExceeded")
		_, err := invoke(t.Context(), s.driver, "ControllerPublishVolume", s.publishRequest([]string{"d-1", "i-a1"}))
		var info *errdetails.ErrorInfo
		for _, detail := range status.Convert(err).Details() {
			info, _ = detail.(*errdetails.ErrorInfo)
		}
		if id := info.GetMetadata()["requestId"]; id == "" || !strings.Contains(err.Error(), id) {
			t.Errorf("the request ID is %q in %v", id, err)
		}
		if info.GetReason() != "NODE_FULL" || info.GetMetadata()["code"] != "InstanceDiskLimitExceeded" || info.GetMetadata()["action"] != "AttachDisk" {
			t.Errorf("%v has %v", err, info)
		}
	})
}

// A volume that no zone has is refused with the zones, and with what ECS has answered to the first.
func TestOutOfStockCarriesZones(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		first := metadata.NewIncomingContext(t.Context(), metadata.Pairs(creation.FirstCallKey, "true"))
		s.say("fault error action=CreateDisk status=403 code=OperationDenied.NoStock count=9")
		_, err := invoke(first, s.driver, "CreateVolume", s.createRequest("disk-1", strings.Fields("size=20Gi zones=a,b type=cloud_essd")))
		info, ok := errorinfo.Of(err)
		want := errorinfo.Info{
			Kind: "OUT_OF_STOCK", Action: "CreateDisk", Code: "OperationDenied.NoStock", RequestID: info.RequestID, Zones: []string{"cn-hangzhou-a", "cn-hangzhou-b"},
		}
		if diff := cmp.Diff(want, info); diff != "" || !ok || info.RequestID == "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}

// A small disk can be of fewer types than a large one: its refusal says from which size it tells nothing, also while it is not final, and when
// the node takes none of these types.
func TestOutOfStockCarriesTheSizeFromWhichMoreTypesArePossible(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		first := metadata.NewIncomingContext(t.Context(), metadata.Pairs(creation.FirstCallKey, "true"))
		s.say("fault error action=CreateDisk status=403 code=OperationDenied.NoStock count=99")
		for name, test := range map[string]struct {
			ctx  context.Context
			size string
			want int64
		}{
			"small":               {first, "5Gi", 19<<30 + 1},
			"small and not final": {t.Context(), "5Gi", 19<<30 + 1},
			"large":               {first, "20Gi", 0},
			"no type of the node": {first, "5Gi takes=cloud_essd", 19<<30 + 1},
		} {
			volume := "disk-" + strings.ReplaceAll(name, " ", "-")
			_, err := invoke(test.ctx, s.driver, "CreateVolume", s.createRequest(volume, strings.Fields("zones=a type=cloud_essd,cloud_auto size="+test.size)))
			if info, ok := errorinfo.Of(err); info.MoreTypesFrom != test.want || !ok {
				t.Errorf("%s: %v says %d, want %d", name, err, info.MoreTypesFrom, test.want)
			}
		}
	})
}

// ECS's words, and what a tenant has asked for, may be long and have control characters.
func TestALongMessageIsCut(t *testing.T) {
	_, err := translate(t.Context(), nil, nil, func(context.Context, any) (any, error) {
		return nil, disk.Errorf(disk.Invalid, "parameter kmsKeyId: %s\x1b[8m%s", "k", strings.Repeat("x", 1<<20))
	})
	message := status.Convert(err).Message()
	if len(message) > longestMessage+len("...") || !strings.HasSuffix(message, "x...") || strings.Contains(message, "\x1b") || status.Code(err) != codes.InvalidArgument {
		t.Errorf("%d bytes with code %v: %.60q", len(message), status.Code(err), message)
	}
}
