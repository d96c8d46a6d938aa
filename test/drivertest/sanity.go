// Package drivertest is what tests and benchmarks of the driver share: a client of a simulated ECS, an interceptor for csi-test's sanity
// suite, and how fast the lives of disks could have been.
package drivertest

import (
	"context"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
)

const keyID, secret = "story", "secret"

// Keys are those that a simulated ECS must know for Client.
var Keys = map[string]string{keyID: secret}

// Client returns a client of the ECS behind a transport.
func Client(to http.RoundTripper, cluster string) (*ecs.Client, error) {
	return ecs.NewClient(ecs.Config{
		Region: "cn-hangzhou", ClusterID: cluster, Credentials: credentials.Static(credentials.Keys{AccessKeyID: keyID, AccessKeySecret: secret}),
		Transport: to,
	})
}

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
