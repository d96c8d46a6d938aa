// Command ecs-simulator serves a simulated Alibaba Cloud ECS over HTTP: the
// API at /, the metadata service of instances at /latest/, its own admin API
// and a page for people at /_sim/.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/ecssim/admin"
	"github.com/topodisk/topodisk/ecssim/bodies"
)

// version is stamped by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	var wrong flagError
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp):
		return
	case errors.As(err, &wrong):
		fmt.Fprintln(os.Stderr, "ecs-simulator:", err)
	default:
		klog.ErrorS(err, "ecs-simulator ends")
		klog.Flush()
	}
	os.Exit(1)
}

// flagError is an error of the command line, which is for people.
type flagError struct{ error }

func (e flagError) Unwrap() error { return e.error }

// run serves until ctx is done. It says where on the first line of out.
func run(ctx context.Context, args []string, out, errOut io.Writer) (err error) {
	options, err := parse(args, errOut)
	if err != nil {
		return flagError{err}
	}
	if options.showVersion {
		_, err := fmt.Fprintln(out, "ecs-simulator", version)
		return err
	}
	options.log.Start(errOut)
	sim, keeper, err := simulator(options)
	if err != nil {
		return flagError{err}
	}
	defer func() { err = errors.Join(err, keeper.close()) }()
	listener, err := net.Listen("tcp", options.listen)
	if err != nil {
		return fmt.Errorf("--listen %q: %w", options.listen, err)
	}
	if _, err := fmt.Fprintf(out, "listening on http://%s\n", listener.Addr()); err != nil {
		return err
	}
	var m memory
	go m.giveBack(ctx)
	doors := []door{{listener, m.count(admin.Handler(sim)), sim.Connected}}
	for _, service := range options.metadata {
		listener, err := net.Listen("tcp", service.address)
		if err != nil {
			return fmt.Errorf("--metadata-listen %q: %w", service.address, err)
		}
		if _, err := fmt.Fprintf(out, "metadata of %s on http://%s\n", service.instance, listener.Addr()); err != nil {
			return err
		}
		doors = append(doors, door{listener, m.count(sim.Metadata(service.instance)), sim.Connected})
	}
	return serveAll(ctx, doors)
}

// keeper keeps the bodies of disks, if they have any.
type keeper struct{ *bodies.Keeper }

func (k keeper) close() error {
	if k.Keeper == nil {
		return nil
	}
	return k.Close()
}

// simulator returns the simulated ECS, whose disks have bodies if there is a
// directory for them.
func simulator(o options) (*ecssim.Server, keeper, error) {
	var k keeper
	failed := func(err error) { klog.ErrorS(err, "The bodies of disks can't be updated") }
	if o.bodies != "" {
		o.config.BeforeReply = func() {
			if err := k.Update(); err != nil {
				failed(err)
			}
		}
	}
	sim, err := ecssim.New(o.config)
	if err != nil {
		return nil, k, inFlags(err)
	}
	if o.bodies != "" {
		if k.Keeper, err = bodies.New(sim, o.bodies, o.links, failed); err != nil {
			return nil, k, fmt.Errorf("--bodies: %w", err)
		}
	}
	return sim, k, nil
}

// door is a listener, what answers there, and what notes its connections.
type door struct {
	listener  net.Listener
	handler   http.Handler
	connected func(context.Context, net.Conn) context.Context
}

// serveAll serves until ctx is done or one of the servers fails.
func serveAll(ctx context.Context, doors []door) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, len(doors))
	for _, d := range doors {
		go func() {
			ended <- serve(ctx, d)
			stop()
		}()
	}
	var errs []error
	for range doors {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}

// serve answers until ctx is done, then gives requests under way a second.
func serve(ctx context.Context, d door) error {
	server := &http.Server{Handler: d.handler, ConnContext: d.connected, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(d.listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		return server.Close() // a request that waits for its reply loses it
	}
	return nil
}
