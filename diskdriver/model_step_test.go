package diskdriver

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

// A walk is a list of lines. The first one names what kind of ECS it is in; each
// of the others is a step:
//
//	CALL | CALL...            calls at the same time, each of another volume
//	crash DURATION CALL | CALL...   the driver dies so long after they began, and starts anew
//	failover DURATION CALL | CALL...   it dies, and the other replica takes over
//	handover DURATION CALL | CALL...   the other replica takes over, and what the first sent last arrives late
//	network SEED VOLUME|- stale...   for a minute requests that attach and detach are late, lost or doubled, reads leave out the volume and are behind
//	fault..., instance..., stock..., advance...   as in stories
//	by-hand VOLUME            peace, and then somebody takes its disk from its node and gives it back
//	peace                     ECS is well again, and what is open is ended
//
// A call is a command of stories on volumes v0, v1..., snapshots s0... and groups
// g0..., which has no effect if nothing would ask for it now. So a walk without
// some of its steps is a walk as well.

// The things of a walk, and what each volume is. A class that names no size is
// for copies.
var (
	walkVolumes = map[string]string{
		"v0": "type=cloud_essd size=20Gi",
		"v1": "type=cloud_auto provisionedIops=500 size=20Gi",
		"v2": "type=cloud_essd size=20Gi multiAttach=true mode=MULTI_NODE_MULTI_WRITER block",
		"v3": "type=cloud_essd,cloud_auto size=20Gi",
		"v4": "type=cloud_ssd,cloud_auto size=30Gi",
		"v5": "type=cloud_regional_disk_auto size=20Gi",
		"v6": "type=cloud_essd size=40Gi",
		"v7": "type=cloud_efficiency size=20Gi diskTags/team=a",
	}
	walkSnapshots = []string{"s0", "s1", "s2"}
	walkGroups    = []string{"g0", "g1"}
	walkNodes     = []string{"i-a1", "i-a2", "i-small", "i-nvme1", "i-nvme2", "i-b1"}
	walkMutations = []string{
		"CreateDisk", "DeleteDisk", "AttachDisk", "DetachDisk", "ResizeDisk", "ModifyDiskSpec", "ModifyDiskAttribute",
		"TagResources", "UntagResources", "CreateSnapshot", "DeleteSnapshot", "CreateSnapshotGroup", "DeleteSnapshotGroup",
	}
	walkReads = []string{"DescribeDisks", "DescribeSnapshots", "DescribeSnapshotGroups", "DescribeTasks", "DescribeAvailableResource"}
)

// mostLag is how far reads may be behind.
const mostLag = 8 * time.Second

// generator makes up steps. It keeps to what would be there if all went well, so
// that most calls have something to work on.
type generator struct {
	*rand.Rand
	there  map[string]bool
	on     map[string]string // node by volume
	peaces int
	queue  []string // the next steps
	follow []string // the next calls: about what was under way when another replica took over
}

// randomSteps makes up a walk: the same one for the same seed.
func randomSteps(seed uint64, n int) []string {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), there: map[string]bool{}, on: map[string]string{}}
	steps := []string{g.ecs(seed)}
	for calls := 0; calls < n; {
		step, count := g.step()
		steps = append(steps, step)
		calls += count
	}
	return steps
}

// ecs is the first line.
func (g *generator) ecs(seed uint64) string {
	words := []string{fmt.Sprintf("ecs seed=%d", seed), pick(g, "serial", "parallel"), pick(g, "", "", "tight"), pick(g, "", "", "slow")}
	for _, a := range anomalies {
		if g.IntN(3) == 0 {
			words = append(words, a.name)
		}
	}
	for _, d := range doubts {
		if g.IntN(4) == 0 {
			words = append(words, d.name)
		}
	}
	return strings.Join(strings.Fields(strings.Join(words, " ")), " ")
}

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

// step makes up one step, and says how many calls and events it is.
func (g *generator) step() (string, int) {
	if len(g.follow) > 0 {
		step, count := strings.Join(g.follow, " | "), len(g.follow)
		g.follow = nil
		return step, count
	}
	if len(g.queue) > 0 {
		step := g.queue[0]
		g.queue = g.queue[1:]
		return step, 1
	}
	switch n := g.IntN(100); {
	case n < 2:
		return g.network(), 1
	case n < 4:
		g.peaces++
		return []string{"peace", fmt.Sprintf("by-hand v%d", g.peaces/2%len(walkVolumes))}[g.peaces%2], 1
	case n < 15:
		return g.fault(), 1
	case n < 18:
		return "advance " + pick(g, "1s", "5s", "20s", "70s", "20m", "2h"), 1
	case n < 21:
		return fmt.Sprintf("stock %s %s %d", pick(g, "a", "b", "c"), pick(g, "cloud_essd", "cloud_auto", "cloud_ssd"), pick(g, 0, 0, 1, 1000)), 1
	case n < 24:
		return fmt.Sprintf("instance %s %s", pick(g, walkNodes...), pick(g, "stopped", "running", "running", "gone")), 1
	case n < 34:
		calls, count := g.calls()
		return fmt.Sprintf("%s %dms %s", pick(g, "crash", "failover"), 100*g.IntN(80), calls), count + 1
	case n < 46:
		return g.takeOver()
	}
	return g.calls()
}

// calls makes up calls at the same time.
func (g *generator) calls() (string, int) {
	count := pick(g, 1, 1, 1, 2, 3, 4)
	var calls []string
	for range count {
		calls = append(calls, g.call())
	}
	return strings.Join(calls, " | "), count
}

// takeOver makes up attaches and detaches during which another replica takes over, which is then asked about the same disks.
func (g *generator) takeOver() (string, int) {
	var calls []string
	for range 1 + g.IntN(3) {
		v := pick(g, g.volume(), "v2", "v2")
		node := g.on[v]
		if node != "" && g.IntN(2) == 0 {
			calls = append(calls, g.unpublish(v))
		} else {
			calls = append(calls, g.publish(v))
			node = g.on[v]
		}
		if g.IntN(2) == 0 {
			g.on[v] = ""
			g.follow = append(g.follow, "unpublish "+v+" "+node)
		} else {
			g.follow = append(g.follow, g.publish(v))
		}
	}
	return fmt.Sprintf("%s %dms %s", pick(g, "failover", "handover"), pick(g, 50, 200, 500, 100*g.IntN(80)), strings.Join(calls, " | ")), 2 * len(calls)
}

// network makes up attaches and detaches of a few disks over a bad network, during which the driver may die or another replica take over.
func (g *generator) network() string {
	volumes := []string{g.volume(), "v0"}
	call := func() string {
		v := pick(g, volumes...)
		if g.on[v] != "" && g.IntN(2) == 0 {
			return g.unpublish(v) + pick(g, "", " timeout=5s", " timeout=15s")
		}
		return g.publish(v) + pick(g, "", " timeout=5s", " timeout=15s")
	}
	for range 4 + g.IntN(8) {
		step := call()
		if g.IntN(3) == 0 {
			step = fmt.Sprintf("%s %dms %s", pick(g, "crash", "failover", "handover"), 100*g.IntN(60), step)
		}
		g.queue = append(g.queue, step)
		if g.IntN(3) == 0 {
			g.queue = append(g.queue, "advance "+pick(g, "1s", "5s", "20s"))
		}
	}
	g.queue = append(g.queue, "advance 70s")
	return fmt.Sprintf("network %d %s stale action=DescribeDisks lag=%s count=0 percent=%d for=60s", g.Uint64(), pick(g, "-", volumes[0], "v0"), pick(g, "1s", "10s", "60s"), pick(g, 10, 50, 100))
}

func (g *generator) call() string {
	call := g.work()
	if g.IntN(4) == 0 {
		call += pick(g, " timeout=2s", " timeout=5s", " timeout=15s")
	}
	return call
}

// work makes up a call of a volume, a snapshot or a group, or a read.
func (g *generator) work() string {
	switch n := g.IntN(100); {
	case n < 8:
		return pick(g, "list", "list-snapshots", "sweep", "capacity zones=a type=cloud_essd", "get "+g.volume())
	case n < 22:
		return g.snapshot()
	case n < 28:
		return g.group()
	}
	v := g.volume()
	switch {
	case !g.there[v]:
		g.there[v] = true
		return g.create(v)
	case g.on[v] != "" && g.IntN(3) == 0:
		return g.unpublish(v)
	}
	switch n := g.IntN(20); {
	case n < 9:
		return g.publish(v)
	case n < 11:
		return "expand " + v + " size=" + pick(g, "25Gi", "30Gi", "45Gi", "60Gi")
	case n < 13:
		return "modify " + v + " " + pick(g, "performanceLevel=PL0", "performanceLevel=PL1", "type=cloud_auto", "provisionedIops=800", "burstingEnabled=true", "diskTags/team=b", "-diskTags/team=")
	case n < 14:
		return g.create(v)
	case g.on[v] != "" && n < 18: // a volume that is in use is hardly ever to be deleted
		return "get " + v
	}
	delete(g.there, v)
	return "delete " + v
}

func (g *generator) volume() string { return fmt.Sprintf("v%d", g.IntN(len(walkVolumes))) }

func (g *generator) create(v string) string {
	call := "create " + v + " zones=" + pick(g, "a", "a", "a,b", "b,a", "b", "a,b,c")
	switch g.IntN(6) {
	case 0:
		call += " source=" + g.volume()
	case 1:
		call += " source=" + pick(g, walkSnapshots...)
	}
	return call
}

func (g *generator) publish(v string) string {
	node := pick(g, "i-a1", "i-a1", "i-a2", "i-small", "i-b1")
	if v == "v2" {
		node = pick(g, "i-nvme1", "i-nvme2")
	}
	if g.on[v] != "" && g.IntN(3) > 0 {
		node = g.on[v]
	}
	g.on[v] = node
	return "publish " + v + " " + node + pick(g, "", "", "", "", " ro")
}

func (g *generator) unpublish(v string) string {
	node := pick(g, g.on[v], g.on[v], "")
	delete(g.on, v)
	return strings.TrimSpace("unpublish " + v + " " + node)
}

func (g *generator) snapshot() string {
	s := pick(g, walkSnapshots...)
	if g.there[s] && g.IntN(2) == 0 {
		delete(g.there, s)
		return "delete-snapshot " + s
	}
	g.there[s] = true
	return "snapshot " + s + " " + g.volume()
}

func (g *generator) group() string {
	name := pick(g, walkGroups...)
	if g.there[name] && g.IntN(2) == 0 {
		delete(g.there, name)
		return "delete-group " + name
	}
	g.there[name] = true
	return "group " + name + " " + pick(g, "v0,v6", "v0", "v3,v6", "v1,v3")
}

// fault makes up a misbehaviour that ends by itself.
func (g *generator) fault() string {
	kinds, action, more := []string{
		ecssim.FaultError, ecssim.FaultThrottle, ecssim.FaultLostRequest, ecssim.FaultLostReply, ecssim.FaultLostReply, ecssim.FaultErrorAfter, ecssim.FaultTruncated,
		ecssim.FaultEmpty, ecssim.FaultHTML, ecssim.FaultBrownOut, ecssim.FaultRefused, ecssim.FaultReset,
	}, pick(g, walkMutations...), ""
	switch n := g.IntN(20); {
	case n < 5:
		action = pick(g, walkReads...)
	case n < 6:
		action, kinds, more = "DescribeDisks", []string{ecssim.FaultStale}, " lag="+pick(g, "1s", "4s", "8s")
	case n < 8:
		kinds, more = []string{ecssim.FaultDelay}, pick(g, " delay-before=4s", " delay-after=10s", " delay-after=40s")
	case n < 9:
		kinds, more = []string{ecssim.FaultTrickle}, " delay-after=8s"
	case n < 10:
		kinds = []string{ecssim.FaultDuplicate}
	case n < 11:
		action, kinds = pick(g, "CreateDisk", "CreateSnapshot", "CreateSnapshotGroup", "ResizeDisk", "DeleteDisk"), []string{ecssim.FaultEcho}
	case n < 13:
		action, kinds = pick(g, "AttachDisk", "DetachDisk", "CreateSnapshot", "ModifyDiskSpec"), []string{ecssim.FaultFails, ecssim.FaultStuck}
	}
	fault := fmt.Sprintf("fault %s action=%s%s", pick(g, kinds...), action, more)
	if g.IntN(2) == 0 {
		return fault + fmt.Sprintf(" count=%d", 1+g.IntN(3))
	}
	return fault + fmt.Sprintf(" count=0 percent=%d for=%s", pick(g, 20, 50), pick(g, "20s", "60s"))
}
