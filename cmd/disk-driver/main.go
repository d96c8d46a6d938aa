// Command disk-driver is the CSI plugin for Alibaba Cloud ECS disks: it answers
// CSI on a unix socket and calls ECS.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/cmd/internal/cli"
	"github.com/topodisk/topodisk/diskdriver"
	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/diskdriver/nodefacts"
)

// version is stamped by the linker.
var version = "dev"

// *ecs.Client is what the driver works with, and asks after nodes.
var (
	_ diskdriver.ECS   = signed{}
	_ nodefacts.Cloud  = (*ecs.Client)(nil)
	_ diskdriver.Nodes = (*nodefacts.Publisher)(nil)
)

// accounts opens the accounts of requests with secrets beside the driver's own.
type accounts struct{ own *ecs.Client }

func (a accounts) Account(secrets map[string]string) (diskdriver.ECS, error) {
	return a.own.Account(secrets)
}

// signed is ECS with a word on whose keys sign the calls, for whoever has to
// mend them.
type signed struct {
	*ecs.Client
	with string
}

// Check makes one cheap call; its error says where the keys come from.
func (s signed) Check(ctx context.Context) error {
	if err := s.Client.Check(ctx); err != nil {
		return fmt.Errorf("signed with %s: %w", s.with, err)
	}
	return nil
}

func main() { cli.Main("disk-driver", start) }

func start(ctx context.Context, args []string, out, diagnostics io.Writer) (int, error) {
	o, err := parse(args, diagnostics)
	switch {
	case err != nil:
		return 2, err
	case o.showVersion:
		_, err := fmt.Fprintln(out, "disk-driver", version)
		return 0, err
	}
	defer klog.Flush()
	if err := run(ctx, o); err != nil {
		klog.ErrorS(err, "disk-driver ends")
		return 1, nil
	}
	return 0, nil
}

// run wires the program up and serves until the context ends.
func run(ctx context.Context, o *options) error {
	o.log.Start(os.Stderr)
	registry := cli.NewRegistry(version)
	if o.mode == modeNode {
		return runNode(ctx, o, registry)
	}
	return runController(ctx, o, registry)
}

// runController serves the controller and, in mode all, the node with it.
func runController(ctx context.Context, o *options, registry *prometheus.Registry) error {
	if err := o.completeClusterID(ctx); err != nil {
		return err
	}
	provider, source, err := credentials.Choose(o.sources(registry))
	if err != nil {
		return fmt.Errorf("--credentials-dir=%s --sts-endpoint=%s --metadata-endpoint=%s: %w", o.credentialsDir, o.stsEndpoint, o.metadataEndpoint, err)
	}
	klog.InfoS("Credentials come from one source as long as this process lives", "source", source)
	client, err := ecs.NewClient(o.ecs(provider, registry))
	if err != nil {
		return fmt.Errorf("--region=%s --cluster-id=%s --ecs-endpoint: %w", o.region, o.clusterID, err)
	}
	config := o.driver(accounts{client}, registry)
	tell, err := newTeller(o)
	if err != nil {
		return err
	}
	ready := &readiness{}
	ready.await("ECS", errors.New("no answer yet"))
	config.OnReady = func(err error) {
		ready.await("ECS", err)
		tell(err)
	}
	facts, err := newNodeFacts(o, client)
	if err != nil {
		return err
	}
	if facts != nil {
		config.Nodes = facts
	}
	driver, err := diskdriver.New(config, signed{client, o.signedWith(source)})
	if err != nil {
		return err
	}
	adopt(ctx, o, client)
	if o.mode == modeController {
		return serve(ctx, o, registry, driver, nil, facts, ready)
	}
	plugin, err := newNodePlugin(o)
	if err != nil {
		return err
	}
	driver.WithNode(plugin.server)
	return serve(ctx, o, registry, driver, plugin, facts, ready)
}
