//go:build e2e

package handover

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/topodisk/topodisk/ecssim"
)

const (
	randomCallers   = 16
	randomVolumes   = 12
	randomInstances = 4
	// settleLimit is how long it may take, once all faults have ended, until every volume is unpublished and deleted.
	settleLimit = 3 * time.Minute
)

// TestRandomCallers has callers ask two drivers for anything, in any order and with any time-out, while drivers are killed and
// take over from each other, and the network and ECS lose, delay, repeat, hide and refuse. What a driver has said is OK must be so
// in ECS, and stay so until somebody asks for something else. As csi-attacher does, whoever has asked for an unpublish asks for that until
// it is OK, and a sidecar that loses its Lease ends, and its connection.
func TestRandomCallers(t *testing.T) {
	t.Parallel()
	length := *randomFor
	if testing.Short() {
		length = min(length, time.Minute)
	}
	r := newRandomScene(t)
	calling, stop := context.WithTimeout(t.Context(), length)
	defer stop()
	var group, judging sync.WaitGroup
	judged, endJudging := context.WithCancel(t.Context())
	judging.Go(func() { r.every(judged, func() time.Duration { return 100 * time.Millisecond }, r.judge) })
	group.Go(func() {
		r.every(calling, func() time.Duration { return between(time.Second, 5*time.Second) }, r.misbehave)
	})
	group.Go(func() {
		r.every(calling, func() time.Duration { return between(5*time.Second, 40*time.Second) }, r.handOver)
	})
	for range randomCallers {
		group.Go(func() {
			r.every(calling, func() time.Duration { return between(0, 300*time.Millisecond) }, r.callAnything)
		})
	}
	group.Wait()
	r.Must(r.Simulator.ClearFaults(t.Context()))
	r.settle()
	r.pause(time.Now(), lateLimit) // for what is still on its way
	endJudging()
	judging.Wait()
	r.judge()
	r.checkLeaks()
	t.Logf("%s, %d handovers, %d faults; OK: %s", length, r.handovers, r.faults, r.counts())
	for _, verb := range []string{"create", "delete", "publish", "unpublish", "expand", "snapshot", "delete snapshot"} {
		if r.oks[verb] == 0 && !testing.Short() {
			t.Errorf("no %s was OK", verb)
		}
	}
}

// lateLimit is the longest time that a request is on its way: longer than ECS takes its time stamp.
const lateLimit = 40 * time.Second

func between(least, most time.Duration) time.Duration { return least + rand.N(most-least+1) }

// randomScene is a simulator with two drivers, one of which leads.
type randomScene struct {
	*scene
	volumes   []*randomVolume
	faults    int
	handovers int
	started   int // drivers
	standby   *randomDriver

	mu     sync.Mutex
	driver *randomDriver       // that leads
	facts  map[fact]*statement // what was said
	oks    map[string]int
	events []string // of callers and drivers, in order
}

// randomDriver is a driver of which a sidecar holds the Lease until lost is called.
type randomDriver struct {
	name   string
	client csi.ControllerClient
	conn   *grpc.ClientConn
	leads  context.Context
	lost   context.CancelFunc
}

// randomVolume is one volume after another, by number.
type randomVolume struct {
	n          int
	shared     bool
	life       sync.RWMutex // held to read by callers that want the disk as it is, to write by those that make or delete it
	attaching  []sync.Mutex // by instance: as csi-attacher, one call at a time
	leaving    []bool       // by instance: its unpublish was asked for, and is asked for until it is OK, as a VolumeAttachment stays until then
	resizing   sync.Mutex   // as csi-resizer
	snapping   sync.Mutex   // as csi-snapshotter
	generation int          // in the name
	disk       string       // "" until its creation was OK
	deleting   bool         // it was asked for
	size       atomic.Int64 // GiB, asked for last
	snapshot   string       // "" for none
	snapped    int          // the generation that it is of
	snapshots  int          // made, in the name
	unsnap     bool         // the snapshot's deletion was asked for
}

func (v *randomVolume) name() string { return fmt.Sprintf("random-%d-%d", v.n, v.generation) }

// fact is something that a driver may have said: of a disk, or of a disk on an instance, or of a snapshot.
type fact struct {
	kind     string // "exists", "attached", "size", "snapshot"
	id       string
	instance string
}

// statement is what was said of a fact, until a caller asks for something else.
type statement struct {
	yes  bool
	size int64 // GiB, at least
	by   string
	at   time.Time
	told bool
}

func newRandomScene(t *testing.T) *randomScene {
	args := []string{"--zone=" + zone, "--latency=fast", "--queues=parallel"}
	for n := range randomInstances {
		args = append(args, fmt.Sprintf("--instance=%s=%s/ecs.g7se.large", randomInstance(n), zone))
	}
	r := &randomScene{scene: startScene(t, args), facts: map[fact]*statement{}, oks: map[string]int{}}
	r.Must(r.Simulator.SetSpans(t.Context(), map[string]time.Duration{"Attach": time.Second, "Detach": 2 * time.Second}))
	for n := range randomVolumes {
		r.volumes = append(r.volumes, &randomVolume{n: n, shared: n%3 == 0, attaching: make([]sync.Mutex, randomInstances), leaving: make([]bool, randomInstances)})
	}
	r.driver, r.standby = r.newDriver(), r.newDriver()
	return r
}

func randomInstance(n int) string { return fmt.Sprintf("i-random%d", n) }

func (r *randomScene) newDriver() *randomDriver {
	r.started++
	name := fmt.Sprintf("driver-%d", r.started)
	r.Must(r.StartDriver(r.Context(), name))
	return r.connect(name)
}

// connect connects to a driver, as a sidecar does whose process begins.
func (r *randomScene) connect(name string) *randomDriver {
	d, err := &randomDriver{name: name}, error(nil)
	d.conn, err = grpc.NewClient("unix://"+r.Socket(d.name), grpc.WithTransportCredentials(insecure.NewCredentials()))
	r.Must(err)
	d.client = csi.NewControllerClient(d.conn)
	d.leads, d.lost = context.WithCancel(r.Context())
	return d
}

// every does something again and again until ctx ends.
func (r *randomScene) every(ctx context.Context, wait func() time.Duration, do func()) {
	for ctx.Err() == nil {
		do()
		select {
		case <-time.After(wait()):
		case <-ctx.Done():
		}
	}
}

// handOver has the other driver lead: the one that led is killed, ends, or goes on with what it has begun.
func (r *randomScene) handOver() {
	if r.handovers++; r.handovers == 1 {
		return // at the beginning
	}
	r.mu.Lock()
	old := r.driver
	r.mu.Unlock()
	how := rand.IntN(3)
	r.note("%s leads no more: %s; %s leads", old.name, []string{"killed", "terminated", "goes on"}[how], r.standby.name)
	if how == 0 {
		r.Must(r.EndDriver(old.name, syscall.SIGKILL))
	}
	old.lost()
	if how == 1 {
		r.Must(r.EndDriver(old.name, syscall.SIGTERM))
	}
	r.mu.Lock()
	r.driver = r.standby
	r.mu.Unlock()
	r.Must(old.conn.Close())
	if how < 2 {
		r.standby = r.newDriver()
	} else {
		r.standby = r.connect(old.name)
	}
}

// misbehave has the network or ECS do what they shouldn't, or ends that.
func (r *randomScene) misbehave() {
	if rand.IntN(8) == 0 {
		r.Must(r.Simulator.ClearFaults(r.Context()))
		return
	}
	r.faults++
	r.Must(r.Simulator.AddFault(r.Context(), r.randomFault()))
}

func (r *randomScene) randomFault() ecssim.Fault {
	f := ecssim.Fault{For: between(time.Second, 15*time.Second), Percent: 10 + rand.IntN(60)}
	if rand.IntN(3) > 0 {
		f.Action = pick("AttachDisk", "DetachDisk", "AttachDisk", "DetachDisk", "CreateDisk", "DeleteDisk", "ResizeDisk", "CreateSnapshot", "DeleteSnapshot", "TagResources")
		f.Do = pick(ecssim.FaultLostRequest, ecssim.FaultLostReply, ecssim.FaultErrorAfter, ecssim.FaultTruncated, ecssim.FaultEmpty, ecssim.FaultHTML,
			ecssim.FaultLate, ecssim.FaultLate, ecssim.FaultDuplicate, ecssim.FaultDelay, ecssim.FaultDelay, ecssim.FaultThrottle, ecssim.FaultBrownOut,
			ecssim.FaultRefused, ecssim.FaultReset, ecssim.FaultError)
	} else {
		f.Action = pick("DescribeDisks", "DescribeDisks", "DescribeDisks", "DescribeInstances", "DescribeSnapshots", "ListTagResources")
		f.Do = pick(ecssim.FaultStale, ecssim.FaultStale, ecssim.FaultHidden, ecssim.FaultHidden, ecssim.FaultPartial, ecssim.FaultNothing,
			ecssim.FaultLostReply, ecssim.FaultDelay, ecssim.FaultThrottle, ecssim.FaultTruncated, ecssim.FaultDate)
	}
	switch f.Do {
	case ecssim.FaultLate:
		f.Lag = between(500*time.Millisecond, lateLimit)
	case ecssim.FaultDelay:
		f.DelayBefore, f.DelayAfter = between(0, 18*time.Second), between(time.Millisecond, 3*time.Second)
	case ecssim.FaultStale:
		f.Lag = between(time.Second, 10*time.Second)
	case ecssim.FaultError:
		f.Status, f.Code = 400, pick("OperationConflict", "IncorrectDiskStatus", "UnheardOf.Code")
	case ecssim.FaultHidden:
		f.For, f.Percent = between(time.Second, time.Minute), 0
		for _, v := range r.volumes {
			if id := v.known(); id != "" && rand.IntN(3) == 0 {
				f.Hide = append(f.Hide, id)
			}
		}
		if len(f.Hide) == 0 {
			f.Hide = []string{"d-none"}
		}
	}
	return f
}

func pick(of ...string) string { return of[rand.IntN(len(of))] }

// known is the disk's ID if nobody makes or deletes it just now.
func (v *randomVolume) known() string {
	if !v.life.TryRLock() {
		return ""
	}
	defer v.life.RUnlock()
	return v.disk
}

// call asks the driver that leads, with some time for it, and says whether it is OK.
func (r *randomScene) call(verb, of string, do func(context.Context, csi.ControllerClient) error) bool {
	r.mu.Lock()
	driver := r.driver
	leads := driver.leads
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(leads, between(300*time.Millisecond, callTime))
	defer cancel()
	began := time.Now()
	err := do(ctx, driver.client)
	r.note("%s, since %s: %s %s: %v", driver.name, clock(began), verb, of, err)
	if err != nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.oks[verb]++
	return true
}

func clock(at time.Time) string { return at.UTC().Format("15:04:05.000") }

// note takes down what happened, for who has to find out why.
func (r *randomScene) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, clock(time.Now())+" "+fmt.Sprintf(format, args...))
}

// tell logs the last minute of a disk, as callers and ECS have seen it.
func (r *randomScene) tell(id string) {
	calls, err := r.Simulator.Calls(context.WithoutCancel(r.Context()), "")
	if err != nil {
		r.Error(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(r.events), func(e string) bool { return !strings.Contains(e, id) && !strings.Contains(e, "leads") })
	for _, c := range calls {
		if c.Disk == id && !strings.HasPrefix(c.Action, "Describe") {
			list = append(list, fmt.Sprintf("%s ECS %s: %s %v %q, status %d, fault %q, took %s", clock(c.Time), c.RequestID, c.Action, c.Params, c.Code, c.Status, c.Fault, c.Took))
		}
	}
	slices.Sort(list)
	r.Log(strings.Join(list[max(0, len(list)-60):], "\n"))
}

// callAnything makes one call.
func (r *randomScene) callAnything() {
	v := r.volumes[rand.IntN(len(r.volumes))]
	switch n := rand.IntN(100); {
	case n < 12:
		r.createOrDelete(v, rand.IntN(4) == 0)
	case n < 50:
		r.attach(v, rand.IntN(randomInstances), true)
	case n < 88:
		r.attach(v, rand.IntN(randomInstances), false)
	case n < 94:
		r.expand(v)
	default:
		r.snap(v)
	}
}

// say notes what a driver has said; withdraw forgets it before something else is asked for.
func (r *randomScene) say(f fact, s statement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.at = time.Now()
	r.facts[f] = &s
}

func (r *randomScene) withdraw(f fact, ifYes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.facts[f]; s != nil && s.yes == ifYes {
		delete(r.facts, f)
	}
}

// createOrDelete makes a disk, makes it once more, or deletes it. A disk whose deletion was asked for is asked for no more.
func (r *randomScene) createOrDelete(v *randomVolume, remove bool) {
	if !v.life.TryLock() {
		return
	}
	defer v.life.Unlock()
	if !v.deleting && (!remove || v.disk == "") {
		var id string
		if !r.call("create", v.name(), func(ctx context.Context, driver csi.ControllerClient) (err error) {
			id, err = createWith(ctx, driver, v.name(), v.shared)
			return err
		}) {
			return
		}
		if v.disk != "" && v.disk != id {
			r.Errorf("%s is %s, and was %s", v.name(), id, v.disk)
		}
		if v.disk == "" {
			v.size.Store(20)
			r.say(fact{"size", id, ""}, statement{yes: true, size: 20, by: v.name()})
		}
		v.disk = id
		r.say(fact{"exists", id, ""}, statement{yes: true, by: v.name()})
		return
	}
	v.deleting = true
	r.withdraw(fact{"exists", v.disk, ""}, true)
	r.withdraw(fact{"size", v.disk, ""}, true)
	if !r.call("delete", v.disk, func(ctx context.Context, driver csi.ControllerClient) error {
		_, err := driver.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.disk})
		return err
	}) {
		return
	}
	r.say(fact{"exists", v.disk, ""}, statement{by: v.name()})
	v.generation, v.disk, v.deleting = v.generation+1, "", false
}

// attach publishes a disk to an instance, or unpublishes it.
func (r *randomScene) attach(v *randomVolume, n int, attached bool) {
	if !v.life.TryRLock() {
		return
	}
	defer v.life.RUnlock()
	if v.disk == "" || attached && v.deleting || !v.attaching[n].TryLock() {
		return
	}
	defer v.attaching[n].Unlock()
	attached = attached && !v.leaving[n]
	v.leaving[n] = !attached
	f := fact{"attached", v.disk, randomInstance(n)}
	r.withdraw(f, !attached)
	verb := map[bool]string{true: "publish", false: "unpublish"}[attached]
	if r.call(verb, f.id+" "+f.instance, func(ctx context.Context, driver csi.ControllerClient) error {
		if attached {
			return publishWith(ctx, driver, f.id, f.instance, v.shared)
		}
		return unpublishWith(ctx, driver, f.id, f.instance)
	}) {
		v.leaving[n] = false
		r.say(f, statement{yes: attached, by: v.name()})
	}
}

func (r *randomScene) expand(v *randomVolume) {
	if !v.life.TryRLock() {
		return
	}
	defer v.life.RUnlock()
	if v.disk == "" || v.deleting || !v.resizing.TryLock() {
		return
	}
	defer v.resizing.Unlock()
	size := v.size.Load()
	if rand.IntN(3) == 0 {
		size = v.size.Add(1)
	}
	if r.call("expand", v.disk, func(ctx context.Context, driver csi.ControllerClient) error {
		_, err := driver.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
			VolumeId: v.disk, CapacityRange: &csi.CapacityRange{RequiredBytes: size << 30}, VolumeCapability: capability(v.shared)})
		return err
	}) {
		r.say(fact{"size", v.disk, ""}, statement{yes: true, size: size, by: v.name()})
	}
}

// snap makes a snapshot, makes it once more, or deletes it.
func (r *randomScene) snap(v *randomVolume) {
	if !v.life.TryRLock() {
		return
	}
	defer v.life.RUnlock()
	if v.disk == "" || v.deleting && !v.unsnap || !v.snapping.TryLock() {
		return
	}
	defer v.snapping.Unlock()
	if v.snapshot != "" && (v.unsnap || v.snapped != v.generation || rand.IntN(2) == 0) {
		r.deleteSnapshot(v)
		return
	}
	var id string
	if !r.call("snapshot", v.disk, func(ctx context.Context, driver csi.ControllerClient) error {
		made, err := driver.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{SourceVolumeId: v.disk, Name: fmt.Sprintf("%s-s%d", v.name(), v.snapshots)})
		id = made.GetSnapshot().GetSnapshotId()
		return err
	}) {
		return
	}
	if v.snapshot != "" && v.snapshot != id {
		r.Errorf("snapshot %d of %s is %s, and was %s", v.snapshots, v.name(), id, v.snapshot)
	}
	v.snapshot, v.snapped = id, v.generation
	r.say(fact{"snapshot", id, ""}, statement{yes: true, by: v.name()})
}

func (r *randomScene) deleteSnapshot(v *randomVolume) {
	v.unsnap = true
	f := fact{"snapshot", v.snapshot, ""}
	r.withdraw(f, true)
	if r.call("delete snapshot", v.snapshot, func(ctx context.Context, driver csi.ControllerClient) error {
		_, err := driver.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: v.snapshot})
		return err
	}) {
		r.say(f, statement{by: v.name()})
		v.snapshot, v.unsnap, v.snapshots = "", false, v.snapshots+1
	}
}

// judge holds what was said against what is so in ECS.
func (r *randomScene) judge() {
	r.mu.Lock()
	said := maps.Clone(r.facts)
	r.mu.Unlock()
	state, err := r.Simulator.State(context.WithoutCancel(r.Context()))
	if err != nil {
		r.Error(err)
		return
	}
	if state.Broken != "" {
		r.Error(state.Broken)
	}
	for f, s := range said {
		if is := contradiction(f, s, state); is != "" && r.stands(f, s) {
			defer r.tell(f.id)
			r.Errorf("%s: %s after %+v was said to be %v (size %d), it is %s", s.by, time.Since(s.at).Round(time.Millisecond), f, s.yes, s.size, is)
		}
	}
}

// stands says whether a statement was not withdrawn meanwhile, once.
func (r *randomScene) stands(f fact, s *statement) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.facts[f] != s || s.told {
		return false
	}
	s.told = true
	return true
}

// contradiction says what is so in ECS instead of what was said, "" if that is true.
func contradiction(f fact, s *statement, state ecssim.State) string {
	at := slices.IndexFunc(state.Disks, func(d ecssim.DiskState) bool { return d.ID == f.id })
	switch f.kind {
	case "snapshot":
		if exists := slices.ContainsFunc(state.Snapshots, func(n ecssim.SnapshotState) bool { return n.ID == f.id }); exists != s.yes {
			return fmt.Sprintf("there: %v", exists)
		}
	case "exists":
		if (at >= 0) != s.yes {
			return fmt.Sprintf("there: %v", at >= 0)
		}
	case "size":
		if at < 0 || state.Disks[at].Size < int(s.size) {
			return "smaller, or gone"
		}
	case "attached":
		phase := "detached"
		if at >= 0 {
			for _, a := range state.Disks[at].Attachments {
				if a.Instance == f.instance {
					phase = a.Phase
				}
			}
		}
		if s.yes != (phase == "In_use") || !s.yes && phase != "detached" {
			return phase
		}
	}
	return ""
}

// settle unpublishes and deletes everything.
func (r *randomScene) settle() {
	end := time.Now().Add(settleLimit)
	var group sync.WaitGroup
	for _, v := range r.volumes {
		group.Go(func() {
			for v.snapshot != "" && time.Now().Before(end) {
				r.deleteSnapshot(v)
			}
			for v.disk == "" && time.Now().Before(end) { // one may have been made by a call that failed
				r.createOrDelete(v, false)
			}
			for n := range randomInstances {
				for time.Now().Before(end) && !r.isSaid(fact{"attached", v.disk, randomInstance(n)}, false) {
					r.attach(v, n, false)
				}
			}
			for generation := v.generation; v.generation == generation && time.Now().Before(end); {
				r.createOrDelete(v, true)
			}
		})
	}
	group.Wait()
	if time.Now().After(end) {
		r.Errorf("%s after the last fault not every volume is unpublished and deleted", settleLimit)
	}
}

func (r *randomScene) isSaid(f fact, yes bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.facts[f] != nil && r.facts[f].yes == yes
}

// checkLeaks holds that no disk is left, and no snapshot but those whose names nobody has been told of.
func (r *randomScene) checkLeaks() {
	state, err := r.Simulator.State(r.Context())
	r.Must(err)
	for _, d := range state.Disks {
		r.Errorf("disk %s of %q is left, attached to %v", d.ID, d.Name, d.Attachments)
	}
}

func (r *randomScene) counts() string {
	var list []string
	for _, verb := range slices.Sorted(maps.Keys(r.oks)) {
		list = append(list, fmt.Sprintf("%d %s", r.oks[verb], verb))
	}
	return strings.Join(list, ", ")
}
