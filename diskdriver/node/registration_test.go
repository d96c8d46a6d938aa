package node

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registry is a directory of registration sockets, and what the kubelet does there.
type registry struct {
	*testing.T
	socket string
}

// newRegistry runs the registration of a driver until it is stopped, or the test ends.
func newRegistry(t *testing.T) (g *registry, r *Registration, stop func()) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "plugins_registry"), 0o750); err != nil {
		t.Fatal(err)
	}
	r = NewRegistration("d.example.com", dir, "/csi.sock")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return &registry{t, r.socket}, r, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// await waits until a check passes.
func (g *registry) await(what string, check func() bool) {
	g.Helper()
	for deadline := time.Now().Add(10 * time.Second); !check(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			g.Fatalf("never: %s", what)
		}
	}
}

// register does what the kubelet does when it finds the socket, and returns which endpoint the driver has.
func (g *registry) register() (endpoint string) {
	connection, err := grpc.NewClient("unix://"+g.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		g.Fatal(err)
	}
	defer connection.Close()
	client := registration.NewRegistrationClient(connection)
	info, err := client.GetInfo(g.Context(), &registration.InfoRequest{})
	if err != nil {
		return ""
	}
	if _, err := client.NotifyRegistrationStatus(g.Context(), &registration.RegistrationStatus{PluginRegistered: true}); err != nil {
		return ""
	}
	return info.GetEndpoint()
}

func (g *registry) isRegistered() bool { return g.register() == "/csi.sock" }

// replace puts another plugin's socket in the place of the driver's.
func (g *registry) replace() net.Listener {
	g.Helper()
	if err := os.Remove(g.socket); err != nil {
		g.Fatal(err)
	}
	other, err := net.Listen("unix", g.socket)
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() { _ = other.Close() })
	return other
}

func TestRegistrationReturns(t *testing.T) {
	for name, lose := range map[string]func(*registry, *Registration){
		"removed": func(g *registry, _ *Registration) {
			if err := os.Remove(g.socket); err != nil {
				g.Fatal(err)
			}
		},
		"taken for a while": func(g *registry, r *Registration) {
			other := g.replace()
			g.await("the driver knows that it isn't registered", func() bool { return !r.Registered() })
			if err := other.Close(); err != nil {
				g.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, r, stop := newRegistry(t)
			g.await("the driver is registered", g.isRegistered)
			lose(g, r)
			g.await("the driver is not registered", func() bool { return !r.Registered() })
			g.await("the driver is registered again", g.isRegistered)
			if !r.Registered() {
				t.Error("the driver doesn't know that it is registered")
			}
			stop()
			if _, err := os.Lstat(g.socket); !os.IsNotExist(err) {
				t.Errorf("the socket is left: %v", err)
			}
		})
	}
}

func TestAPluginThatAnswersKeepsItsRegistration(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "plugins_registry"), 0o750); err != nil {
		t.Fatal(err)
	}
	r := NewRegistration("d.example.com", dir, "/csi.sock")
	other, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	other.SetUnlinkOnClose(false) // as a plugin that is killed
	before, err := os.Lstat(r.socket)
	if err != nil {
		t.Fatal(err)
	}
	held := make(chan string, 10)
	r.Held = func(message string) { held <- message }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	<-held
	if now, err := os.Lstat(r.socket); err != nil || !os.SameFile(now, before) {
		t.Errorf("the socket of a plugin that answers was taken: %v", err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	g := &registry{t, r.socket}
	g.await("the driver is registered once the other plugin has ended", g.isRegistered)
	if len(held) > 0 {
		t.Error("it was told more than once that another plugin is there")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRegistrationLeavesAnotherSocket(t *testing.T) {
	g, r, stop := newRegistry(t)
	g.await("the driver is registered", g.isRegistered)
	g.replace()
	g.await("the driver knows that it isn't registered", func() bool { return !r.Registered() })
	stop()
	if _, err := os.Lstat(g.socket); err != nil {
		t.Errorf("the other plugin's socket has gone: %v", err)
	}
}
