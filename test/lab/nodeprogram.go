package lab

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/topodisk/topodisk/test/lab/process"
)

// start runs a program on the node.
func (n *RealNode) start(name, path string, args ...string) error {
	return n.startWith(nil, name, path, args...)
}

// startWith runs it with more variables in its environment.
func (n *RealNode) startWith(env []string, name, path string, args ...string) error {
	if n.Off() {
		return fmt.Errorf("node %s is off", n.Name)
	}
	if n.run[name] != nil {
		return fmt.Errorf("%s of %s runs already", name, n.Name)
	}
	proc, err := n.lab.Start(process.Command{Name: name + "-" + n.Name, Path: path, Args: args, Env: env, Node: n.init.Pid()})
	if err != nil {
		return err
	}
	n.run[name] = proc
	return nil
}

// Runs says whether one of the node's programs is started.
func (n *RealNode) Runs(name string) bool { return n.run[name] != nil }

// StartProgram starts one of the node's programs again that was stopped.
func (n *RealNode) StartProgram(ctx context.Context, name string) error {
	switch name {
	case Kubelet:
		return n.startKubelet(ctx)
	case Containerd:
		return n.startContainerd(ctx)
	default:
		return n.StartPlugin()
	}
}

// StopProgram ends one of the node's programs, with SIGTERM, or with SIGKILL if kill is set.
func (n *RealNode) StopProgram(name string, kill bool) {
	if proc := n.run[name]; proc != nil {
		n.lab.StopProgram(proc, kill)
		delete(n.run, name)
	}
}

// Terminate sends SIGTERM to one of the node's programs and returns a function that waits for its end, however long that
// takes, and returns how long it took.
func (n *RealNode) Terminate(name string) (ended func(context.Context) (time.Duration, error), err error) {
	proc, begin := n.run[name], time.Now()
	if proc == nil {
		return nil, fmt.Errorf("%s of %s doesn't run", name, n.Name)
	}
	n.lab.Forget(proc)
	delete(n.run, name)
	return func(ctx context.Context) (time.Duration, error) {
		select {
		case <-proc.Done():
			return time.Since(begin), proc.Err()
		case <-ctx.Done():
			n.lab.StopProgram(proc, true)
			return 0, fmt.Errorf("%s of %s goes on after SIGTERM: %w", name, n.Name, ctx.Err())
		}
	}, proc.Signal(syscall.SIGTERM)
}
