package outofstock

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestIs(t *testing.T) {
	detailed := func(info *errdetails.ErrorInfo) error {
		s, err := status.New(codes.Aborted, "no").WithDetails(info)
		if err != nil {
			t.Fatal(err)
		}
		return s.Err()
	}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"none":            {nil, false},
		"no status":       {errors.New("no"), false},
		"its code":        {status.Error(codes.ResourceExhausted, "no"), true},
		"another code":    {status.Error(codes.Aborted, "no"), false},
		"marked":          {Mark(status.New(codes.Aborted, "no")).Err(), true},
		"wrapped":         {fmt.Errorf("CreateVolume: %w", Mark(status.New(codes.Aborted, "no")).Err()), true},
		"OK":              {Mark(status.New(codes.OK, "")).Err(), false},
		"another reason":  {detailed(&errdetails.ErrorInfo{Domain: domain, Reason: "QUOTA"}), false},
		"another domain":  {detailed(&errdetails.ErrorInfo{Domain: "example.com", Reason: reason}), false},
		"an empty detail": {detailed(&errdetails.ErrorInfo{}), false},
	} {
		if got := Is(test.err); got != test.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
	if s := Mark(status.New(codes.Aborted, "why")); s.Code() != codes.Aborted || s.Message() != "why" {
		t.Errorf("it is %v", s)
	}
}
