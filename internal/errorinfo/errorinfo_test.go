package errorinfo

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What one program writes, the other reads.
func TestInfoIsReadAsItWasWritten(t *testing.T) {
	for name, info := range map[string]Info{
		"all of it": {
			Kind: KindOf("out of stock"), Action: "CreateDisk", Code: "OperationDenied.NoStock", RequestID: "473469C7", Zones: []string{"cn-a", "cn-b"},
			MoreTypesFrom: 19<<30 + 1,
		},
		"a Kind alone": {Kind: KindOf("denied")},
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := status.New(codes.Aborted, "no").WithDetails(info.Detail())
			if err != nil {
				t.Fatal(err)
			}
			got, ok := Of(fmt.Errorf("CreateVolume: %w", answer.Err()))
			if diff := cmp.Diff(info, got); diff != "" || !ok {
				t.Errorf("detail (-written +read):\n%s", diff)
			}
			got, ok = FromAnnotations(info.Annotations())
			if diff := cmp.Diff(info, got); diff != "" || !ok {
				t.Errorf("annotations (-written +read):\n%s", diff)
			}
		})
	}
	for _, err := range []error{nil, errors.New("no"), status.Error(codes.Aborted, "no")} {
		if info, ok := Of(err); ok {
			t.Errorf("%v says %+v", err, info)
		}
	}
	if (Info{Code: "Throttling"}).Annotations() != nil {
		t.Error("there are annotations without a Kind")
	}
	for _, annotations := range []map[string]string{nil, {}, {"topodisk.io/ecs-code": "Throttling"}} {
		if info, ok := FromAnnotations(annotations); ok {
			t.Errorf("%v says %+v", annotations, info)
		}
	}
}

// gRPC refuses strings that are not UTF-8.
func TestDetailIsUTF8(t *testing.T) {
	if got := (Info{Code: "No\xffStock"}).Detail().Metadata["code"]; got != "No?Stock" {
		t.Errorf("the code is %q", got)
	}
}
