package simulator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/topodisk/topodisk/test/lab/process"
)

// Replicas are drivers of one ecs-simulator, without a cluster. Both are the shipped programs.
type Replicas struct {
	Simulator *Client
	programs  string // directory
	dir       string
	region    string
	processes *process.Group
	running   map[string]*process.Process // drivers
}

// StartReplicas starts a simulator in region with args, whose logs and sockets are in dir: a short path, for sockets.
func StartReplicas(ctx context.Context, programs, dir, region string, args ...string) (*Replicas, error) {
	r := &Replicas{programs: programs, dir: dir, region: region, processes: process.NewGroup(dir, false), running: map[string]*process.Process{}}
	var err error
	r.Simulator, err = Start(ctx, r.processes, process.Command{Path: filepath.Join(programs, Program), Args: args}, "127.0.0.1", region)
	return r, err
}

// Start starts an ecs-simulator in a region, which serves on a free port of a host, and returns it when it answers.
func Start(ctx context.Context, g *process.Group, c process.Command, host, region string) (*Client, error) {
	var port int
	if err := process.FreePorts(&port); err != nil {
		return nil, err
	}
	address := fmt.Sprintf("%s:%d", host, port)
	c.Name = Program
	c.Args = append([]string{
		"--listen=" + address, "--region=" + region, "--access-key=" + KeyID + "=" + Secret, "--access-key=" + OperatorID + "=" + OperatorSecret,
	}, c.Args...)
	proc, err := g.Start(c)
	if err != nil {
		return nil, err
	}
	client := New("http://" + address)
	return client, g.AwaitPage(ctx, proc, client.URL+"/_sim/state")
}

// StartDriver starts a driver under a name of its own, and returns when it answers.
func (r *Replicas) StartDriver(ctx context.Context, name string) error {
	proc, err := r.processes.Serve(ctx, process.Command{Name: name, Path: filepath.Join(r.programs, DriverProgram), Env: CredentialsEnv(), Args: []string{
		"--endpoint=unix://" + r.Socket(name), "--region=" + r.region, "--cluster-id=" + ClusterID, "--ecs-endpoint=" + r.Simulator.URL,
		"--node-facts=false", "--v=4",
	}}, "/healthz")
	if proc != nil {
		r.running[name] = proc
	}
	return err
}

// StartProgram starts another CSI driver under a name of its own, and returns when its socket is there. Its args are
// filled.
func (r *Replicas) StartProgram(ctx context.Context, name, path string, args []string) error {
	c := process.Command{Name: name, Path: path, Env: CredentialsEnv(), Args: r.Simulator.Fill(args, r.Socket(name), r.region)}
	proc, err := r.processes.Start(c)
	if err != nil {
		return err
	}
	r.running[name] = proc
	return r.processes.Await(ctx, name+" serves its socket", process.StartLimit, func(context.Context) (bool, error) {
		info, err := os.Stat(r.Socket(name))
		return err == nil && info.Mode()&os.ModeSocket != 0, err
	})
}

// Fill puts values in the place of what stands for them in a program's arguments: {socket}, {region}, {ecs} for the HOST:PORT of the
// simulator, and more, which are pairs.
func (c *Client) Fill(args []string, socket, region string, more ...string) (filled []string) {
	fill := strings.NewReplacer(append(more, "{socket}", socket, "{region}", region, "{ecs}", strings.TrimPrefix(c.URL, "http://"))...)
	for _, arg := range args {
		filled = append(filled, fill.Replace(arg))
	}
	return filled
}

// CredentialsEnv is the environment by which a program signs as the lab's account.
func CredentialsEnv() []string {
	return []string{"ALIBABA_CLOUD_ACCESS_KEY_ID=" + KeyID, "ALIBABA_CLOUD_ACCESS_KEY_SECRET=" + Secret}
}

// Driver is the process of the driver of that name.
func (r *Replicas) Driver(name string) *process.Process { return r.running[name] }

// Socket is where the driver of that name serves CSI.
func (r *Replicas) Socket(name string) string { return filepath.Join(r.dir, name+".sock") }

// EndDriver sends a signal to the driver of that name, which need not end at once.
func (r *Replicas) EndDriver(name string, sig syscall.Signal) error {
	r.processes.Forget(r.running[name])
	return r.running[name].Signal(sig)
}

// Stop ends all that runs. An error tells what has ended by itself.
func (r *Replicas) Stop() error {
	err := r.processes.Failure()
	for _, proc := range r.running {
		r.processes.StopProgram(proc, true)
	}
	return errors.Join(err, r.processes.StopAll())
}
