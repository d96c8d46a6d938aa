// Package sanity is what runs of csi-test's sanity suite share.
package sanity

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Marshalled is a client's interceptor that marshals every answer. The suite
// compares parts of answers with parts of requests down to the caches that
// marshalling leaves in a message.
func Marshalled(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoker(ctx, method, req, reply, cc, opts...)
	if err == nil {
		_, err = proto.Marshal(reply.(proto.Message))
	}
	return err
}
