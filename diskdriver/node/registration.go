package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"

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

// Run serves the registration until the context ends, and takes its socket away
// then: the kubelet forgets the driver.
func (r *Registration) Run(ctx context.Context) error {
	if err := os.Remove(r.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove an old registration socket: %w", err)
	}
	listener, err := net.Listen("unix", r.socket)
	if err != nil {
		return fmt.Errorf("register with the kubelet: %w", err)
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, r)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	if err := server.Serve(listener); err != nil {
		return fmt.Errorf("serve %s: %w", r.socket, err)
	}
	return nil
}
