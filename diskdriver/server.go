package diskdriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/attachment"
	"github.com/topodisk/topodisk/diskdriver/suspension"
	"github.com/topodisk/topodisk/diskdriver/volume"
	"github.com/topodisk/topodisk/internal/sleep"
)

// dialTimeout is how long a socket that exists may take to show whether
// anyone serves it.
const dialTimeout = time.Second

// SocketPath returns the path of an endpoint such as unix:///csi/csi.sock. A
// CSI plugin is served on a unix socket and nothing else.
func SocketPath(endpoint string) (string, error) {
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok {
		path, ok = strings.CutPrefix(endpoint, "unix:")
	}
	if !ok || !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") {
		return "", fmt.Errorf("endpoint %q: allowed is a unix socket with an absolute path, such as unix:///csi/csi.sock", endpoint)
	}
	return path, nil
}

// Listen opens the socket of an endpoint. It removes a socket that a dead
// process left behind, but neither one that is served nor any other file.
func Listen(endpoint string) (net.Listener, error) {
	path, err := SocketPath(endpoint)
	if err != nil {
		return nil, err
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("endpoint %q: %w", endpoint, err)
	}
	return listener, nil
}

func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look for an old socket: %w", err)
	case info.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("%s exists and is no socket; move it away or choose another endpoint", path)
	}
	if conn, err := net.DialTimeout("unix", path, dialTimeout); err == nil {
		_ = conn.Close()
		return fmt.Errorf("another process serves %s; stop it or choose another endpoint", path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove an old socket: %w", err)
	}
	return nil
}

// Run serves the driver's gRPC services and keeps asking ECS whether it
// answers, until the context ends. Then it takes no new calls, gives those
// under way the drain time, and cuts them off: their outcome is unknown, and
// the next process finds out by their client tokens. It closes the listener.
func (d *Driver) Run(ctx context.Context, listener net.Listener, drain time.Duration) error {
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(d.interceptors()...), grpc.StatsHandler(contexts{&d.watch}))
	d.register(server)

	var background sync.WaitGroup
	defer background.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if d.controller != nil {
		background.Go(func() { d.readiness.watch(ctx) })
		background.Go(func() { sweeping(ctx, d.accounts, d.inflight) })
		background.Go(func() { d.watch.Run(ctx) })
	}
	background.Go(func() {
		<-ctx.Done()
		drainCalls(server, drain)
	})

	klog.InfoS("Serving CSI", "address", listener.Addr().String(), "driver", d.identity.name, "version", d.identity.version)
	err := server.Serve(listener)
	if err != nil && (ctx.Err() == nil || !errors.Is(err, grpc.ErrServerStopped)) { // the context may have ended before
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	}
	return nil
}

// contexts has every connection be a caller of its own (attachment.WithCaller), and every call know whether the process was suspended since it
// began.
type contexts struct{ watch *suspension.Watch }

func (contexts) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return attachment.WithCaller(ctx, new(byte))
}

func (c contexts) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return c.watch.Mark(ctx)
}

func (contexts) HandleConn(context.Context, stats.ConnStats) {}
func (contexts) HandleRPC(context.Context, stats.RPCStats)   {}

// drainCalls ends the server when its calls have ended, or when time is up.
func drainCalls(server *grpc.Server, drain time.Duration) {
	drained := make(chan struct{})
	go func() {
		server.GracefulStop()
		close(drained)
	}()
	select {
	case <-drained:
		klog.InfoS("All calls have ended")
	case <-time.After(drain):
		klog.InfoS("Calls did not end in time and are cut off", "drain", drain)
		server.Stop()
		<-drained
	}
}

// sweeping sweeps all accounts again and again until the context ends.
func sweeping(ctx context.Context, accounts *accounts, busy *inflight) {
	for sleep.For(ctx, volume.SweepEvery) == nil {
		for _, c := range accounts.all() {
			c.sweep(ctx, busy)
		}
	}
}
