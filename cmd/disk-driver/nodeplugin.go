package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/node"
	"github.com/topodisk/topodisk/diskdriver/nodefacts"
)

// *nodefacts.Self is what the node plugin knows of its node by.
var (
	_ node.Facts  = (*nodefacts.Self)(nil)
	_ claims      = (*nodefacts.Self)(nil)
	_ node.Events = (*claimEvents)(nil)
)

// askAgain is how often the node plugin asks for what it needs to register.
const askAgain = 5 * time.Second

// nodePlugin is what serves a node: it calls no cloud and holds no credentials.
type nodePlugin struct {
	self         *nodefacts.Self
	events       *claimEvents
	server       *node.Server
	registration *node.Registration
	removeTaint  bool
}

func newNodePlugin(o *options) (*nodePlugin, error) {
	client, err := o.cluster.Client()
	if err != nil {
		return nil, fmt.Errorf("--mode=%s needs an API server: %w", o.mode, err)
	}
	socket, err := diskdriver.SocketPath(o.endpoint)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return nil, fmt.Errorf("--endpoint=%s: the directory of the socket: %w", o.endpoint, err)
	}
	self := nodefacts.NewSelf(client, o.nodeName, o.driverName, nodefacts.Limits{Volumes: o.volumeLimit, Reserved: o.reserved})
	events := newClaimEvents(client, o.nodeName, self)
	server, err := node.New(node.Config{
		Driver: o.driverName, KubeletDir: o.kubeletDir, Allowed: o.allowed, Facts: self, Events: events,
		BlankCheck: node.BlankCheck{Limit: int64(o.blankCheckLimit) * disk.BytesPerGiB},
	})
	if err != nil {
		return nil, fmt.Errorf("--kubelet-dir=%s: %w", o.kubeletDir, err)
	}
	registration := node.NewRegistration(o.driverName, o.kubeletDir, socket)
	registration.Held = events.otherPlugin(o.nodeName)
	return &nodePlugin{self: self, events: events, server: server, registration: registration, removeTaint: o.removeTaint}, nil
}

// run makes the driver known to the kubelet, once all is known that the kubelet
// will ask for, and takes the startup taint away, until the context ends. An
// error, such as a directory of the kubelet that is not there, ends it at once.
func (p *nodePlugin) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer stop()
	if p.removeTaint {
		background.Go(func() { p.self.Untaint(ctx) })
	}
	background.Go(func() { p.events.run(ctx) })
	know := func() error {
		_, err := p.server.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
		return err
	}
	if retry(ctx, askAgain, "The driver is not registered with the kubelet yet", know) != nil {
		return nil // the context has ended
	}
	return p.registration.Run(ctx)
}

// registered returns an error until the kubelet has taken the driver.
func (p *nodePlugin) registered() error {
	if p.registration.Registered() {
		return nil
	}
	return errors.New("the driver is not registered yet; the log says what it waits for")
}

// metrics are those of a node.
func (p *nodePlugin) metrics() []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "topodisk_node_registered",
			Help: "1 if the kubelet has registered the driver, else 0.",
		}, func() float64 {
			if p.registered() != nil {
				return 0
			}
			return 1
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "topodisk_filesystems_not_grown",
			Help: "Volumes of the node whose file systems don't fill their disks.",
		}, func() float64 { return float64(p.server.NotGrown()) }),
	}
}

// depart returns a context that ends later than ctx, if the node is being
// drained then: when its volumes have gone, or the limit is over.
func (p *nodePlugin) depart(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		defer stop()
		waiting, cancel := context.WithTimeout(serving, limit)
		defer cancel()
		if err := p.self.AwaitDeparture(waiting); err != nil {
			klog.ErrorS(err, "The node plugin ends before its volumes have gone")
		}
	})
	return serving, stop
}

// runNode serves a node alone until the context ends and, if the node is being
// drained, until its volumes have gone.
func runNode(ctx context.Context, o *options, registry *prometheus.Registry) error {
	plugin, err := newNodePlugin(o)
	if err != nil {
		return err
	}
	driver, err := diskdriver.NewNode(o.driverName, version, registry, plugin.server)
	if err != nil {
		return err
	}
	return serve(ctx, o, registry, driver, plugin, nil, &readiness{})
}

// serve runs the driver and what goes with it until the context ends.
func serve(ctx context.Context, o *options, registry *prometheus.Registry, driver *diskdriver.Driver, plugin *nodePlugin,
	facts *nodefacts.Publisher, ready *readiness) (err error) {
	pages, err := servePages(o.httpEndpoint, registry, func() error {
		if plugin != nil {
			ready.await("kubelet", plugin.registered())
		}
		return ready.check()
	})
	if err != nil {
		return err
	}
	defer func() { _ = pages.Close() }()
	if plugin != nil {
		registry.MustRegister(plugin.metrics()...)
	}
	listener, err := diskdriver.Listen(o.endpoint)
	if err != nil {
		return err
	}
	if plugin != nil {
		var stop context.CancelFunc
		ctx, stop = plugin.depart(ctx, o.nodeDrainTimeout)
		defer stop()
	}
	ctx, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	var failed error
	if facts != nil {
		background.Go(func() { facts.Run(ctx) })
	}
	if plugin != nil {
		background.Go(func() {
			defer stop()
			failed = plugin.run(ctx)
		})
	}
	err = driver.Run(ctx, listener, o.shutdownGrace)
	stop()
	background.Wait()
	return errors.Join(err, failed)
}
