package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
)

// fault is what happens once in a round.
type fault struct {
	at   float64 // when it begins, as a part of the round
	name string
	in   string // livingOn, withRestarts, or empty for all rounds
	do   func(*environment, context.Context) error
}

// withRestarts stands for the parts of a soak that are not livingOn.
const withRestarts = "with restarts"

// isIn says whether the fault happens in a part of a soak.
func (f fault) isIn(part string) bool {
	return f.in == "" || f.in == part || f.in == withRestarts && part != livingOn
}

// faults are those of a round, in their order. Where what is installed is restarted by rollouts, and the leader killed, no
// process lives long enough to show a leak of memory. So that is left to the first and last rounds; in those between, the
// driver is killed beside a provisioner that lives on, the API server stands still for less than a Lease lasts, and the node
// plugin of one node alone is killed.
var faults = []fault{
	{0.05, "ECS throttles a third of the calls", "", ecsFault(ecssim.Fault{Do: ecssim.FaultThrottle, Percent: 33})},
	{0.15, "ECS answers a third of the calls with 503", "", ecsFault(ecssim.Fault{Do: ecssim.FaultBrownOut, Percent: 33})},
	{0.25, "ECS loses every other reply to a change", "", lostReplies},
	{0.35, "a zone sells no disks", "", soldOut},
	{0.45, "kill -9 of the driver beside the leader", livingOn, (*environment).killBeside},
	{0.45, "kill -9 of the leader's driver", withRestarts, (*environment).killLeadersDriver},
	{0.50, "kill -9 of the leader", withRestarts, (*environment).killLeader},
	{0.55, "kill -9 of a node plugin", "", (*environment).killPlugin},
	{0.63, "restart of a kubelet", "", (*environment).restartKubelet},
	{0.72, "the API server stands still for 3 s", livingOn, func(e *environment, ctx context.Context) error {
		return e.lab.Plane.PauseAPIServer(ctx, 3*time.Second)
	}},
	{0.72, "kill -9 of the API server, restart", withRestarts, (*environment).restartAPIServer},
	{0.80, "helm upgrade with other annotations", withRestarts, (*environment).upgrade},
	{0.90, "kubectl rollout restart", withRestarts, (*environment).rolloutRestart},
}

// Nodes by what happens to them: the node plugin is killed on the first, the kubelet restarted on the second, and no disk sold in
// the zone of the third.
const (
	nodeOfPlugin = iota
	nodeOfKubelet
	nodeOfZone
)

// disturb has the faults happen, round by round, until the context ends.
func (e *environment) disturb(ctx context.Context) {
	for round := range e.plan.Rounds {
		say("round %d of %d: %s", round+1, e.plan.Rounds, e.plan.Part(round))
		for _, f := range faults {
			if !f.isIn(e.plan.Part(round)) {
				continue
			}
			at := time.Duration((float64(round) + f.at) * float64(e.plan.Round))
			select {
			case <-time.After(time.Until(e.begin.Add(at))):
			case <-ctx.Done():
				return
			}
			e.happens(context.WithoutCancel(ctx), round, f)
		}
		select {
		case <-time.After(time.Until(e.begin.Add(time.Duration(round+1) * e.plan.Round))):
		case <-ctx.Done():
			return
		}
	}
}

func (e *environment) happens(ctx context.Context, round int, f fault) {
	event := Event{At: e.at(), Round: round, Name: f.name}
	limited, cancel := context.WithTimeout(ctx, 2*installLimit)
	defer cancel()
	if err := f.do(e, limited); err != nil {
		event.Failed = err.Error()
		say("%s FAILED: %v", f.name, err)
	}
	event.Took = e.at() - event.At
	say("%5.1f s  %s", event.Took.Seconds(), f.name)
	if err := e.out.add(eventsFile, event); err != nil {
		say("events: %v", err)
	}
}

// faultLasts is how long ECS misbehaves.
func (e *environment) faultLasts() time.Duration { return e.plan.Round / 16 }

func ecsFault(f ecssim.Fault) func(*environment, context.Context) error {
	return func(e *environment, ctx context.Context) error {
		f.For = e.faultLasts()
		return e.lab.Simulator.AddFault(ctx, f)
	}
}

// changes are the calls that change something.
const changes = "CreateDisk AttachDisk DetachDisk DeleteDisk ResizeDisk CreateSnapshot DeleteSnapshot"

func lostReplies(e *environment, ctx context.Context) error {
	if err := e.lab.Simulator.ClearFaults(ctx); err != nil { // those of the round that are over
		return err
	}
	for _, action := range strings.Fields(changes) {
		f := ecssim.Fault{Action: action, Do: ecssim.FaultLostReply, Percent: 50, For: e.faultLasts()}
		if err := e.lab.Simulator.AddFault(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

func soldOut(e *environment, ctx context.Context) error {
	zone := e.lab.Nodes[nodeOfZone].Zone
	if err := e.lab.Simulator.SellOut(ctx, zone); err != nil {
		return err
	}
	select {
	case <-time.After(e.faultLasts()):
	case <-ctx.Done():
	}
	return e.lab.Simulator.Restock(ctx, zone)
}

// killLeadersDriver ends the driver that the leading provisioner works with.
func (e *environment) killLeadersDriver(ctx context.Context) error {
	leader, err := e.awaitLeader(ctx)
	if err != nil {
		return err
	}
	return e.killProgram(ctx, leader, "disk-driver")
}

func (e *environment) killLeader(ctx context.Context) error {
	leader, err := e.awaitLeader(ctx)
	if err != nil {
		return err
	}
	return e.killProgram(ctx, leader, "disk-provisioner")
}

// awaitLeader waits until a Pod that is there leads.
func (e *environment) awaitLeader(ctx context.Context) (name string, err error) {
	return name, poll(ctx, "a provisioner leads", installLimit, func(ctx context.Context) (bool, error) {
		name, err = e.leader(ctx)
		return err == nil, err
	})
}

// killBeside ends the driver of the same Pod each time: of the one that did not lead at the first time.
func (e *environment) killBeside(ctx context.Context) error {
	pods, err := e.pods(ctx, "controller")
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Name == e.victim }) {
		leader, err := e.awaitLeader(ctx)
		if err != nil {
			return err
		}
		for _, p := range pods {
			if p.Name != leader {
				e.victim = p.Name
			}
		}
		say("from now on the driver of %s is killed", e.victim)
	}
	return e.killProgram(ctx, e.victim, "disk-driver")
}

func (e *environment) killPlugin(ctx context.Context) error {
	pods, err := e.pods(ctx, "node")
	if err != nil {
		return err
	}
	for _, p := range pods {
		if p.Spec.NodeName == e.lab.Nodes[nodeOfPlugin].Name {
			return e.killProgram(ctx, p.Name, "disk-driver")
		}
	}
	return fmt.Errorf("node %s has no node plugin", e.lab.Nodes[nodeOfPlugin].Name)
}

func (e *environment) restartKubelet(ctx context.Context) error {
	node := e.lab.RealNode(e.lab.Nodes[nodeOfKubelet].Name)
	node.StopProgram(lab.Kubelet, true)
	return node.StartProgram(ctx, lab.Kubelet)
}

// restartAPIServer gives the API server longer than the lab does: it has a load to take on again.
func (e *environment) restartAPIServer(ctx context.Context) error {
	if e.lab.Plane.RestartAPIServer(ctx) == nil {
		return nil
	}
	return poll(ctx, "the API server is ready", installLimit, func(ctx context.Context) (bool, error) {
		_, err := e.lab.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil, err
	})
}

// upgrade has helm give all Pods another annotation, which replaces them.
func (e *environment) upgrade(ctx context.Context) error {
	stamp := time.Now().UTC().Format("150405")
	if err := e.helm(ctx, "upgrade", "--set-string=controller.podAnnotations.soak="+stamp, "--set-string=nodePlugin.podAnnotations.soak="+stamp); err != nil {
		return err
	}
	return e.awaitRollout(ctx)
}

func (e *environment) rolloutRestart(ctx context.Context) error {
	if err := e.kubectl(ctx, "--namespace="+home, "rollout", "restart", "deployment/topodisk-controller", "daemonset/topodisk-node"); err != nil {
		return err
	}
	return e.awaitRollout(ctx)
}

func (e *environment) awaitRollout(ctx context.Context) error {
	for _, object := range []string{"deployment/topodisk-controller", "daemonset/topodisk-node"} {
		if err := e.kubectl(ctx, "--namespace="+home, "rollout", "status", object, "--timeout="+installLimit.String()); err != nil {
			return err
		}
	}
	return e.awaitInstalled(ctx)
}
