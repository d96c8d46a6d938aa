package claim

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/csiconn"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/topology"
)

var (
	long      = flag.Bool("long", false, "walk 100 000 random sequences")
	firstSeed = flag.Uint64("seed", 1, "of the first sequence; each has the next one")
)

// TestModel walks random sequences of what a cluster, a driver that keeps its contract, a journal and crashes may do to one claim: sync
// itself runs, and is stopped and killed at each question that it asks. No sequence may have, at any moment, a disk that neither a
// PersistentVolume nor the journal knows of, two disks of one request, or a first call that isn't the first; and once the world is calm, a
// claim that wants a volume has one, and no disk is left that nobody owns.
func TestModel(t *testing.T) {
	sequences := 3_000
	if *long {
		sequences = 100_000
	}
	seen := map[string]int{}
	for i := range sequences {
		seed := *firstSeed + uint64(i)
		if err := walk(seed, seen); err != nil {
			t.Fatalf("-seed %d: %v", seed, err)
		}
	}
	for _, what := range []string{"CRASH", "Resolve", "ReadSecrets", "Protect", "WriteJournal", "CallDriver", "SaveVolume", "DeleteUnowned", "CheckVolume",
		"CheckNode", "RemoveSelectedNode", "held", "recovered", "ended", "kept"} {
		if seen[what] == 0 {
			t.Errorf("%s was never seen", what)
		}
	}
}

// world is one claim with all that may happen to it.
type world struct {
	*stage
	random  *rand.Rand
	log     []string
	seen    map[string]int
	calm    bool
	another bool // the class is another provisioner's at present

	claim *v1.PersistentVolumeClaim // as the API server has it; nil: gone
	pvs   map[string]*v1.PersistentVolume
	watch []watched // events that the watches have not delivered
	late  []func()  // effects of calls that ECS has received
	saves int       // PersistentVolumes that were saved

	disks  map[string]string // disk ID -> CSI volume name
	making map[string]bool   // names of creates that were received and not carried out
	kept   []string          // names of disks that the owner keeps without a PersistentVolume
	made   int

	journal *request.Request // what outlives a crash
	erased  *request.Request // what may outlive it although it was deleted: nobody has written the journal since
}

// watched is an event of a watch.
type watched struct {
	volume string // that it shows or has gone
	tell   func()
}

func walk(seed uint64, seen map[string]int) (err error) {
	w := &world{
		random: rand.New(rand.NewPCG(seed, 16)), seen: seen,
		pvs: map[string]*v1.PersistentVolume{}, disks: map[string]string{}, making: map[string]bool{},
	}
	defer func() {
		w.stop()
		if r := recover(); r != nil {
			if fault, ok := r.(fault); ok {
				err = fmt.Errorf("%s\n%s", string(fault), strings.Join(w.log, "\n"))
				return
			}
			panic(fmt.Sprintf("seed %d: %v\n%s", seed, r, strings.Join(w.log, "\n")))
		}
	}()
	w.start(time.Unix(1_700_000_000, 0))
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

// stop kills the process.
func (w *world) stop() {
	for w.stage != nil && w.pending != nil {
		w.answer(crash{})
	}
}

// start begins a process that leads: its caches are as new as the API server's state.
func (w *world) start(now time.Time) {
	w.stop()
	w.watch = nil
	config := Config{Timeout: time.Minute, RetryStart: time.Second, RetryMax: 5 * time.Minute, NodeGrace: time.Minute, Workers: 1, DriverKnowsUse: true}
	w.stage = newStage(config, now, w.did)
	w.Lead()
	for _, pv := range w.pvs {
		_ = w.Volumes.Add(pv)
	}
	if w.claim != nil {
		_ = w.Claims.Add(w.claim)
	}
	if w.journal == nil && w.random.IntN(2) == 0 {
		w.journal = w.erased // it was not written again
	}
	w.erased = nil
	if w.journal != nil {
		if saved := slices.ContainsFunc(w.volumesNow(), w.journal.IsSavedAs); saved {
			w.journal = nil
		} else {
			w.seen["recovered"]++
			r := *w.journal
			r.Claim = r.Claim.DeepCopy()
			r.Claim.ResourceVersion = ""
			w.Recover(&r)
		}
	}
	if w.claim != nil {
		w.offer(w.claim)
	}
}

// did notes what sync has done to the world.
func (w *world) did(what string) {
	w.note("%s", what)
	switch {
	case what == "EraseJournal":
		w.erased, w.journal = w.journal, nil
	case what == "FlushJournal":
		w.erased = nil
	case strings.HasPrefix(what, "Event "+reasonHeld):
		w.seen["held"]++
	case strings.HasPrefix(what, "Event "+reasonEnded), strings.HasPrefix(what, "Event "+reasonVolumeKept):
		// nothing stands for it from now on: an operator has said so, or finds it
		w.seen["ended"]++
		w.keepDisks()
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

func (w *world) volumesNow() (list []*v1.PersistentVolume) {
	for _, pv := range w.pvs {
		list = append(list, pv)
	}
	slices.SortFunc(list, func(a, b *v1.PersistentVolume) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (w *world) createClaim() {
	w.claim = &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "data", UID: testUID, ResourceVersion: "1", CreationTimestamp: metav1.NewTime(w.now.Add(time.Duration(w.random.IntN(5)-2) * time.Second)), // clocks differ
		Annotations: map[string]string{request.AnnSelectedNode: "node-1", request.AnnStorageProvisioner: "disk"},
	}, Spec: v1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("essd")}}
	w.publishClaim(nil)
}

// publishClaim has the watch show the claim as it is now.
func (w *world) publishClaim(old *v1.PersistentVolumeClaim) {
	claim := w.claim
	w.watch = append(w.watch, watched{tell: func() {
		if claim == nil {
			w.note("watch: ClaimGone")
			_ = w.Claims.Delete(old)
			w.ClaimGone(old)
			return
		}
		w.note("watch: ClaimChanged node=%q deleting=%v volume=%q", claim.Annotations[request.AnnSelectedNode], claim.DeletionTimestamp != nil, claim.Spec.VolumeName)
		_ = w.Claims.Add(claim)
		w.ClaimChanged(old, claim)
		w.offer(claim)
	}})
}

// offer is what the library does with a claim.
func (w *world) offer(claim *v1.PersistentVolumeClaim) {
	if claim.Spec.VolumeName == "" && w.ShouldStart(claim) {
		w.Start(claim)
	}
}

func (w *world) updateClaim(change func(*v1.PersistentVolumeClaim)) {
	old := w.claim
	w.claim = w.claim.DeepCopy()
	change(w.claim)
	version, _ := strconv.Atoi(w.claim.ResourceVersion)
	w.claim.ResourceVersion = strconv.Itoa(version + 1)
	w.publishClaim(old)
}

func (w *world) selectNode(node string) {
	w.updateClaim(func(c *v1.PersistentVolumeClaim) { c.Annotations[request.AnnSelectedNode] = node })
}

func (w *world) publishVolume(pv *v1.PersistentVolume) {
	name, gone := pv.Name, w.pvs[pv.Name] == nil
	_, shown, _ := w.Volumes.Get(pv)
	if gone && !shown && w.random.IntN(2) == 0 { // a relist shows neither that it came nor that it went
		w.watch = slices.DeleteFunc(w.watch, func(e watched) bool { return e.volume == name })
		return
	}
	w.watch = append(w.watch, watched{volume: name, tell: func() {
		if gone {
			w.note("watch: VolumeGone %s", name)
			_ = w.Volumes.Delete(pv)
			w.VolumeGone(pv)
			return
		}
		w.note("watch: VolumeSeen %s", name)
		_ = w.Volumes.Add(pv)
		w.VolumeChanged(nil, pv)
	}})
}

// happen lets one thing happen.
func (w *world) happen() {
	switch n := w.random.IntN(100); {
	case n < 25:
		w.begin()
	case n < 50:
		w.reply()
	case n < 65:
		w.deliver()
	case n < 72:
		w.pass(time.Duration(w.random.IntN(90_000)) * time.Millisecond)
	case n < 76:
		w.runLate()
	case n < 80:
		w.note("woken")
		w.Wake(testUID)
	case n < 82:
		w.another = !w.another
		w.note("the class is another's: %v", w.another)
		w.ClassChanged("essd")
	case n < 84:
		w.NodeChanged("node-1")
	case n < 85:
		if w.random.IntN(2) == 0 {
			w.DriverBack()
		} else {
			w.note("SiblingChanged")
			w.siblingChanged()
		}
	case n < 86:
		w.note("EndRequested")
		w.end = "no proof"
		w.EndRequested(string(testUID), w.end)
	case n < 89:
		w.note("CRASH")
		w.seen["CRASH"]++
		w.start(w.now)
	case n < 92 && w.claim != nil && w.claim.DeletionTimestamp == nil:
		if w.random.IntN(2) == 0 {
			w.selectNode(fmt.Sprintf("node-%d", 1+w.random.IntN(2)))
		} else {
			w.updateClaim(func(c *v1.PersistentVolumeClaim) { c.Labels = map[string]string{"n": fmt.Sprint(w.random.IntN(1000))} })
		}
	case n < 93 && w.claim != nil:
		w.updateClaim(func(c *v1.PersistentVolumeClaim) { c.DeletionTimestamp = ptr.To(metav1.NewTime(w.now)) })
	case n < 95 && w.claim != nil && w.claim.DeletionTimestamp != nil:
		old := w.claim
		w.claim = nil
		w.publishClaim(old)
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
	for _, pv := range w.volumesNow() {
		if pv.DeletionTimestamp == nil {
			w.note("bound to %s", pv.Name)
			w.updateClaim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = pv.Name })
			return
		}
	}
}

// deleteVolume is what the owner and then the deletion of PersistentVolumes do to one that isn't bound.
func (w *world) deleteVolume() {
	for _, pv := range w.volumesNow() {
		if w.claim != nil && w.claim.Spec.VolumeName == pv.Name {
			continue
		}
		if pv.DeletionTimestamp == nil {
			w.note("PV %s is deleted", pv.Name)
			pv = pv.DeepCopy()
			pv.DeletionTimestamp = ptr.To(metav1.NewTime(w.now))
			w.pvs[pv.Name] = pv
			w.publishVolume(pv)
			return
		}
		if w.isUnderWay(testUID) {
			return
		}
		if w.random.IntN(4) == 0 {
			w.note("PV %s is deleted, its disk is kept", pv.Name)
			w.kept = append(w.kept, w.disks[pv.Name])
		} else {
			w.note("disk and PV %s are deleted", pv.Name)
		}
		if w.journal != nil {
			w.fail("PersistentVolume %s goes while the journal has its request", pv.Name)
		}
		w.erased = nil // it was flushed
		delete(w.disks, pv.Name)
		delete(w.pvs, pv.Name)
		w.publishVolume(pv)
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

func (w *world) runLate() {
	if len(w.late) > 0 {
		next := w.late[0]
		w.late = w.late[1:]
		next()
	}
}

// reply answers the question that sync waits for.
func (w *world) reply() {
	if w.pending == nil {
		return
	}
	switch {
	case w.chance(.2):
		w.judged = judgement{awaited: errChance, unselected: w.random.IntN(2) == 0}
	case w.chance(.15):
		w.judged = judgement{refused: errChance}
	default:
		w.judged = judgement{}
	}
	q := w.pending
	w.seen[q.name]++
	reply := w.result(q)
	w.note("%s: %v", q.name, reply)
	w.answer(reply)
}

var errChance = errors.New("by chance")

func (w *world) requestOf(claim *v1.PersistentVolumeClaim) *request.Request {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "essd"}}
	if w.random.IntN(4) == 0 {
		class.ReclaimPolicy = ptr.To(v1.PersistentVolumeReclaimRetain)
	}
	node := claim.Annotations[request.AnnSelectedNode]
	create := &csi.CreateVolumeRequest{Name: "disk-0f1e", CapacityRange: &csi.CapacityRange{RequiredBytes: 20}}
	if node != "" {
		create.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{"zone": "a"}}}}
	}
	r := &request.Request{Claim: claim, Class: class, Node: node, Create: create}
	if w.random.IntN(4) == 0 {
		r.Secrets = request.SecretRefs{request.ProvisionerSecret: &v1.SecretReference{Name: "key"}}
	}
	if w.random.IntN(4) == 0 {
		claim = claim.DeepCopy()
		claim.Spec.DataSource = &v1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "source"}
		r.Claim = claim
	}
	return r
}

func (w *world) err(of float64) any {
	if w.chance(of) {
		return errChance
	}
	return nil
}

// result is what a question may be answered with.
func (w *world) result(q *question) any {
	switch q.name {
	case "Resolve":
		return w.resolve(q.about.(*v1.PersistentVolumeClaim))
	case "CheckVolume":
		return w.checkVolume(q.about.(string))
	case "CheckNode":
		return w.chance(.5)
	case "WriteJournal":
		asked := w.claims[testUID].request
		if err := w.err(.2); err != nil {
			if w.random.IntN(2) == 0 {
				w.journal = asked // the reply was lost
			}
			return err
		}
		w.journal = asked
		if w.chance(.1) {
			w.Refusals.Refused(wantOf(asked), 0, w.now)
		}
		return nil
	case "CallDriver":
		return w.create(q.about.(call))
	case "SaveVolume":
		return w.save(q.about.(*v1.PersistentVolume))
	case "DeleteUnowned":
		return w.delete(q.about.(string))
	case "RemoveSelectedNode":
		if w.erased != nil && w.journal == nil {
			w.fail("the claim returns to the scheduler, and the next process may find its request")
		}
		if err := w.err(.2); err != nil {
			return err
		}
		if w.claim == nil {
			return ""
		}
		if w.claim.Annotations[request.AnnSelectedNode] == q.about {
			w.updateClaim(func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, request.AnnSelectedNode) })
		}
		return w.claim.ResourceVersion
	}
	return w.err(.2) // Protect, ReadSecrets
}

func (w *world) resolve(claim *v1.PersistentVolumeClaim) any {
	if claim.Annotations[request.AnnSelectedNode] == "" || w.another {
		return errNotOurs
	}
	if w.chance(.3) {
		return []error{
			&failure{kind: invalid, err: errChance, wait: 5 * time.Minute}, errChance, &csiconn.NotAsked{Err: errChance},
			&topology.Error{Reason: topology.NodeUnready}, &topology.Error{Reason: topology.NodeGone}, &topology.Error{Reason: topology.NoTopology},
			&topology.Error{Reason: topology.NodeNotAllowed}, &failure{kind: siblingFirst, err: errChance}, &failure{kind: reschedules, err: errChance},
		}[w.random.IntN(9)]
	}
	r := w.requestOf(claim)
	if w.Refusals.Served(wantOf(r), w.now); w.chance(.1) {
		w.Refusals.Refused(wantOf(r), 0, w.now)
	}
	return r
}

func (w *world) checkVolume(name string) any {
	switch {
	case w.chance(.2):
		return errChance
	case w.pvs[name] != nil:
		return false
	}
	return w.claim != nil && request.NeedsVolume(w.claim)
}

func (w *world) exists(name string) bool {
	for _, of := range w.disks {
		if of == name {
			return true
		}
	}
	return false
}

// create is a driver that keeps its contract: a final code says that no disk of the name exists or comes to exist.
func (w *world) create(asked call) any {
	name := asked.Name
	if w.journal == nil {
		w.fail("the driver is asked for what the journal doesn't have")
	}
	open := w.exists(name) || w.making[name]
	if asked.first && (open || slices.Contains(w.kept, name)) {
		w.fail("a first call for a volume that may exist")
	}
	if w.chance(.1) {
		return &csiconn.NotAsked{Err: errChance}
	}
	if w.chance(.25) {
		final := []codes.Code{codes.ResourceExhausted, codes.InvalidArgument, codes.Internal, codes.FailedPrecondition, codes.AlreadyExists}
		if open {
			final = []codes.Code{codes.Aborted}
		}
		return status.Error(final[w.random.IntN(len(final))], "no")
	}
	if w.chance(.3) { // the reply is lost; ECS has the call, or will carry it out later, or never had it
		switch w.random.IntN(3) {
		case 0:
			w.make(name)
		case 1:
			if !open {
				w.making[name] = true
				w.late = append(w.late, func() {
					if w.making[name] { // else a later call with the same client token was carried out
						w.make(name)
					}
				})
			}
		}
		if w.random.IntN(4) == 0 {
			return errChance
		}
		return status.Error([]codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Aborted, codes.Unknown}[w.random.IntN(4)], "lost")
	}
	volume := &csi.Volume{VolumeId: w.make(name), CapacityBytes: 20, ContentSource: asked.VolumeContentSource}
	if w.chance(.1) {
		volume.CapacityBytes = 10
	}
	if w.chance(.03) {
		volume.VolumeId = ""
	}
	return &csi.CreateVolumeResponse{Volume: volume}
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

func (w *world) save(pv *v1.PersistentVolume) any {
	if saved := w.pvs[pv.Name]; saved != nil {
		if saved.DeletionTimestamp != nil {
			return errors.New("still being deleted")
		}
		return nil
	}
	if w.chance(.1) {
		if w.random.IntN(2) == 0 {
			return &apierrors.StatusError{ErrStatus: metav1.Status{Code: 403, Message: "by chance"}}
		}
		if by, saves := w.stage, w.saves; w.random.IntN(2) == 0 { // the API server is at work on it until it has done a later one, or the process is gone
			w.late = append(w.late, func() {
				if w.stage == by && w.saves == saves && w.claim != nil && request.NeedsVolume(w.claim) {
					w.saved(pv)
				}
			})
		}
		return errChance
	}
	w.saved(pv)
	return w.err(.15) // the reply may be lost
}

func (w *world) saved(pv *v1.PersistentVolume) {
	if w.disks[pv.Name] == "" {
		w.fail("PersistentVolume %s is saved, and its disk was deleted", pv.Name)
	}
	w.saves++
	w.pvs[pv.Name] = pv
	w.note("PV %s is saved", pv.Name)
	w.publishVolume(pv)
}

func (w *world) delete(id string) any {
	if w.pvs[id] != nil {
		return errOwned(id)
	}
	if w.journal == nil {
		w.fail("disk %s is deleted, and the journal doesn't have its request", id)
	}
	if w.chance(.2) {
		if w.random.IntN(2) == 0 {
			delete(w.disks, id)
		}
		return errChance
	}
	if w.disks[id] != "" && w.chance(.1) {
		w.seen["kept"]++
		return errKept("by chance")
	}
	w.note("disk %s is deleted", id)
	delete(w.disks, id)
	return nil
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
		w.ClassChanged("essd")
	}
	for range 1000 {
		for len(w.watch) > 0 {
			w.deliver()
		}
		for len(w.late) > 0 {
			w.runLate()
		}
		w.reply()
		w.begin()
		w.check()
		if w.claim != nil && request.NeedsVolume(w.claim) && w.claim.Annotations[request.AnnSelectedNode] == "" {
			w.selectNode("node-1")
		}
		w.pass(20 * time.Second)
		for _, pv := range w.volumesNow() {
			if pv.DeletionTimestamp != nil { // its deletion is finished
				w.deleteVolume()
			}
		}
	}
	e := w.claims[testUID]
	wants := w.claim != nil && request.NeedsVolume(w.claim)
	if wants && len(w.pvs) == 0 {
		w.fail("nobody looks at the claim: %+v", e)
	}
	for id := range w.disks {
		if w.pvs[id] == nil {
			w.fail("disk %s has no PersistentVolume in the end: %+v", id, e)
		}
	}
	if e != nil && e.request != nil {
		w.fail("the request is open in the end: %+v", e)
	}
	if w.journal != nil {
		w.fail("the journal has a request in the end: %+v", e)
	}
	if !wants && e != nil {
		w.fail("a claim that is bound or gone is remembered: %+v", e)
	}
}
