package diskdriver

import (
	"context"
	"path"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/protosanitizer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/params"
)

// report counts, times and logs every call, once, when it ends, with what it was about and
// without its secrets. Calls that change nothing are logged at verbosity 5,
// unless they fail; whole requests and responses are, too.
func (m *metrics) report(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	start, method, code := time.Now(), path.Base(info.FullMethod), codes.Internal // what a panic is answered with
	ended := m.began(method)
	defer func() { ended(code) }()
	klog.V(5).InfoS("Call begins", "method", method, "request", sanitized{req})
	response, err := handler(ctx, req)
	code = status.Code(err)
	fields := append([]any{"method", method}, subjects(req, response)...)
	fields = append(fields, "code", code.String(), "duration", time.Since(start))
	switch {
	case err != nil:
		klog.ErrorS(err, "Call failed", fields...)
	case targetOf(req) != (target{}):
		klog.InfoS("Call done", fields...)
	default:
		klog.V(5).InfoS("Call done", append(fields, "response", sanitized{response})...)
	}
	return response, err
}

// subjects returns what a call is about as fields of the log, those that it
// names: the CSI name of what it makes, its ID, the claim, the node.
func subjects(req, response any) (fields []any) {
	add := func(key, value string) {
		if value != "" {
			fields = append(fields, key, value)
		}
	}
	if r, ok := req.(interface{ GetName() string }); ok {
		add("name", r.GetName())
	}
	add("volume", volumeOf(req, response))
	switch r := response.(type) {
	case *csi.CreateSnapshotResponse:
		add("snapshot", r.GetSnapshot().GetSnapshotId())
	case *csi.CreateVolumeGroupSnapshotResponse:
		add("groupSnapshot", r.GetGroupSnapshot().GetGroupSnapshotId())
	}
	if r, ok := req.(interface{ GetSnapshotId() string }); ok {
		add("snapshot", r.GetSnapshotId())
	}
	if r, ok := req.(interface{ GetGroupSnapshotId() string }); ok {
		add("groupSnapshot", r.GetGroupSnapshotId())
	}
	if r, ok := req.(*csi.CreateVolumeRequest); ok && r.GetParameters()[params.ClaimName] != "" {
		add("claim", r.GetParameters()[params.ClaimNamespace]+"/"+r.GetParameters()[params.ClaimName])
	}
	if r, ok := req.(interface{ GetNodeId() string }); ok {
		add("node", r.GetNodeId())
	}
	return fields
}

// volumeOf returns the ID of the volume that a call is about, as far as it is known.
func volumeOf(req, response any) string {
	switch r := req.(type) {
	case interface{ GetVolumeId() string }:
		return r.GetVolumeId()
	case *csi.CreateSnapshotRequest:
		return r.GetSourceVolumeId()
	}
	if r, ok := response.(*csi.CreateVolumeResponse); ok {
		return r.GetVolume().GetVolumeId()
	}
	return ""
}

// sanitized is a message without its secrets: in a log of JSON an object, else
// text.
type sanitized struct{ message any }

func (s sanitized) String() string               { return protosanitizer.StripSecrets(s.message).String() }
func (s sanitized) MarshalJSON() ([]byte, error) { return []byte(s.String()), nil }
