package lab

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Replicas are drivers of one ecs-simulator, without a cluster. Both are the shipped programs.
type Replicas struct {
	Simulator *Simulator
	programs  string // directory
	dir       string
	processes *Processes
	running   map[string]*Process
}

// StartReplicas starts a simulator in region with args, whose logs and sockets are in dir: a short path, for sockets.
func StartReplicas(ctx context.Context, programs, dir, region string, args ...string) (*Replicas, error) {
	var port int
	if err := freePorts(&port); err != nil {
		return nil, err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	r := &Replicas{Simulator: newSimulator("http://" + address), programs: programs, dir: dir, processes: newProcesses(dir, false), running: map[string]*Process{}}
	err := r.start(ctx, simulatorName, simulatorName, r.Simulator.URL+"/_sim/state", append([]string{"--listen=" + address, "--region=" + region}, args...))
	return r, err
}

// StartDriver starts a driver under a name of its own, and returns when it answers.
func (r *Replicas) StartDriver(ctx context.Context, name, region string) error {
	var port int
	if err := freePorts(&port); err != nil {
		return err
	}
	page := fmt.Sprintf("127.0.0.1:%d", port)
	return r.start(ctx, name, driverName, "http://"+page+"/healthz", []string{
		"--endpoint=unix://" + r.Socket(name), "--region=" + region, "--cluster-id=lab", "--ecs-endpoint=" + r.Simulator.URL, "--node-facts=false", "--http-endpoint=" + page, "--v=4",
	})
}

func (r *Replicas) start(ctx context.Context, name, program, health string, args []string) error {
	proc, err := r.processes.start(command{
		name: name, path: filepath.Join(r.programs, program), args: args,
		env: signing(),
	})
	if err != nil {
		return err
	}
	r.running[name] = proc
	return r.processes.awaitHealth(ctx, &http.Client{Timeout: 5 * time.Second}, proc, health, "")
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
	proc, err := r.processes.start(command{name: name, path: path, args: filled(args), env: append(signing(), filled(env)...)})
	if err != nil {
		return err
	}
	r.running[name] = proc
	for {
		if info, err := os.Stat(r.Socket(name)); err == nil && info.Mode()&os.ModeSocket != 0 {
			return nil
		}
		select {
		case <-proc.done:
			return fmt.Errorf("%s has ended: %w; its log is %s", name, proc.err, proc.Log)
		case <-ctx.Done():
			return fmt.Errorf("%s makes no socket: %w; its log is %s", name, ctx.Err(), proc.Log)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// signing is the environment by which a program signs as the lab's account.
func signing() []string {
	return []string{"ALIBABA_CLOUD_ACCESS_KEY_ID=" + KeyID, "ALIBABA_CLOUD_ACCESS_KEY_SECRET=" + Secret}
}

// Socket is where the driver of that name serves CSI.
func (r *Replicas) Socket(name string) string { return filepath.Join(r.dir, name+".sock") }

// EndDriver sends a signal to the driver of that name, which need not end at once.
func (r *Replicas) EndDriver(name string, sig syscall.Signal) error {
	r.processes.forget(r.running[name])
	return r.running[name].signal(sig)
}

// Stop ends all that runs. An error tells what has ended by itself.
func (r *Replicas) Stop() error {
	err := r.processes.ended()
	for name, proc := range r.running {
		if name != simulatorName {
			proc.end(syscall.SIGKILL)
		}
	}
	if stopErr := r.processes.stopAll(); err == nil {
		err = stopErr
	}
	return err
}
