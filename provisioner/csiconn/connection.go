// Package csiconn connects the provisioner to its CSI driver on a unix socket. It calls
// only a driver whose name is verified, and fences calls that change anything.
package csiconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/connection"
	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/internal/unused"
)

// probeTimeout is how long a driver may answer Probe with not ready before claims are
// provisioned all the same: their events then show the error.
const probeTimeout = 30 * time.Second

// Connection is a connection to the driver on a unix socket. After each reconnect it
// verifies that the same driver answers.
type Connection struct {
	conn    *grpc.ClientConn
	client  csi.ControllerClient
	timeout time.Duration
	held    func() error // the Lease

	verifying sync.Mutex

	mu       sync.Mutex
	verified net.Addr // the driver's end of the connection that was verified, nil for none; every connection has a value of its own
	lost     int      // how often the connection was lost
	name     string   // fixed by the first answer, or by the caller
	can      Abilities
}

// Abilities are the capabilities of a driver that the provisioner uses.
type Abilities struct {
	Topology    bool // VOLUME_ACCESSIBILITY_CONSTRAINTS
	GetCapacity bool
	ListVolumes bool

	SingleNodeMultiWriter bool
	Snapshots             bool // CREATE_DELETE_SNAPSHOT
	Clone                 bool // CLONE_VOLUME
	Modify                bool // MODIFY_VOLUME
	DeleteOnlyUnused      bool // see package unused
}

// NotAsked is the error of a call that was not sent.
type NotAsked struct {
	Err error // why
}

// Error says why the call was not sent.
func (n *NotAsked) Error() string { return n.Err.Error() }

// Unwrap returns why.
func (n *NotAsked) Unwrap() error { return n.Err }

// IsNotAsked says whether err is that of a call that was not sent.
func IsNotAsked(err error) bool {
	var n *NotAsked
	return errors.As(err, &n)
}

// Connect waits for the driver's socket and for its first answer until ctx ends. A driver of another name than wanted (unless
// that is empty), or one that makes no volumes, is an error. CreateVolume and
// DeleteVolume are called only while held returns nil.
func Connect(ctx context.Context, address, wanted string, timeout time.Duration, manager csimetrics.CSIMetricsManager, held func() error) (*Connection, error) {
	c := &Connection{timeout: timeout, name: wanted, held: held}
	conn, err := connection.Connect(ctx, address, manager,
		connection.WithTimeout(0), connection.OnConnectionLoss(func(context.Context) bool { c.invalidate(); return true }))
	if err != nil {
		return nil, fmt.Errorf("the driver's socket %s: %w", address, err)
	}
	c.conn, c.client = conn, csi.NewControllerClient(conn)
	if err := c.awaitReady(ctx); err != nil {
		return nil, err
	}
	return c, utilwait.PollUntilContextCancel(ctx, reconnectInterval, true, func(ctx context.Context) (bool, error) {
		err := c.verify(ctx)
		if status.Code(err) == codes.Unavailable || status.Code(err) == codes.DeadlineExceeded {
			klog.ErrorS(err, "The connection to the driver was lost while it was verified")
			return false, nil
		}
		return true, err
	})
}

// Name returns the driver's name.
func (c *Connection) Name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.name
}

// Can returns the driver's capabilities that the provisioner uses.
func (c *Connection) Can() Abilities {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.can
}

// Probe asks the driver whether it is ready.
func (c *Connection) Probe(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return rpc.Probe(ctx, c.conn)
}

// reconnectInterval is the time between two attempts to reach a driver that is unavailable or not ready.
const reconnectInterval = time.Second

// AwaitReturn returns nil once the driver was unavailable and answers again, or the
// context's error.
func (c *Connection) AwaitReturn(ctx context.Context) error {
	for state := c.conn.GetState(); state == connectivity.Ready; state = c.conn.GetState() {
		if !c.conn.WaitForStateChange(ctx, state) {
			return ctx.Err()
		}
	}
	c.invalidate()
	return utilwait.PollUntilContextCancel(ctx, reconnectInterval, false, func(ctx context.Context) (bool, error) {
		return c.verify(ctx) == nil, ctx.Err()
	})
}

// awaitReady probes until the driver is ready, or has answered for probeTimeout that it
// is not.
func (c *Connection) awaitReady(ctx context.Context) error {
	var answered time.Time
	return utilwait.PollUntilContextCancel(ctx, reconnectInterval, true, func(ctx context.Context) (bool, error) {
		ready, err := c.Probe(ctx)
		switch {
		case err != nil:
			klog.ErrorS(err, "The driver does not answer Probe yet")
			answered = time.Time{}
		case ready:
			return true, nil
		case answered.IsZero():
			klog.InfoS("The driver is not ready yet; its log says why")
			answered = time.Now()
		case time.Since(answered) > probeTimeout:
			klog.InfoS("The driver is still not ready; claims are provisioned all the same, and their events will show the error")
			return true, nil
		}
		return false, nil
	})
}

// Always is the fence of a process without a Lease: it is open.
func Always() error { return nil }

func (c *Connection) invalidate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verified = nil
	c.lost++
}

// verify asks the driver for its name and capabilities unless that was done
// since the connection was last lost.
func (c *Connection) verify(ctx context.Context) error {
	c.verifying.Lock() // concurrent callers share one verification
	defer c.verifying.Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	for {
		verified, before := c.state()
		if verified != nil {
			return nil
		}
		var from peer.Peer
		if err := c.askIdentity(ctx, &from); err != nil {
			return err
		}
		c.setVerified(before, from.Addr)
	}
}

// state returns the connection that was verified, nil for none, and how often one was lost.
func (c *Connection) state() (verified net.Addr, lost int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.verified, c.lost
}

// setVerified marks the connection as verified if it was not lost meanwhile.
func (c *Connection) setVerified(losses int, peer net.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost == losses {
		c.verified = peer
	}
}

func (c *Connection) askIdentity(ctx context.Context, from *peer.Peer) error {
	info, err := csi.NewIdentityClient(c.conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}, grpc.Peer(from))
	if err != nil {
		return fmt.Errorf("GetPluginInfo: %w", err)
	}
	name := info.GetName()
	if name == "" {
		return errors.New("GetPluginInfo: the driver has no name")
	}
	if known := c.Name(); known != "" && name != known {
		return status.Errorf(codes.FailedPrecondition, "the driver on the socket is %s, not %s", name, known)
	}
	plugin, err := rpc.GetPluginCapabilities(ctx, c.conn)
	if err != nil {
		return fmt.Errorf("GetPluginCapabilities: %w", err)
	}
	controller, err := rpc.GetControllerCapabilities(ctx, c.conn)
	if err != nil {
		return fmt.Errorf("ControllerGetCapabilities: %w", err)
	}
	if !plugin[csi.PluginCapability_Service_CONTROLLER_SERVICE] || !controller[csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME] {
		return status.Errorf(codes.FailedPrecondition, "driver %s makes no volumes: it lacks CONTROLLER_SERVICE or CREATE_DELETE_VOLUME", name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.name = name
	c.can = Abilities{
		Topology:    plugin[csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS],
		GetCapacity: controller[csi.ControllerServiceCapability_RPC_GET_CAPACITY],
		ListVolumes: controller[csi.ControllerServiceCapability_RPC_LIST_VOLUMES],

		SingleNodeMultiWriter: controller[csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER],
		Snapshots:             controller[csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT],
		Clone:                 controller[csi.ControllerServiceCapability_RPC_CLONE_VOLUME],
		Modify:                controller[csi.ControllerServiceCapability_RPC_MODIFY_VOLUME],
		DeleteOnlyUnused:      info.GetManifest()[unused.ManifestKey] == "true",
	}
	return nil
}

// callVerified calls the driver that verify has seen, unless held returns an error. gRPC
// reconnects by itself, so an answer, be it an error, counts only if it came over the
// verified connection: another one may lead to another driver. A driver that terminates
// refuses new calls before it has answered those under way.
func callVerified[T any](ctx context.Context, c *Connection, held func() error, call func(grpc.CallOption) (*T, error)) (*T, error) {
	if c.conn.GetState() != connectivity.Ready {
		c.invalidate()
	}
	if err := c.verify(ctx); err != nil {
		return nil, &NotAsked{status.Errorf(codes.Unavailable, "the driver is unavailable: %v", err)}
	}
	if err := held(); err != nil {
		return nil, &NotAsked{status.Error(codes.Unavailable, err.Error())}
	}
	asked, _ := c.state()
	var from peer.Peer
	answer, err := call(grpc.Peer(&from))
	if from.Addr != asked || asked == nil {
		if err == nil {
			err = errors.New("another one was answered")
		}
		return nil, status.Errorf(codes.Unavailable, "the connection to the driver was lost during the call: %v", err)
	}
	return answer, err
}

// callFenced makes a call that changes something, unless another process may lead: this
// one may have been suspended, or have waited for the driver.
func callFenced[T any](ctx context.Context, c *Connection, call func(grpc.CallOption) (*T, error)) (*T, error) {
	return callVerified(ctx, c, c.held, call)
}

// CreateVolume calls the driver's CreateVolume.
func (c *Connection) CreateVolume(ctx context.Context, in *csi.CreateVolumeRequest, opts ...grpc.CallOption) (*csi.CreateVolumeResponse, error) {
	return callFenced(ctx, c, func(peer grpc.CallOption) (*csi.CreateVolumeResponse, error) {
		return c.client.CreateVolume(ctx, in, append(opts, peer)...)
	})
}

// DeleteVolume calls the driver's DeleteVolume.
func (c *Connection) DeleteVolume(ctx context.Context, in *csi.DeleteVolumeRequest, opts ...grpc.CallOption) (*csi.DeleteVolumeResponse, error) {
	return callFenced(ctx, c, func(peer grpc.CallOption) (*csi.DeleteVolumeResponse, error) {
		return c.client.DeleteVolume(ctx, in, append(opts, peer)...)
	})
}

// GetCapacity calls the driver's GetCapacity.
func (c *Connection) GetCapacity(ctx context.Context, in *csi.GetCapacityRequest, opts ...grpc.CallOption) (*csi.GetCapacityResponse, error) {
	return callVerified(ctx, c, Always, func(peer grpc.CallOption) (*csi.GetCapacityResponse, error) {
		return c.client.GetCapacity(ctx, in, append(opts, peer)...)
	})
}

// ListVolumes calls the driver's ListVolumes.
func (c *Connection) ListVolumes(ctx context.Context, in *csi.ListVolumesRequest, opts ...grpc.CallOption) (*csi.ListVolumesResponse, error) {
	return callVerified(ctx, c, Always, func(peer grpc.CallOption) (*csi.ListVolumesResponse, error) {
		return c.client.ListVolumes(ctx, in, append(opts, peer)...)
	})
}

// Close closes the connection.
func (c *Connection) Close() error { return c.conn.Close() }
