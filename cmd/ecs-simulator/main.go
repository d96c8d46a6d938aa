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
	"golang.org/x/sync/errgroup"
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
		os.Exit(2)
	}
	klog.ErrorS(err, "ecs-simulator ends")
	klog.Flush()
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
	sim, closeBodies, err := simulator(options)
	if err != nil {
		return flagError{err}
	}
	defer func() { err = errors.Join(err, closeBodies()) }()
	var m memory
	go m.giveBack(ctx)
	var doors []door
	open := func(flag, address, says string, handler http.Handler) error {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return fmt.Errorf("%s %q: %w", flag, address, err)
		}
		doors = append(doors, door{listener, m.count(handler)})
		_, err = fmt.Fprintf(out, "%s http://%s\n", says, listener.Addr())
		return err
	}
	if err := open("--listen", options.listen, "listening on", admin.Handler(sim)); err != nil {
		return err
	}
	for _, service := range options.metadata {
		if err := open("--metadata-listen", service.address, "metadata of "+service.instance+" on", sim.Metadata(service.instance)); err != nil {
			return err
		}
	}
	all, ctx := errgroup.WithContext(ctx)
	for _, d := range doors {
		all.Go(func() error { return d.serve(ctx, sim.Connected) })
	}
	return all.Wait()
}

// simulator returns the simulated ECS, whose disks have bodies if there is a directory for them, and what ends these.
func simulator(o options) (*ecssim.Server, func() error, error) {
	if o.bodies == "" {
		sim, err := ecssim.New(o.config)
		return sim, func() error { return nil }, inFlags(err)
	}
	failed := func(err error) { klog.ErrorS(err, "The bodies of disks can't be updated") }
	var keeper *bodies.Keeper
	o.config.BeforeReply = func() {
		if err := keeper.Update(); err != nil {
			failed(err)
		}
	}
	sim, err := ecssim.New(o.config)
	if err != nil {
		return nil, nil, inFlags(err)
	}
	if keeper, err = bodies.New(sim, o.bodies, o.links, failed); err != nil {
		return nil, nil, fmt.Errorf("--bodies: %w", err)
	}
	return sim, keeper.Close, nil
}

// door is a listener, and what answers there.
type door struct {
	listener net.Listener
	handler  http.Handler
}

// serve answers until ctx is done, then gives requests under way a second.
func (d door) serve(ctx context.Context, connected func(context.Context, net.Conn) context.Context) error {
	server := &http.Server{Handler: d.handler, ConnContext: connected, ReadHeaderTimeout: 10 * time.Second}
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
