package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Registration makes the driver known to the kubelet (its plugin registration
// API, v1): the kubelet watches a directory for sockets and asks each what it
// stands for.
type Registration struct {
	registration.UnimplementedRegistrationServer
	driver   string
	endpoint string
	socket   string
	done     atomic.Bool

	// Held is called when another plugin is found in the driver's place, with
	// words for the node's administrator. Nil: nobody is told.
	Held func(message string)
}

// NewRegistration returns the registration of a driver that serves CSI on a
// socket, whose path is as the kubelet sees it.
func NewRegistration(driver, kubeletDir, socket string) *Registration {
	return &Registration{
		driver:   driver,
		endpoint: socket,
		socket:   filepath.Join(kubeletDir, "plugins_registry", driver+"-reg.sock"),
	}
}

// GetInfo tells the kubelet what is registered.
func (r *Registration) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.CSIPlugin,
		Name:              r.driver,
		Endpoint:          r.endpoint,
		SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus hears whether the kubelet has taken the driver.
func (r *Registration) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	r.done.Store(status.PluginRegistered)
	if status.PluginRegistered {
		klog.InfoS("The kubelet has registered the driver", "driver", r.driver)
	} else {
		klog.ErrorS(errors.New(status.Error), "The kubelet refuses the driver", "driver", r.driver)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// Registered says whether the kubelet has taken the driver.
func (r *Registration) Registered() bool { return r.done.Load() }

const otherPlugin = "Another plugin of the driver's name is registered on this node, and the kubelet calls that one; this one registers when that one has ended"

// socketCheckInterval is the time between two checks that the socket is there.
const socketCheckInterval = time.Second

// Run serves the registration until the context ends, and takes its socket away
// then: the kubelet forgets the driver. A plugin of the driver's name that answers
// at the socket keeps it, for volumes may be in its hands: the driver is registered
// once that one has ended. If another one takes the socket's place, the kubelet calls
// that one; once its socket has gone the driver is registered anew. Registered tells
// which of both it is.
func (r *Registration) Run(ctx context.Context) error {
	for r.awaitFree(ctx) {
		if err := remove(r.socket); err != nil {
			return fmt.Errorf("remove an old registration socket: %w", err)
		}
		if err := r.serve(ctx); err != nil && !errors.Is(err, syscall.EADDRINUSE) { // another plugin was quicker
			return err
		}
	}
	return nil
}

// awaitFree returns true when no other plugin listens at the socket, and false when the context has ended.
func (r *Registration) awaitFree(ctx context.Context) bool {
	for told := false; ctx.Err() == nil; told = true {
		connection, err := (&net.Dialer{Timeout: socketCheckInterval}).DialContext(ctx, "unix", r.socket)
		switch {
		case err == nil:
			_ = connection.Close()
		case errors.Is(err, syscall.EAGAIN), errors.Is(err, os.ErrDeadlineExceeded), ctx.Err() != nil: // a busy one
		default:
			return true // nothing is there, or what an ended plugin has left
		}
		if !told {
			klog.ErrorS(nil, otherPlugin, "socket", r.socket)
			if r.Held != nil {
				r.Held(otherPlugin)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(socketCheckInterval):
		}
	}
	return false
}

// serve serves the registration until the context ends, or its socket has gone.
func (r *Registration) serve(ctx context.Context) error {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.socket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("register with the kubelet: %w", err)
	}
	listener.SetUnlinkOnClose(false) // it would remove another plugin's socket
	own, err := os.Lstat(r.socket)
	if err != nil {
		return errors.Join(fmt.Errorf("register with the kubelet: %w", err), listener.Close())
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, r)
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		r.awaitLoss(watching, own)
		server.Stop()
	})
	err = server.Serve(listener)
	stop()
	watch.Wait()
	if errors.Is(err, grpc.ErrServerStopped) { // it was to end before it began
		err = nil
	}
	if now, gone := os.Lstat(r.socket); gone == nil && os.SameFile(now, own) {
		err = errors.Join(err, os.Remove(r.socket))
	}
	if err != nil {
		return fmt.Errorf("serve %s: %w", r.socket, err)
	}
	return nil
}

// awaitLoss returns when the socket has gone or is another one, or the context ends.
func (r *Registration) awaitLoss(ctx context.Context, own os.FileInfo) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(socketCheckInterval):
		}
		now, err := os.Lstat(r.socket)
		switch {
		case errors.Is(err, os.ErrNotExist):
			r.done.Store(false)
			klog.InfoS("The registration socket has gone; the driver is registered anew", "socket", r.socket)
			return
		case err == nil && !os.SameFile(now, own):
			r.done.Store(false)
			klog.ErrorS(nil, "Another plugin of the driver's name has taken the registration socket", "socket", r.socket)
			return
		}
	}
}
