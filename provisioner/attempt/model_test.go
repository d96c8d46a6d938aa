package attempt

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/request"
)

var (
	long      = flag.Bool("long", false, "walk 100 000 random sequences")
	firstSeed = flag.Uint64("seed", 1, "of the first sequence; each has the next one")
)

// TestModel walks random sequences of events: what a cluster, a driver that keeps its
// contract, a journal and crashes may do to one claim. No sequence may have, at any
// moment, a disk that neither a PersistentVolume nor the journal knows of, two disks
// of one request, or a first call that isn't the first; and once the world is calm, a
// claim that wants a volume has one, and no disk is left that nobody owns. The
// transcripts show every transition that it takes.
func TestModel(t *testing.T) {
	seen, sequences := transitions{}, 3_000
	if *long {
		sequences = 100_000
	}
	for i := range sequences {
		seed := *firstSeed + uint64(i)
		if err := walk(seed, seen); err != nil {
			t.Fatalf("-seed %d: %v", seed, err)
		}
	}
	if len(seen) < 100 {
		t.Errorf("only %d transitions were seen", len(seen))
	}
	shown := transitions{}
	for _, s := range allSteps(t) {
		shown.add(s.from, s.event, s.to)
	}
	for _, missing := range slices.Sorted(maps.Keys(seen)) {
		if shown[missing] == 0 {
			t.Errorf("no transcript shows %s, which was seen %d times", missing, seen[missing])
		}
	}
}

const modelClaim = types.UID("0f1e")

// world is one claim with all that may happen to it.
type world struct {
	random  *rand.Rand
	now     time.Time
	log     []string
	calm    bool
	another bool // the class is another provisioner's at present
	seen    transitions

	claim *v1.PersistentVolumeClaim // as the API server has it; nil: gone
	pvs   map[string]*v1.PersistentVolume
	watch []watched // events that the watches have not delivered
	late  []func()  // effects of calls that ECS has received

	disks  map[string]string // disk ID -> CSI volume name
	making map[string]bool   // names of creates that were received and not carried out
	kept   []string          // names of disks that the owner keeps without a PersistentVolume
	made   int

	journal *request.Request // what outlives a crash

	table   *Table
	queued  bool
	working bool                      // a worker has the claim
	inCache *v1.PersistentVolumeClaim // as the watch has shown it
	pvCache map[string]*v1.PersistentVolume
	pending Action   // in action
	todo    []Action // not done yet
	wakeAt  time.Time
	since   time.Time
}

// watched is an event of a watch.
type watched struct {
	volume string // that it shows or has gone
	tell   func()
}

func walk(seed uint64, seen transitions) (err error) {
	w := &world{
		random: rand.New(rand.NewPCG(seed, 16)), now: time.Unix(1_700_000_000, 0), seen: seen,
		pvs: map[string]*v1.PersistentVolume{}, disks: map[string]string{}, making: map[string]bool{},
	}
	defer func() {
		if r := recover(); r != nil {
			if fault, ok := r.(fault); ok {
				err = fmt.Errorf("%s\n%s", string(fault), strings.Join(w.log, "\n"))
				return
			}
			panic(fmt.Sprintf("seed %d: %v\n%s", seed, r, strings.Join(w.log, "\n")))
		}
	}()
	w.start()
	w.pass(time.Duration(w.random.IntN(10)) * time.Second)
	w.createClaim()
	for range 20 + w.random.IntN(60) {
		w.happen()
		w.check()
	}
	w.settle()
	return nil
}

// fault is a promise that was broken.
type fault string

func (w *world) fail(format string, args ...any) { panic(fault(fmt.Sprintf(format, args...))) }

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, w.now.Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

func (w *world) chance(of float64) bool { return !w.calm && w.random.Float64() < of }

// start begins a process that leads: its caches are as new as the API server's state.
func (w *world) start() {
	w.watch, w.pending, w.todo, w.queued, w.working, w.wakeAt = nil, nil, nil, false, false, time.Time{}
	w.inCache, w.pvCache = w.claim, map[string]*v1.PersistentVolume{}
	w.since = w.now
	w.table = NewTable(Limits{RetryStart: time.Second, RetryMax: 5 * time.Minute, NodeGrace: time.Minute, SiblingWait: 3 * time.Minute}, func(types.UID) { w.queued = true })
	w.table.Lead(w.now)
	for name, pv := range w.pvs {
		w.pvCache[name] = pv
		if w.claim == nil || w.claim.Spec.VolumeName == "" {
			w.table.Begin(modelClaim, VolumeSeen{pv})
		}
	}
	if w.journal != nil {
		if saved := slices.ContainsFunc(w.volumes(w.pvs), w.journal.IsSavedAs); saved {
			w.journal = nil
		} else {
			w.table.Begin(modelClaim, Recovered{w.journal})
		}
	}
	if w.claim == nil {
		w.table.Post(modelClaim, ClaimGone{})
	} else {
		w.showClaim(w.claim)
	}
}

func (w *world) volumes(from map[string]*v1.PersistentVolume) (list []*v1.PersistentVolume) {
	for _, pv := range from {
		list = append(list, pv)
	}
	slices.SortFunc(list, func(a, b *v1.PersistentVolume) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (w *world) createClaim() {
	w.claim = &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "data", UID: modelClaim, ResourceVersion: "1", CreationTimestamp: metav1.NewTime(w.now.Add(time.Duration(w.random.IntN(5)-2) * time.Second)), // clocks differ
		Annotations: map[string]string{request.AnnSelectedNode: "node-1"},
	}, Spec: v1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("essd")}}
	w.publishClaim()
}

// publishClaim has the watch show the claim as it is now.
func (w *world) publishClaim() {
	claim := w.claim
	w.watch = append(w.watch, watched{tell: func() {
		w.inCache = claim
		if claim == nil {
			w.note("watch: ClaimGone")
			w.table.Post(modelClaim, ClaimGone{})
			return
		}
		w.showClaim(claim)
	}})
}

// showClaim is what handlers of a claim's events do.
func (w *world) showClaim(claim *v1.PersistentVolumeClaim) {
	w.note("watch: ClaimChanged node=%q deleting=%v volume=%q", selectedNode(claim), claim.DeletionTimestamp != nil, claim.Spec.VolumeName)
	if claim.Spec.VolumeName == "" && claim.DeletionTimestamp == nil && w.random.IntN(2) == 0 {
		w.table.Begin(modelClaim, ClaimChanged{claim})
	} else {
		w.table.Post(modelClaim, ClaimChanged{claim})
	}
	if claim.Spec.VolumeName == "" && claim.DeletionTimestamp == nil && selectedNode(claim) != "" && w.table.Phase(modelClaim) <= Prefetched {
		w.table.Begin(modelClaim, Started{claim})
	}
}

func (w *world) updateClaim(change func(*v1.PersistentVolumeClaim)) {
	w.claim = w.claim.DeepCopy()
	change(w.claim)
	w.claim.ResourceVersion += "1"
	w.publishClaim()
}

func (w *world) publishVolume(name string) {
	pv := w.pvs[name]
	if pv == nil && w.pvCache[name] == nil && w.random.IntN(2) == 0 { // a relist shows neither that it came nor that it went
		w.watch = slices.DeleteFunc(w.watch, func(e watched) bool { return e.volume == name })
		return
	}
	w.watch = append(w.watch, watched{volume: name, tell: func() {
		if pv == nil {
			delete(w.pvCache, name)
			w.note("watch: VolumeGone %s", name)
			w.table.Post(modelClaim, VolumeGone{name})
			return
		}
		w.pvCache[name] = pv
		w.note("watch: VolumeSeen %s", name)
		if w.inCache == nil || w.inCache.Spec.VolumeName == "" {
			w.table.Begin(modelClaim, VolumeSeen{pv})
		} else {
			w.table.Post(modelClaim, VolumeSeen{pv})
		}
	}})
}

// happen lets one thing happen.
func (w *world) happen() {
	switch n := w.random.IntN(100); {
	case n < 25:
		w.work()
	case n < 35:
		w.doNext()
	case n < 50:
		w.finishAction()
	case n < 65:
		w.deliver()
	case n < 72:
		w.pass(time.Duration(w.random.IntN(90_000)) * time.Millisecond)
	case n < 76:
		w.runLate()
	case n < 80:
		w.note("woken")
		w.table.Post(modelClaim, Woken{})
	case n < 82:
		w.another = !w.another
		w.note("the class is another's: %v", w.another)
		w.table.ClassChanged("essd")
	case n < 84:
		w.table.NodeChanged("node-1")
	case n < 85:
		if w.random.IntN(2) == 0 {
			w.table.DriverBack()
		} else {
			w.note("SiblingChanged")
			w.table.Post(modelClaim, SiblingChanged{})
		}
	case n < 86:
		w.note("EndRequested")
		w.table.Post(modelClaim, EndRequested{"no proof"})
	case n < 89:
		w.note("CRASH")
		w.start()
	case n < 92 && w.claim != nil && w.claim.DeletionTimestamp == nil:
		w.updateClaim(func(c *v1.PersistentVolumeClaim) {
			if w.random.IntN(2) == 0 {
				c.Annotations = map[string]string{request.AnnSelectedNode: fmt.Sprintf("node-%d", 1+w.random.IntN(2))}
			} else {
				c.Labels = map[string]string{"n": fmt.Sprint(w.random.IntN(1000))}
			}
		})
	case n < 93 && w.claim != nil:
		w.updateClaim(func(c *v1.PersistentVolumeClaim) {
			deleted := metav1.NewTime(w.now)
			c.DeletionTimestamp = &deleted
		})
	case n < 95 && w.claim != nil && w.claim.DeletionTimestamp != nil:
		w.claim = nil
		w.publishClaim()
	case n < 97:
		w.bind()
	case n < 99:
		w.deleteVolume()
	}
}

// bind is what Kubernetes does to a claim and a PersistentVolume that was made for it.
func (w *world) bind() {
	if w.claim == nil || w.claim.DeletionTimestamp != nil || w.claim.Spec.VolumeName != "" {
		return
	}
	for _, pv := range w.volumes(w.pvs) {
		if pv.DeletionTimestamp == nil {
			w.note("bound to %s", pv.Name)
			w.updateClaim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = pv.Name })
			return
		}
	}
}

// deleteVolume is what the owner and then the deletion of PersistentVolumes do to one that isn't bound.
func (w *world) deleteVolume() {
	for _, pv := range w.volumes(w.pvs) {
		if w.claim != nil && w.claim.Spec.VolumeName == pv.Name {
			continue
		}
		if pv.DeletionTimestamp == nil {
			w.note("PV %s is deleted", pv.Name)
			deleted := metav1.NewTime(w.now)
			pv = pv.DeepCopy()
			pv.DeletionTimestamp = &deleted
			w.pvs[pv.Name] = pv
			w.publishVolume(pv.Name)
			return
		}
		if !w.table.Settled(modelClaim, pv.Name, func() {}) {
			w.table.Post(modelClaim, Woken{})
			return
		}
		if w.random.IntN(4) == 0 {
			w.note("PV %s is deleted, its disk is kept", pv.Name)
			w.kept = append(w.kept, w.disks[pv.Name])
		} else {
			w.note("disk and PV %s are deleted", pv.Name)
		}
		if w.journal != nil && w.table.Phase(modelClaim) != Prefetched {
			w.fail("PersistentVolume %s goes while the journal has its request", pv.Name)
		}
		w.journal = nil // what was prefetched is cancelled
		delete(w.disks, pv.Name)
		delete(w.pvs, pv.Name)
		w.publishVolume(pv.Name)
		return
	}
}

func (w *world) deliver() {
	if len(w.watch) > 0 {
		next := w.watch[0]
		w.watch = w.watch[1:]
		next.tell()
	}
}

func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	if !w.wakeAt.IsZero() && !w.now.Before(w.wakeAt) {
		w.wakeAt = time.Time{}
		w.queued = true
	}
}

func (w *world) runLate() {
	if len(w.late) > 0 {
		next := w.late[0]
		w.late = w.late[1:]
		next()
	}
}

// work is a worker that takes the claim off the queue.
func (w *world) work() {
	if !w.queued || w.working {
		return
	}
	w.working = true
	w.queued = false
	w.table.mu.Lock()
	var before Phase
	var events []Event
	at, ok := w.table.records[modelClaim]
	if ok {
		before, events = at.record.phase, slices.Clone(at.inbox)
	}
	w.table.mu.Unlock()
	actions := w.table.Next(modelClaim, w.now)
	if ok {
		w.note("%v: %v -> %v %v", before, events, at.record.phase, actions)
		switch len(events) {
		case 0:
			w.seen.add(before, Tick{}, at.record.phase)
		case 1:
			w.seen.add(before, events[0], at.record.phase)
		}
	}
	w.do(actions)
}

func (w *world) do(actions []Action) {
	for i, a := range actions {
		if hasResult(a) && i != len(actions)-1 {
			w.fail("%v is followed by %v", a, actions[i+1:])
		}
	}
	w.todo = actions
	if w.random.IntN(2) == 0 {
		for w.pending == nil && w.working {
			w.doNext()
		}
	}
}

func hasResult(a Action) bool { _, ok := a.(ResultAction); return ok }

// doNext does the next action, or finds that all are done.
func (w *world) doNext() {
	switch {
	case !w.working || w.pending != nil:
	case len(w.todo) == 0:
		w.working = false
		w.table.Done(modelClaim)
	default:
		next := w.todo[0]
		w.todo = w.todo[1:]
		w.doOne(next)
	}
}

func (w *world) doOne(action Action) {
	if hasResult(action) {
		w.pending = action
	}
	switch a := action.(type) {
	case CallDriver:
		w.send(a)
	case Prefetch:
		if w.random.IntN(2) == 0 && w.journal == nil {
			w.journal = w.requestOf(a.Claim)
		}
	case CancelPrefetch, EraseJournal:
		w.journal = nil
	case ReportEnd:
		if a.Kept == "" { // nothing stands for it from now on: an operator has said so
			w.keepDisks()
		}
	case ReportKept:
		w.keepDisks()
	case RequeueAfter:
		if a.Pause < 0 {
			w.fail("a pause of %v", a.Pause)
		}
		if at := w.now.Add(a.Pause); w.wakeAt.IsZero() || at.Before(w.wakeAt) { // as a delaying queue does
			w.wakeAt = at
		}
	}
}

// keepDisks leaves the disks without a PersistentVolume to operators.
func (w *world) keepDisks() {
	clear(w.making)
	for id := range w.disks {
		if w.pvs[id] == nil {
			w.kept = append(w.kept, w.disks[id])
			delete(w.disks, id)
		}
	}
}

// send is the moment at which ECS may receive the call.
func (w *world) send(call CallDriver) {
	if w.journal == nil {
		w.fail("the driver is asked for what the journal doesn't have")
	}
	if call.First && (slices.Contains(w.kept, call.Request.Create.Name) || w.exists(call.Request.Create.Name) || w.making[call.Request.Create.Name]) {
		w.fail("a first call for a volume that may exist")
	}
}

func (w *world) exists(name string) bool {
	for _, of := range w.disks {
		if of == name {
			return true
		}
	}
	return false
}

// finishAction brings the result of the action under way.
func (w *world) finishAction() {
	if w.pending == nil {
		return
	}
	a := w.pending
	w.pending = nil
	result := w.result(a)
	before := w.table.records[modelClaim].record.phase
	actions := w.table.Result(modelClaim, result, w.now)
	after := Ended
	if at, ok := w.table.records[modelClaim]; ok {
		after = at.record.phase
	}
	w.note("%v: %v -> %v %v", before, result, after, actions)
	w.seen.add(before, result, after)
	w.do(actions)
}

var (
	errChance = errors.New("by chance")
	modelNode = "node-1"
)

func (w *world) requestOf(claim *v1.PersistentVolumeClaim) *request.Request {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "essd"}}
	if w.random.IntN(4) == 0 {
		class.ReclaimPolicy = ptr.To(v1.PersistentVolumeReclaimRetain)
	}
	node := selectedNode(claim)
	create := &csi.CreateVolumeRequest{Name: "disk-0f1e", CapacityRange: &csi.CapacityRange{RequiredBytes: 20}}
	if node != "" {
		create.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{"zone": "a"}}}}
	}
	r := &request.Request{Claim: claim, Class: class, Node: node, Create: create}
	if w.random.IntN(4) == 0 {
		r.Secrets.Provisioner = &v1.SecretReference{Name: "key"}
	}
	if w.random.IntN(4) == 0 {
		claim = claim.DeepCopy()
		claim.Spec.DataSource = &v1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "source"}
		r.Claim = claim
	}
	return r
}

func (w *world) err(of float64) error {
	if w.chance(of) {
		return errChance
	}
	return nil
}

// result is what an action may come to.
func (w *world) result(action Action) Event {
	switch a := action.(type) {
	case Resolve:
		return w.resolve(a)
	case CheckVolume:
		return w.checkVolume(a)
	case CheckNode:
		return NodeChecked{Gone: w.chance(.5)}
	case Protect:
		return Protected{Err: w.err(.2)}
	case WriteJournal:
		if err := w.err(.2); err != nil {
			if w.random.IntN(2) == 0 {
				w.journal = a.Request // the reply was lost
			}
			return Written{Err: err}
		}
		w.journal = a.Request
		if w.chance(.1) {
			return Written{Refusal: errChance}
		}
		return Written{}
	case ReadSecrets:
		return SecretsRead{Err: w.err(.2)}
	case CallDriver:
		return w.create(a)
	case CheckSiblings:
		return SiblingsChecked{w.siblings()}
	case SaveVolume:
		return w.save(a)
	case DeleteUnowned:
		return w.delete(a)
	case CheckClaim:
		return ClaimChecked{Gone: w.claim == nil}
	case RemoveSelectedNode:
		if err := w.err(.2); err != nil {
			return NodeRemoved{Err: err}
		}
		if w.claim != nil && selectedNode(w.claim) == a.Node {
			w.updateClaim(func(c *v1.PersistentVolumeClaim) { c.Annotations = nil })
		}
		return NodeRemoved{}
	}
	panic("no result of " + action.String())
}

func (w *world) resolve(a Resolve) Event {
	for _, pv := range w.volumes(w.pvCache) {
		return Resolved{Verdict: HasVolume, Volume: pv.Name}
	}
	if selectedNode(a.Claim) == "" || w.another {
		return Resolved{Verdict: NotNow}
	}
	if w.chance(.3) {
		verdict := []Verdict{Invalid, NotYet, NodeUnready, NodeGone, NoTopology, NodeNotAllowed, SiblingFirst, SiblingRefused}[w.random.IntN(8)]
		return Resolved{Verdict: verdict, Err: errChance, Transient: w.random.IntN(2) == 0}
	}
	r := w.requestOf(a.Claim)
	if w.chance(.1) {
		return Resolved{Verdict: Ready, Request: r, Refusal: errChance}
	}
	return Resolved{Verdict: Ready, Request: r}
}

// siblings is what other claims of the Pod may have come to.
func (w *world) siblings() Siblings {
	switch {
	case w.chance(.2):
		return Siblings{State: Awaited, Unselected: w.random.IntN(2) == 0, Err: errChance}
	case w.chance(.15):
		return Siblings{State: Refused, Err: errChance}
	}
	return Siblings{}
}

func (w *world) checkVolume(a CheckVolume) Event {
	switch {
	case w.chance(.2):
		return VolumeChecked{Err: errChance}
	case w.pvs[a.Name] != nil:
		return VolumeChecked{}
	case w.claim == nil || w.claim.Spec.VolumeName != "":
		return VolumeChecked{}
	}
	return VolumeChecked{Wanting: true}
}

// create is a driver that keeps its contract: a final code says that no disk of the
// name exists or comes to exist.
func (w *world) create(a CallDriver) Event {
	name := a.Request.Create.Name
	if w.chance(.1) {
		return Answer{Err: errChance, NotAsked: true, Sent: w.now}
	}
	open := w.exists(name) || w.making[name]
	if w.chance(.25) {
		final := []codes.Code{codes.ResourceExhausted, codes.InvalidArgument, codes.Internal, codes.FailedPrecondition, codes.AlreadyExists}
		if open {
			final = []codes.Code{codes.Aborted}
		}
		return Answer{Err: status.Error(final[w.random.IntN(len(final))], "no"), Sent: w.now}
	}
	if w.chance(.3) { // the reply is lost; ECS has the call, or will carry it out later, or never had it
		switch w.random.IntN(3) {
		case 0:
			w.make(name)
		case 1:
			if !w.making[name] && !w.exists(name) {
				w.making[name] = true
				w.late = append(w.late, func() {
					if w.making[name] { // else a later call with the same client token was carried out
						w.make(name)
					}
				})
			}
		}
		code := []codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Aborted, codes.Unknown}[w.random.IntN(4)]
		if w.random.IntN(4) == 0 {
			return Answer{Err: errChance, Sent: w.now}
		}
		return Answer{Err: status.Error(code, "lost"), Sent: w.now}
	}
	id := w.make(name)
	volume := &csi.Volume{VolumeId: id, CapacityBytes: 20}
	if a.Request.Create.VolumeContentSource != nil {
		volume.ContentSource = a.Request.Create.VolumeContentSource
	}
	if w.chance(.1) {
		volume.CapacityBytes = 10
	}
	if w.chance(.03) {
		volume.VolumeId = ""
	}
	return Answer{Response: &csi.CreateVolumeResponse{Volume: volume}, Sent: w.now, Siblings: w.siblings()}
}

// make makes the disk of a name, or finds it.
func (w *world) make(name string) string {
	delete(w.making, name)
	for id, of := range w.disks {
		if of == name && w.pvs[id] == nil {
			return id
		}
	}
	for id, of := range w.disks {
		if of == name {
			return id
		}
	}
	w.made++
	id := fmt.Sprintf("d-%d", w.made)
	w.note("disk %s is made", id)
	w.disks[id] = name
	return id
}

func (w *world) save(a SaveVolume) Event {
	id := a.Volume.GetVolumeId()
	if pv := w.pvs[id]; pv != nil {
		if pv.DeletionTimestamp != nil {
			return VolumeSaved{Err: errors.New("still being deleted")}
		}
		return VolumeSaved{Volume: pv}
	}
	if w.chance(.1) {
		return VolumeSaved{Err: errChance, Refused: w.random.IntN(2) == 0}
	}
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: id, Annotations: map[string]string{request.AnnVolumeName: a.Request.Create.Name}}}
	w.pvs[id] = pv
	w.note("PV %s is saved", id)
	w.publishVolume(id)
	if w.chance(.15) {
		return VolumeSaved{Err: errChance} // the reply was lost
	}
	return VolumeSaved{Volume: pv}
}

func (w *world) delete(a DeleteUnowned) Event {
	if w.pvs[a.ID] != nil {
		return VolumeDeleted{ID: a.ID, Owner: a.ID}
	}
	if w.journal == nil {
		w.fail("disk %s is deleted, and the journal doesn't have its request", a.ID)
	}
	if w.chance(.2) {
		if w.random.IntN(2) == 0 {
			delete(w.disks, a.ID)
		}
		return VolumeDeleted{ID: a.ID, Err: errChance}
	}
	if w.chance(.1) {
		return VolumeDeleted{ID: a.ID, Kept: errChance}
	}
	w.note("disk %s is deleted", a.ID)
	delete(w.disks, a.ID)
	return VolumeDeleted{ID: a.ID}
}

// check looks at the promises that hold at any moment.
func (w *world) check() {
	for id := range w.disks {
		if w.pvs[id] == nil && w.journal == nil {
			w.fail("nobody owns disk %s", id)
		}
	}
	for name := range w.making {
		if w.journal == nil {
			w.fail("nobody owns the disk of %s that is being made", name)
		}
	}
	if len(w.disks) > 1 {
		w.fail("there are disks %v", w.disks)
	}
}

// settle lets the world come to rest, and looks at what is left.
func (w *world) settle() {
	w.note("CALM")
	w.calm = true
	if w.another {
		w.another = false
		w.table.ClassChanged("essd")
	}
	if w.claim != nil && w.claim.DeletionTimestamp == nil && selectedNode(w.claim) == "" && w.claim.Spec.VolumeName == "" {
		w.updateClaim(func(c *v1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{request.AnnSelectedNode: modelNode}
		})
	}
	for range 1000 {
		for len(w.watch) > 0 {
			w.deliver()
		}
		for len(w.late) > 0 {
			w.runLate()
		}
		w.finishAction()
		for w.working && w.pending == nil {
			w.doNext()
		}
		w.work()
		w.check()
		if w.claim != nil && w.claim.DeletionTimestamp == nil && w.claim.Spec.VolumeName == "" && selectedNode(w.claim) == "" {
			w.updateClaim(func(c *v1.PersistentVolumeClaim) {
				c.Annotations = map[string]string{request.AnnSelectedNode: modelNode}
			})
		}
		w.pass(20 * time.Second)
		w.dropDeleted()
	}
	wants := w.claim != nil && w.claim.DeletionTimestamp == nil && w.claim.Spec.VolumeName == ""
	if wants && len(w.pvs) == 0 {
		w.fail("nobody looks at the claim: %v", w.phaseNow())
	}
	for id := range w.disks {
		if w.pvs[id] == nil {
			w.fail("disk %s has no PersistentVolume in the end: %v", id, w.phaseNow())
		}
	}
	if w.table.Request(modelClaim) != nil {
		w.fail("the request is open in the end: %v", w.phaseNow())
	}
	if w.journal != nil {
		w.fail("the journal has a request in the end: %v", w.phaseNow())
	}
	if !wants && len(w.table.records) > 0 {
		w.fail("the Record of a claim that is bound or gone is kept: %v", w.phaseNow())
	}
}

// dropDeleted finishes the deletion of PersistentVolumes that is under way.
func (w *world) dropDeleted() {
	for _, pv := range w.volumes(w.pvs) {
		if pv.DeletionTimestamp != nil {
			w.deleteVolume()
		}
	}
}

func (w *world) phaseNow() string {
	if at, ok := w.table.records[modelClaim]; ok {
		return fmt.Sprintf("%v, inbox %v", at.record.phase, at.inbox)
	}
	return "no Record"
}

// transitions are the changes of phase that were seen, with the kind of event.
type transitions map[string]int

func (t transitions) add(from Phase, e Event, to Phase) {
	t[fmt.Sprintf("%v + %s -> %v", from, kind(e), to)]++
}

// kind is an event's kind as far as the next phase may depend on it.
func kind(e Event) string {
	if resolved, ok := e.(Resolved); ok {
		return "Resolved " + resolved.Verdict.String()
	}
	return Name(e)
}
