package simulator

import (
	"context"
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
	processes *process.Group
	running   map[string]*process.Process
}

// StartReplicas starts a simulator in region with args, whose logs and sockets are in dir: a short path, for sockets.
func StartReplicas(ctx context.Context, programs, dir, region string, args ...string) (*Replicas, error) {
	var port int
	if err := process.FreePorts(&port); err != nil {
		return nil, err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	r := &Replicas{Simulator: New("http://" + address), programs: programs, dir: dir, processes: process.NewGroup(dir, false), running: map[string]*process.Process{}}
	err := r.start(ctx, Program, Program, r.Simulator.URL+"/_sim/state", append([]string{"--listen=" + address, "--region=" + region}, args...))
	return r, err
}

// StartDriver starts a driver under a name of its own, and returns when it answers.
func (r *Replicas) StartDriver(ctx context.Context, name, region string) error {
	var port int
	if err := process.FreePorts(&port); err != nil {
		return err
	}
	page := fmt.Sprintf("127.0.0.1:%d", port)
	return r.start(ctx, name, DriverProgram, "http://"+page+"/healthz", []string{
		"--endpoint=unix://" + r.Socket(name), "--region=" + region, "--cluster-id=" + ClusterID, "--ecs-endpoint=" + r.Simulator.URL,
		"--node-facts=false", "--http-endpoint=" + page, "--v=4",
	})
}

func (r *Replicas) start(ctx context.Context, name, program, health string, args []string) error {
	proc, err := r.run(process.Command{Name: name, Path: filepath.Join(r.programs, program), Args: args, Env: Signing()})
	if err != nil {
		return err
	}
	return r.processes.AwaitPage(ctx, proc, health)
}

func (r *Replicas) run(c process.Command) (*process.Process, error) {
	proc, err := r.processes.Start(c)
	if err == nil {
		r.running[c.Name] = proc
	}
	return proc, err
}

// StartProgram starts another CSI driver under a name of its own, and returns when its socket is there. In args and env
// {socket} stands for the socket, {region} for the region and {ecs} for the HOST:PORT of the simulator.
func (r *Replicas) StartProgram(ctx context.Context, name, region, path string, args, env []string) error {
	fill := strings.NewReplacer("{socket}", r.Socket(name), "{region}", region, "{ecs}", strings.TrimPrefix(r.Simulator.URL, "http://"))
	filled := func(texts []string) (all []string) {
		for _, text := range texts {
			all = append(all, fill.Replace(text))
		}
		return all
	}
	if _, err := r.run(process.Command{Name: name, Path: path, Args: filled(args), Env: append(Signing(), filled(env)...)}); err != nil {
		return err
	}
	return r.processes.Await(ctx, name+" serves its socket", process.StartLimit, func(context.Context) (bool, error) {
		info, err := os.Stat(r.Socket(name))
		return err == nil && info.Mode()&os.ModeSocket != 0, err
	})
}

// Signing is the environment by which a program signs as the lab's account.
func Signing() []string {
	return []string{"ALIBABA_CLOUD_ACCESS_KEY_ID=" + KeyID, "ALIBABA_CLOUD_ACCESS_KEY_SECRET=" + Secret}
}

// Socket is where the driver of that name serves CSI.
func (r *Replicas) Socket(name string) string { return filepath.Join(r.dir, name+".sock") }

// EndDriver sends a signal to the driver of that name, which need not end at once.
func (r *Replicas) EndDriver(name string, sig syscall.Signal) error {
	r.processes.Forget(r.running[name])
	return r.running[name].Signal(sig)
}

// Stop ends all that runs. An error tells what has ended by itself.
func (r *Replicas) Stop() error {
	err := r.processes.Failed()
	for name, proc := range r.running {
		if name != Program {
			r.processes.Stop(proc, syscall.SIGKILL)
		}
	}
	if stopErr := r.processes.StopAll(); err == nil {
		err = stopErr
	}
	return err
}
