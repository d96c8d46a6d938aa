// Package unused is how disk-provisioner has disk-driver delete a volume only if it was never used, and how the driver says that it was.
package unused

import (
	"context"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// ManifestKey is the key of the manifest of GetPluginInfo by which a driver says, with the value "true", that it heeds Only.
const ManifestKey = "topodisk.io/delete-only-unused"

// key is the gRPC metadata of a DeleteVolume that is only for a volume that was never used.
const key = "topodisk-only-unused"

// The detail of a status, google.rpc.ErrorInfo.
const (
	domain = "topodisk"
	reason = "VOLUME_WAS_USED"
)

// Only returns the context of a DeleteVolume that is refused if the volume may have been used.
func Only(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, key, "true")
}

// IsOnly says whether a DeleteVolume came with Only.
func IsOnly(ctx context.Context) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get(key)
	return len(values) > 0 && values[0] == "true"
}

// Refuse returns the status with the detail that the volume may have been used, and with the same code and message.
func Refuse(s *status.Status) *status.Status {
	refused, err := s.WithDetails(&errdetails.ErrorInfo{Domain: domain, Reason: reason})
	if err != nil {
		return s // only for the code OK
	}
	return refused
}

// IsRefused says whether an answer has that detail.
func IsRefused(err error) bool {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Domain == domain && info.Reason == reason {
			return true
		}
	}
	return false
}
