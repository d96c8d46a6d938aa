// Package outofstock is how disk-driver tells disk-provisioner that ECS had no stock for a request, when the code of its answer
// says something else: that a volume may exist from an earlier call.
package outofstock

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The detail of a status, google.rpc.ErrorInfo.
const (
	domain = "topodisk"
	reason = "OUT_OF_STOCK"
)

// Mark returns the status with the detail, and with the same code and message.
func Mark(s *status.Status) *status.Status {
	marked, err := s.WithDetails(&errdetails.ErrorInfo{Domain: domain, Reason: reason})
	if err != nil {
		return s // only for the code OK
	}
	return marked
}

// Is says whether an answer of CreateVolume says that there was no stock: by its code, ResourceExhausted, or by its detail.
func Is(err error) bool {
	s := status.Convert(err)
	if s.Code() == codes.ResourceExhausted {
		return true
	}
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Domain == domain && info.Reason == reason {
			return true
		}
	}
	return false
}
