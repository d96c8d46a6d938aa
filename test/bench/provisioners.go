package main

import (
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/audit"
	"github.com/topodisk/topodisk/test/lab/process"
	"github.com/topodisk/topodisk/topology"
)

// provisioner is one of the two provisioners.
type provisioner struct {
	name string // of the program, which is how its requests begin to tell who sends them
	path string
}

// environment is the control plane on which both provisioners run.
type environment struct {
	*lab.Lab
	ours, upstream provisioner
	audit          *audit.Log
	classes        int
	driverOf       map[string]string // by class
	runs           int
}

// both returns the provisioners, ours first.
func (e *environment) both() []provisioner { return []provisioner{e.ours, e.upstream} }

// inTurn returns the same with their numbers, in a round that begins with the one that the round before has ended with.
func (e *environment) inTurn(round int) iter.Seq2[int, provisioner] {
	return func(yield func(int, provisioner) bool) {
		for k := range 2 {
			if i := (round + k) % 2; !yield(i, e.both()[i]) {
				return
			}
		}
	}
}

// start runs a provisioner with further flags.
func (e *environment) start(p provisioner, args ...string) (*process.Process, error) {
	return e.run(p.name, p.path, e.flags(args))
}

// startOn is start on a host of that name: csi-provisioner's replicas take themselves for one if they share it.
func (e *environment) startOn(host string, p provisioner, args ...string) (*process.Process, error) {
	const script = `hostname "$0" && exec "$@"`
	return e.run(p.name, "unshare", append([]string{"--map-root-user", "--uts", "sh", "-c", script, host, p.path}, e.flags(args)...))
}

func (e *environment) flags(more []string) []string {
	return append([]string{"--csi-address=" + socketIn(e.Dir, benchDriver), "--kubeconfig=" + e.Kubeconfig, "--leader-election-namespace=kube-system"}, more...)
}

func (e *environment) run(name, path string, args []string) (*process.Process, error) {
	e.runs++
	return e.StartProgram(fmt.Sprintf("%s-%d", name, e.runs), path, args...)
}

// unlimited are flags under which the client's own limit plays no part.
var unlimited = []string{"--kube-api-qps=100000", "--kube-api-burst=100000"}

// memoryOf is a program's resident memory in bytes: VmRSS as it is, or VmHWM at its peak.
func memoryOf(p *process.Process, name string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("the status of process %d has no %s", p.Pid(), name)
}

// zoneLabel is the one topology key of the nodes.
const zoneLabel = topology.WellKnownZoneKey

// socketIn is the socket of the driver of a name.
func socketIn(dir, name string) string { return filepath.Join(dir, name+".sock") }

// sleepFor waits for what has no sign of its end.
func sleepFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
