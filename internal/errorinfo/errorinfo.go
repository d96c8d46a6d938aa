// Package errorinfo is what programs read of an error, while people read its text: disk-driver writes it into the detail
// google.rpc.ErrorInfo of a gRPC status, disk-provisioner into the annotations of an event, and kubectl-topodisk reads those.
package errorinfo

import (
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
)

// domain is that of the google.rpc.ErrorInfo.
const domain = "topodisk"

// Kinds of what disk-provisioner finds before it asks the driver, besides those of docs/errors.md and the reasons of package topology.
const (
	Invalid          = "INVALID" // the driver's, too
	SnapshotNotReady = "SNAPSHOT_NOT_READY"
)

// Info is about an error. All but the Kind may be empty.
type Info struct {
	Kind      string // of docs/errors.md in capitals, such as OUT_OF_STOCK: the reason of the google.rpc.ErrorInfo
	Action    string // of ECS, such as CreateDisk
	Code      string // of ECS, such as OperationDenied.NoStock
	RequestID string // of ECS, for a support ticket
	Zones     []string

	MoreTypesFrom int64 // bytes: for a request of this size or more, further disk types are possible; 0: none is
}

// KindOf returns the Kind that has a name in words, such as "out of stock".
func KindOf(words string) string { return strings.ToUpper(strings.ReplaceAll(words, " ", "_")) }

// field is one of Info's under the names that it has in the metadata of the google.rpc.ErrorInfo and in annotations.
type field struct {
	metadata, annotation string
	get                  func(Info) string
	set                  func(*Info, string)
}

const annotationKind = "topodisk.io/error-kind"

var fields = []field{
	{"action", "topodisk.io/ecs-action", func(i Info) string { return i.Action }, func(i *Info, v string) { i.Action = v }},
	{"code", "topodisk.io/ecs-code", func(i Info) string { return i.Code }, func(i *Info, v string) { i.Code = v }},
	{"requestId", "topodisk.io/ecs-request-id", func(i Info) string { return i.RequestID }, func(i *Info, v string) { i.RequestID = v }},
	{
		"zones", "topodisk.io/zones", func(i Info) string { return strings.Join(i.Zones, ",") },
		func(i *Info, v string) {
			if v != "" {
				i.Zones = strings.Split(v, ",")
			}
		},
	},
	{
		"moreTypesFrom", "topodisk.io/more-types-from",
		func(i Info) string {
			if i.MoreTypesFrom == 0 {
				return ""
			}
			return strconv.FormatInt(i.MoreTypesFrom, 10)
		},
		func(i *Info, v string) { i.MoreTypesFrom, _ = strconv.ParseInt(v, 10, 64) },
	},
}

// Detail returns that of a gRPC status.
func (i Info) Detail() *errdetails.ErrorInfo {
	detail := &errdetails.ErrorInfo{Domain: domain, Reason: i.Kind, Metadata: map[string]string{}}
	for _, f := range fields {
		if value := f.get(i); value != "" {
			detail.Metadata[f.metadata] = strings.ToValidUTF8(value, "?") // gRPC refuses others
		}
	}
	return detail
}

// Of returns what the detail of a gRPC status says, and whether there is one.
func Of(err error) (Info, bool) {
	for _, detail := range status.Convert(err).Details() {
		if from, ok := detail.(*errdetails.ErrorInfo); ok && from.Domain == domain {
			info := Info{Kind: from.Reason}
			for _, f := range fields {
				f.set(&info, from.Metadata[f.metadata])
			}
			return info, true
		}
	}
	return Info{}, false
}

// Annotations returns those of an event; nil if there is no Kind.
func (i Info) Annotations() map[string]string {
	if i.Kind == "" {
		return nil
	}
	all := map[string]string{annotationKind: i.Kind}
	for _, f := range fields {
		if value := f.get(i); value != "" {
			all[f.annotation] = value
		}
	}
	return all
}

// FromAnnotations returns what the annotations of an event say, and whether they say anything.
func FromAnnotations(annotations map[string]string) (Info, bool) {
	info := Info{Kind: annotations[annotationKind]}
	for _, f := range fields {
		f.set(&info, annotations[f.annotation])
	}
	return info, info.Kind != ""
}
