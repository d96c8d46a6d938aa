package unused

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func TestIsRefused(t *testing.T) {
	refused := Refuse(status.New(codes.FailedPrecondition, "why"))
	other, err := status.New(codes.FailedPrecondition, "why").WithDetails(&errdetails.ErrorInfo{Domain: domain, Reason: "OUT_OF_STOCK"})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"none":           {nil, false},
		"no status":      {errors.New("why"), false},
		"its code alone": {status.Error(codes.FailedPrecondition, "why"), false},
		"another reason": {other.Err(), false},
		"refused":        {refused.Err(), true},
		"wrapped":        {fmt.Errorf("DeleteVolume: %w", refused.Err()), true},
	} {
		if got := IsRefused(test.err); got != test.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
	if refused.Code() != codes.FailedPrecondition || refused.Message() != "why" {
		t.Errorf("it is %v", refused)
	}
}

func TestOnlyArrivesWithTheCall(t *testing.T) {
	if IsOnly(t.Context()) {
		t.Error("a call without it has it")
	}
	sent, _ := metadata.FromOutgoingContext(Only(t.Context()))
	if !IsOnly(metadata.NewIncomingContext(t.Context(), sent)) {
		t.Error("it did not arrive")
	}
}
