package diskdriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/topodisk/topodisk/diskdriver/attachment"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/ecssim"
)

// world is a simulated ECS, the driver's two replicas, and what the
// model knows.
type world struct {
	story  // reads commands
	model  *model
	now    *process // has the calls
	spare  *process // would take over
	net    network
	calm   bool // in peace, where a refusal says that there is nothing
	scarce bool // something is sold out, or was
	// repeats says that ECS may have bound a token to its refusal to create a
	// disk, which was sold out. Then it repeats that, whatever there is now, for
	// as long as it knows the token: which is longer than a walk.
	repeats bool
	stale   bool            // reads may lag
	lag     time.Duration   // by so much at most
	echoes  bool            // a delete that was refused may come again by itself, and be done
	fails   map[string]bool // actions of which something may fail after it was accepted
	told    []string
}

// process is a process of the driver. When it is dead, nothing that it has under
// way reaches ECS any more.
type process struct {
	active time.Time // since when it has the calls
	caller any       // csi-attacher's connection
	left   time.Time // when the last of its calls ended
	driver *Driver
	ctx    context.Context
	cancel context.CancelFunc
	dead   atomic.Bool

	deposed atomic.Bool // another replica has taken over, and what this one sends yet travels for long
	net     *network
}

// RoundTrip is the way of a process to ECS.
func (p *process) RoundTrip(req *http.Request) (*http.Response, error) {
	if p.dead.Load() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	if !p.deposed.Load() {
		return p.net.carry(req)
	}
	sent, _ := twice(req)
	p.net.late.Go(func() {
		time.Sleep(travels)
		_, _ = p.net.sim.RoundTrip(sent)
	})
	<-req.Context().Done()
	return nil, req.Context().Err()
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// newWorld makes the ECS of a walk's first line.
func newWorld(t *testing.T, line string) *world {
	w := &world{story: story{t: t, key: "secret"}, model: newModel(), fails: map[string]bool{}}
	w.config = ecssim.Config{
		Region: "cn-hangzhou", Zones: []string{"cn-hangzhou-a", "cn-hangzhou-b", "cn-hangzhou-c"}, AccessKeys: map[string]string{"story": "secret"},
		InstanceTypes: []ecssim.InstanceType{{ID: "ecs.tiny.small", DiskQuantity: 3, NVMe: "unsupported"}},
		Latency: ecssim.Latency{
			API:       map[string]time.Duration{"": 200 * time.Millisecond, "DescribeDisks": 100 * time.Millisecond},
			Available: time.Second, Attach: 2 * time.Second, Detach: 3 * time.Second, Order: time.Second, Modify: 20 * time.Second,
			SnapshotCut: 2 * time.Second, SnapshotUsable: 4 * time.Second, SnapshotDone: 30 * time.Second, CoolCategory: 10 * time.Minute,
		},
		Doubts: ecssim.Doubts{SnapshotUnattached: usually},
	}
	for _, node := range walkNodes {
		w.config.Instances = append(w.config.Instances, walkInstance(node))
	}
	for _, word := range strings.Fields(line)[1:] {
		w.set(word)
	}
	var err error
	w.sim, err = ecssim.New(w.config)
	w.must(err)
	w.net.sim = w.sim
	w.now, w.spare = w.process(), w.process()
	w.foreign()
	underPolicy(w.t, w.sim, cluster)
	return w
}

// set reads one word of a walk's first line.
func (w *world) set(word string) {
	name, value, _ := strings.Cut(word, "=")
	switch name {
	case "seed":
		n, err := strconv.ParseUint(value, 10, 32)
		w.must(err)
		w.config.Seed = uint32(n)
		return
	case "serial":
		w.config.Queues = ecssim.Serial
		return
	case "parallel":
		w.config.Queues = ecssim.Parallel
		return
	case "slow":
		w.config.Latency.Attach, w.config.Latency.Detach = 8*time.Second, 100*time.Second
		return
	case "tight":
		var err error
		w.config.Throttle, err = ecssim.ThrottleProfile("tight")
		w.must(err)
		return
	}
	for _, o := range everyOtherwise() {
		if o.name == word {
			o.apply(&w.config)
			return
		}
	}
	w.t.Fatalf("%q is nothing that ECS could be", word)
}

// walkInstance is the node of a name: i-, its kind, and its zone if that is not a.
func walkInstance(id string) ecssim.Instance {
	i := ecssim.Instance{ID: id, Zone: "cn-hangzhou-a", Type: "ecs.g6.large"}
	switch {
	case strings.Contains(id, "nvme"):
		i.Type = "ecs.g7se.large"
	case strings.Contains(id, "small"):
		i.Type = "ecs.tiny.small"
	case strings.Contains(id, "-b"):
		i.Zone = "cn-hangzhou-b"
	}
	return i
}

// foreign makes a disk of somebody else: to whom ECS shows no disk at all nothing
// is said to be absent.
func (w *world) foreign() {
	client, err := ecs.NewClient(ecs.Config{Region: w.config.Region, ClusterID: "other", Credentials: &w.story, Transport: w.sim})
	w.must(err)
	_, err = client.Create(w.t.Context(), disk.Spec{Name: "foreign"}, disk.Attempt{Zone: "cn-hangzhou-c", Category: "cloud_ssd", Size: 20}, "foreign")
	w.must(err)
}

// process starts a process of the driver, with nothing remembered.
func (w *world) process() *process {
	p := &process{active: time.Now(), net: &w.net}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	client, err := ecs.NewClient(ecs.Config{Region: w.config.Region, ClusterID: cluster, Credentials: &w.story, Transport: p})
	w.must(err)
	p.driver, err = New(Config{Version: "model", Region: w.config.Region, ClusterID: cluster}, client)
	w.must(err)
	return p
}

const (
	// A replica that has lost its lease is called for so long yet.
	callersGo = 300 * time.Millisecond
	// What it sends meanwhile is on its way for so long. Both are shorter than what a replica that takes over allows for.
	travels = 3 * time.Second
	// The network is bad for so long at a time.
	networkLasts = time.Minute
	// No replica gets its lease back before.
	newLease = 10 * time.Second
)

// takeOver lets the spare replica have the calls.
func (w *world) takeOver() {
	w.now, w.spare = w.spare, w.now
	if wait := newLease - time.Since(w.now.left); !w.now.left.IsZero() && wait > 0 {
		time.Sleep(wait)
	}
	w.now.active, w.now.caller = time.Now(), new(byte)
	w.now.deposed.Store(false)
}

// blind says whether the driver may see ECS as it was before its process had the calls,
// and so not what the one before it did. Of what it did itself it has to know.
func (w *world) blind() bool { return w.stale && time.Since(w.now.active) < w.lag }

// kill ends a process as a crash does.
func (p *process) kill() {
	p.dead.Store(true)
	p.cancel()
}

// take takes a step, and says what must not be and is.
func (w *world) take(step string) error {
	w.told = append(w.told, step)
	verb, rest, _ := strings.Cut(step, " ")
	switch verb {
	case "peace":
		return w.peace()
	case "by-hand":
		return errors.Join(w.takeByHand(w.model.volumes[rest]), w.check())
	case "crash", "failover", "handover":
		after, calls, _ := strings.Cut(rest, " ")
		d, err := time.ParseDuration(after)
		w.must(err)
		return w.calls(calls, verb, d)
	case "fault", "network", "stock", "instance", "advance":
		w.happen(verb, strings.Fields(rest))
		return w.check()
	}
	return w.calls(step, "", 0)
}

// happen lets something happen to ECS.
func (w *world) happen(verb string, words []string) {
	switch verb {
	case "network":
		seed, err := strconv.ParseUint(words[0], 10, 64)
		w.must(err)
		hidden := ""
		if v := w.model.volumes[words[1]]; v != nil {
			hidden = v.id
		}
		w.net.worsen(seed, networkLasts, hidden)
		f := w.fault(words[2:])
		w.stale, w.lag = true, max(w.lag, f.Lag)
		w.must(w.sim.AddFault(f))
	case "fault":
		f := w.fault(words)
		if f.Do == ecssim.FaultStale {
			w.stale, w.lag = true, max(w.lag, f.Lag)
		}
		w.echoes = w.echoes || f.Do == ecssim.FaultEcho && f.Action == "DeleteDisk"
		w.fails[f.Action] = w.fails[f.Action] || f.Do == ecssim.FaultFails
		w.must(w.sim.AddFault(f))
	case "stock":
		n, err := strconv.Atoi(words[2])
		w.must(err)
		w.scarce = true
		w.must(w.sim.SetStock("cn-hangzhou-"+words[0], words[1], n))
	case "instance":
		w.instanceBecomes(words[0], words[1])
	case "advance":
		d, err := time.ParseDuration(words[0])
		w.must(err)
		time.Sleep(d)
	}
}

// instanceBecomes stops, starts or releases a node, which may come again.
func (w *world) instanceBecomes(id, state string) {
	there := slices.ContainsFunc(w.sim.State().Instances, func(i ecssim.InstanceState) bool { return i.ID == id })
	switch {
	case !there && state == "gone":
		return
	case !there:
		time.Sleep(disk.RequestLifetime) // ECS gives no ID to a second instance, so no request for the first reaches one
		w.must(w.sim.AddInstance(walkInstance(id)))
		return
	case state == "gone":
		w.model.nodeGone(id)
	}
	w.must(w.instance(id, state))
}

// calls makes calls at the same time, and waits for their answers, or until the
// process comes to its end so long after they began. By a crash it starts anew; by a failover the other replica takes over; by a
// handover, too, and what the first one sends in its last moments arrives late.
func (w *world) calls(text, end string, after time.Duration) error {
	p := w.now
	ctx, leave := context.WithCancel(p.ctx)
	var all sync.WaitGroup
	var mu sync.Mutex
	var wrong []error
	answered := map[*call]bool{}
	ended := func(c *call, answer any, err error) {
		if answered[c] {
			return
		}
		answered[c] = true
		w.told = append(w.told, "  "+c.line+": "+plain(renderShort(answer, err)))
		if err := c.ended(w, answer, err); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", c.line, err))
		}
	}
	died := status.Error(codes.Unavailable, "the driver died")
	open := w.begin(text)
	for _, c := range open {
		c.caller = p.caller
		all.Go(func() {
			answer, err := p.ask(ctx, c)
			mu.Lock()
			defer mu.Unlock()
			if p.dead.Load() {
				answer, err = nil, died
			}
			ended(c, answer, err)
		})
	}
	if end != "" {
		time.Sleep(after)
		mu.Lock()
		if end == "handover" {
			p.deposed.Store(true)
			for _, c := range open {
				ended(c, nil, died)
			}
		} else {
			p.kill()
		}
		mu.Unlock()
	}
	if end == "handover" {
		time.AfterFunc(callersGo, leave)
		w.net.late.Go(all.Wait)
	} else {
		all.Wait()
		leave()
	}
	p.left = time.Now()
	switch end {
	case "crash":
		w.now = w.process()
	case "failover":
		w.takeOver()
		w.spare = w.process()
	case "handover":
		p.left = p.left.Add(callersGo)
		w.takeOver()
	}
	return errors.Join(append(wrong, w.check())...)
}

// begin begins the calls of a step, but for those that nobody would make now.
func (w *world) begin(text string) []*call {
	var open []*call
	busy := map[string]bool{}
	for line := range strings.SplitSeq(text, " | ") {
		if c := w.model.begin(w, strings.Fields(line), busy); c != nil {
			c.line = line
			open = append(open, c)
		} else {
			w.told = append(w.told, "  "+line+": nothing to do")
		}
	}
	return open
}

// renderShort renders an answer in one line.
func renderShort(answer any, err error) string {
	first, _, _ := strings.Cut(render(answer, err), "\n")
	return first
}

// call is a call of the driver, and what its answer means to the model.
type call struct {
	line    string
	method  string
	req     proto.Message
	timeout time.Duration
	sweeps  bool // it is none, but the driver's own work
	caller  any
	ended   func(w *world, answer any, err error) error
}

// ask makes a call.
func (p *process) ask(ctx context.Context, c *call) (any, error) {
	if c.sweeps {
		p.driver.controller.sweep(ctx, p.driver.inflight)
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return invoke(attachment.WithCaller(ctx, c.caller), p.driver, c.method, c.req)
}

// failing says whether what an action sets going may fail.
func (w *world) failing(action string) bool { return w.fails[action] }

// zoneRequirement is the topology of a call's zones.
func zoneRequirement(zones string) *csi.TopologyRequirement {
	terms := zoneTerms(strings.Split(zones, ","), []string{"topology.kubernetes.io/zone"})
	return &csi.TopologyRequirement{Requisite: terms, Preferred: terms}
}
