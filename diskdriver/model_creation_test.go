package diskdriver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/topodisk/topodisk/diskdriver/creation"
	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/ecssim"
)

const (
	shortCreations = 300
	longCreations  = 10000
)

// TestCreationModel asks two drivers for one volume, through a provisioner that
// is topodisk's or Kubernetes' own, while ECS loses and delays calls, shows disks
// late or none, forgets client tokens and sells out, and while drivers are killed
// at any call. It holds package creation's promise against ECS: there is never a
// second disk; a final code says that there is no disk, then and later; and when
// ECS is well again every volume comes to an end. -seed walks one walk again.
func TestCreationModel(t *testing.T) {
	walks := uint64(shortCreations)
	if *long {
		walks = longCreations
	}
	for n := range walks {
		w := &creationWalk{Rand: rand.New(rand.NewPCG(*seed+n, 1))}
		synctest.Test(t, func(t *testing.T) {
			w.t = t
			w.broken = w.follow()
		})
		if w.broken != nil {
			t.Fatalf("go test ./diskdriver -run TestCreationModel -seed %d:\n%s\n%v", *seed+n, strings.Join(w.told, "\n"), w.broken)
		}
	}
}

// creationWalk is the life of one volume.
type creationWalk struct {
	*rand.Rand
	t      *testing.T
	config ecssim.Config
	sim    *ecssim.Server
	told   []string
	broken error

	drivers [2]*creationDriver
	active  int
	caller  net.Addr // of the provisioner that leads
	proves  bool     // it is topodisk's: it says so if no disk can exist
	first   bool     // none can, as far as the provisioner knows
	zone    string
	blind   bool
}

// creationDriver is a process of the driver, and what happens to its calls.
type creationDriver struct {
	w      *creationWalk
	driver *Driver
	dead   atomic.Bool
	cancel context.CancelFunc
	ctx    context.Context

	fate  fate
	calls int // of ECS, until the fate
}

// evidenceLasts is for how long a disk that was shown says to diskdriver/ecs that the keys may list. So long after they may not
// a driver believes that a name which it doesn't know has no disk, and sends a create, which makes a second one if ECS has
// forgotten the token of the first.
const evidenceLasts = 10 * time.Second

// rememberedForEver is the life of a token that outlives every walk.
const rememberedForEver = 1000 * time.Hour

// fate is what happens to one call of ECS.
type fate string

const (
	lostReply   fate = "its reply is lost"
	lostRequest fate = "it is lost"
	late        fate = "it is late"
)

func (w *creationWalk) tell(format string, args ...any) {
	w.told = append(w.told, fmt.Sprintf("%8s  ", time.Since(bubbleBegins).Round(time.Second))+fmt.Sprintf(format, args...))
}

// bubbleBegins is when time begins in a bubble.
var bubbleBegins = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// RoundTrip is the way of a driver to ECS. A driver that is killed sends nothing
// more, but what it has sent may arrive.
func (d *creationDriver) RoundTrip(r *http.Request) (*http.Response, error) {
	if d.dead.Load() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	if d.fate == "" || d.calls > 0 {
		d.calls--
		return d.w.sim.RoundTrip(r)
	}
	action, what := r.Header.Get("X-Acs-Action"), d.fate
	d.fate = ""
	d.w.tell("    %s: %s", action, what)
	switch what {
	case lostReply:
		reply, err := d.w.sim.RoundTrip(r.Clone(context.Background()))
		if err == nil {
			_, _ = io.Copy(io.Discard, reply.Body)
		}
	case late:
		after := time.Duration(d.w.IntN(45)) * time.Second // ECS refuses it after 30
		go func() {
			time.Sleep(after)
			reply, err := d.w.sim.RoundTrip(r.Clone(context.Background()))
			if err == nil {
				_, _ = io.Copy(io.Discard, reply.Body)
			}
		}()
	}
	return nil, io.EOF
}

func (w *creationWalk) must(err error) {
	if err != nil {
		panic(err)
	}
}

// start starts a driver with nothing remembered.
func (w *creationWalk) start(n int) {
	d := &creationDriver{w: w}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	client, err := ecs.NewClient(ecs.Config{Region: w.config.Region, ClusterID: cluster, Credentials: &story{key: "secret"}, Transport: d})
	w.must(err)
	d.driver, err = New(Config{Version: "model", Region: w.config.Region, ClusterID: cluster}, client)
	w.must(err)
	w.drivers[n] = d
}

// handOver lets another provisioner lead, beside either driver.
func (w *creationWalk) handOver(to int) {
	w.active, w.caller, w.first = to, &net.UnixAddr{}, false
}

// follow lives the life, and returns what must not be.
func (w *creationWalk) follow() error {
	w.begin()
	defer func() {
		w.sim.ClearFaults()
		for _, d := range w.drivers {
			d.dead.Store(true)
			d.cancel()
		}
		time.Sleep(time.Minute) // for what is late
	}()
	for range 4 + w.IntN(12) {
		w.happen()
		if end, err := w.call(true); end || err != nil {
			return errors.Join(err, w.afterwards())
		}
	}
	w.sim.ClearFaults()
	if w.blind {
		w.tell("the keys may list again")
	}
	w.blind = false
	if w.IntN(2) == 0 {
		w.stock("a", ecssim.Unlimited)
		w.stock("b", ecssim.Unlimited)
	}
	for range 40 {
		time.Sleep(10 * time.Second)
		if end, err := w.call(false); end || err != nil {
			return errors.Join(err, w.afterwards())
		}
	}
	return errors.New("it comes to no end")
}

// begin makes the ECS of the walk.
func (w *creationWalk) begin() {
	w.config = ecssim.Config{
		Region: "cn-hangzhou", Zones: []string{"cn-hangzhou-a", "cn-hangzhou-b", "cn-hangzhou-c"}, AccessKeys: map[string]string{"story": "secret"},
		Seed:      w.Uint32(),
		Latency:   ecssim.Latency{API: map[string]time.Duration{"": 200 * time.Millisecond}},
		TokenLife: []time.Duration{time.Nanosecond, 5 * time.Minute, 6 * time.Minute, 10 * time.Minute, rememberedForEver}[w.IntN(5)],
	}
	var err error
	w.sim, err = ecssim.New(w.config)
	w.must(err)
	(&world{story: story{t: w.t, config: w.config, sim: w.sim, key: "secret"}}).foreign()
	w.config.Latency.Visible = time.Duration(w.pick(0, 0, 5, 30, 59)) * time.Second
	w.must(w.sim.SetLatency(w.config.Latency))
	time.Sleep(w.config.Latency.Visible) // for the foreign disk, without which ECS would show none at all
	w.proves, w.first, w.zone, w.caller = w.IntN(2) == 0, true, "a", &net.UnixAddr{}
	w.start(0)
	w.start(1)
	w.tell("a disk shows after %s, a token lives for %s, the provisioner proves first calls: %v", w.config.Latency.Visible, w.config.TokenLife, w.proves)
}

// forgetful says that ECS makes two disks for one token.
func (w *creationWalk) forgetful() bool { return w.config.TokenLife < time.Minute }

func (w *creationWalk) stock(zone string, n int) {
	w.tell("stock of zone %s: %d", zone, n)
	w.must(w.sim.SetStock("cn-hangzhou-"+zone, "cloud_essd", n))
}

// happen lets something happen between two calls.
func (w *creationWalk) happen() {
	time.Sleep(time.Duration(w.IntN(w.pick(3, 30, 100, 200)+1)) * time.Second)
	switch w.IntN(8) {
	case 0, 1:
		w.stock([]string{"a", "b"}[w.IntN(2)], w.pick(0, 0, ecssim.Unlimited))
	case 2:
		if w.blind = !w.blind; w.blind {
			w.lists()
			w.tell("the keys may not list any more")
			w.must(w.sim.AddFault(ecssim.Fault{Action: "DescribeDisks", Do: ecssim.FaultNothing}))
			if w.config.TokenLife < rememberedForEver {
				time.Sleep(evidenceLasts)
			}
		} else {
			w.tell("the keys may list again")
			w.sim.ClearFaults()
		}
	case 3:
		w.handOver(w.IntN(2))
		w.tell("another provisioner leads, beside driver %d", w.active)
	case 4:
		w.tell("driver %d is started again", w.active)
		w.kill()
		w.start(w.active)
	}
}

// lists lets the drivers see other disks.
func (w *creationWalk) lists() {
	for _, d := range w.drivers {
		_, err := invoke(context.Background(), d.driver, "ListVolumes", &csi.ListVolumesRequest{})
		w.must(err)
	}
}

func (w *creationWalk) pick(from ...int) int { return from[w.IntN(len(from))] }

func (w *creationWalk) kill() {
	w.drivers[w.active].dead.Store(true)
	w.drivers[w.active].cancel()
}

// call asks once, and says whether that is the end.
func (w *creationWalk) call(trouble bool) (end bool, err error) {
	d := w.drivers[w.active]
	dies := false
	if trouble && w.IntN(2) == 0 {
		d.fate, d.calls = []fate{lostReply, lostRequest, late}[w.IntN(3)], w.IntN(4)
		dies = w.IntN(3) == 0
	}
	timeout := time.Duration(w.pick(3, 10, 60, 150)) * time.Second
	ctx, cancel := context.WithTimeout(d.ctx, timeout)
	defer cancel()
	ctx = peer.NewContext(ctx, &peer.Peer{Addr: w.caller})
	first := w.first && w.proves
	if first {
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs(creation.FirstCallKey, "true"))
	}
	w.first = false
	armed := d.fate
	answer, err := invoke(ctx, d.driver, "CreateVolume", w.request())
	struck := armed != "" && d.fate == ""
	d.fate = ""
	if dies && struck { // at that call, so nobody hears an answer
		w.tell("driver %d is killed", w.active)
		w.kill()
		w.start(w.active)
		if w.IntN(2) == 0 {
			w.handOver(w.IntN(2))
		}
		return false, w.check("")
	}
	w.tell("create in zone %s by driver %d, first call %v: %s", w.zone, w.active, first, renderShort(answer, err))
	switch code := status.Code(err); {
	case err == nil:
		id := answer.(*csi.CreateVolumeResponse).GetVolume().GetVolumeId()
		return w.IntN(3) > 0, w.check(id) // or nobody hears it
	case code == codes.AlreadyExists && w.forgetful():
		return true, w.check("")
	case code == codes.AlreadyExists:
		return false, errors.New("nothing else was ever asked for")
	case !isFinal(code):
		return false, w.check("")
	}
	if disks := w.disks(); len(disks) > 0 {
		return false, fmt.Errorf("a final code, and disk %s exists", disks[0].ID)
	}
	w.first = true
	if w.IntN(2) == 0 {
		w.zone = map[string]string{"a": "b", "b": "a"}[w.zone]
		return false, nil
	}
	time.Sleep(10 * time.Minute) // nobody asks any more
	if disks := w.disks(); len(disks) > 0 {
		return false, fmt.Errorf("after a final code disk %s came to exist", disks[0].ID)
	}
	return true, nil
}

func (w *creationWalk) request() *csi.CreateVolumeRequest {
	s := story{t: w.t}
	req := s.createRequest("disk-1", []string{"size=20Gi", "type=cloud_essd"})
	req.AccessibilityRequirements = zoneRequirement(w.zone)
	return req
}

// disks are those of the volume's name.
func (w *creationWalk) disks() (named []ecssim.DiskState) {
	for _, d := range w.sim.Disks() {
		if name, ours := marks(d); ours && name == "disk-1" {
			named = append(named, d)
		}
	}
	return named
}

// check holds what ECS has against the answer: the disk's ID, or nothing.
func (w *creationWalk) check(id string) error {
	disks := w.disks()
	if len(disks) > 1 && !w.forgetful() {
		return fmt.Errorf("there are %d disks: %+v", len(disks), disks)
	}
	if id == "" || len(disks) > 1 {
		return nil
	}
	if len(disks) == 0 || disks[0].ID != id || disks[0].Zone != "cn-hangzhou-"+w.zone {
		return fmt.Errorf("the answer is %s, and ECS has %v", id, disks)
	}
	return nil
}

// afterwards holds what ECS has in the end: one disk, or several that are told of.
func (w *creationWalk) afterwards() error {
	w.sim.ClearFaults()
	time.Sleep(2 * (creation.Visible + creation.Travel))
	disks := w.disks()
	if len(disks) < 2 {
		return nil
	}
	if !w.forgetful() {
		return fmt.Errorf("in the end there are %d disks", len(disks))
	}
	_, err := invoke(context.Background(), w.drivers[w.active].driver, "CreateVolume", w.request())
	for _, d := range disks {
		if status.Code(err) != codes.AlreadyExists || !strings.Contains(err.Error(), d.ID) {
			return fmt.Errorf("there are %d disks, and the answer is %w", len(disks), err)
		}
	}
	return nil
}
