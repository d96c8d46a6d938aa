package audit

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	thisCluster = "c-this"
	driver      = "disk.example.com"
)

// world is a cluster at work and its ECS: actors take their steps in a random order while an audit reads.
type world struct {
	random *rand.Rand
	now    time.Time
	actors []*actor
	atWork *actor

	disks     history[Disk]
	snapshots history[Snapshot]

	requests    map[string]Request
	claims      map[string]corev1.PersistentVolumeClaim
	volumes     map[string]corev1.PersistentVolume
	attachments map[string]storagev1.VolumeAttachment
	contents    map[string]Content
	pods        map[string]corev1.Pod

	planted map[string]bool // kind and ID of what an audit must find
}

// history is what ECS has had, so that a read may show the past.
type history[T any] map[string][]version[T]

type version[T any] struct {
	at     time.Time
	exists bool
	is     T
}

func (h history[T]) set(id string, at time.Time, exists bool, is T) {
	h[id] = append(h[id], version[T]{at, exists, is})
}

// asOf returns what there was of an ID at a time.
func (h history[T]) asOf(id string, at time.Time) (is T, exists bool) {
	for _, v := range h[id] {
		if v.at.After(at) {
			break
		}
		is, exists = v.is, v.exists
	}
	return is, exists
}

// actor takes one step after another.
type actor struct {
	steps []func()
	due   time.Time // the next step is taken by then; zero: at any time
}

func newWorld(seed uint64) *world {
	w := &world{
		random: rand.New(rand.NewPCG(seed, 17)), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		disks: history[Disk]{}, snapshots: history[Snapshot]{}, requests: map[string]Request{}, claims: map[string]corev1.PersistentVolumeClaim{},
		volumes: map[string]corev1.PersistentVolume{}, attachments: map[string]storagev1.VolumeAttachment{}, contents: map[string]Content{},
		pods: map[string]corev1.Pod{}, planted: map[string]bool{},
	}
	w.plant()
	w.now = w.now.Add(24 * time.Hour)
	for n := range 6 + w.random.IntN(6) {
		w.actors = append(w.actors, &actor{steps: w.volumeLife(n)})
	}
	for n := range 2 + w.random.IntN(3) {
		w.actors = append(w.actors, &actor{steps: w.snapshotLife(n)}, &actor{steps: w.lateDeletion(n)})
	}
	w.work(w.random.IntN(80))
	return w
}

// work has the actors take so many steps.
func (w *world) work(steps int) {
	for range steps {
		w.now = w.now.Add(time.Duration(w.random.IntN(2000)) * time.Millisecond)
		if len(w.actors) == 0 {
			return
		}
		at := w.random.IntN(len(w.actors))
		if late := slices.IndexFunc(w.actors, func(a *actor) bool { return !a.due.IsZero() && a.due.Before(w.now) }); late >= 0 {
			at = late
		}
		a := w.actors[at]
		if len(a.steps) == 0 {
			a.due = time.Time{}
			continue
		}
		step := a.steps[0]
		a.steps, a.due, w.atWork = a.steps[1:], time.Time{}, a
		step()
	}
}

// within has the next step of the actor at work taken soon.
func (w *world) within(d time.Duration) { w.atWork.due = w.now.Add(d) }

// Listing reads ECS in pages, each of which shows some moment of the last minute.
func (w *world) Listing(context.Context) (l Listing, err error) {
	l.Disks = listed(w, w.disks)
	l.Snapshots = listed(w, w.snapshots)
	return l, nil
}

func listed[T any](w *world, of history[T]) (all []T) {
	for page := range slices.Chunk(slices.Sorted(maps.Keys(of)), 3) {
		w.work(w.random.IntN(3))
		at := w.past()
		for _, id := range page {
			if is, exists := of.asOf(id, at); exists {
				all = append(all, is)
			}
		}
	}
	return all
}

// past returns the moment that a read shows.
func (w *world) past() time.Time {
	if w.random.IntN(2) == 0 {
		return w.now
	}
	return w.now.Add(-time.Duration(w.random.Int64N(int64(Lag))))
}

// Cluster reads the API server, kind by kind.
func (w *world) Cluster(context.Context) (c Cluster, err error) {
	c.At, c.Driver = w.now, driver
	for _, read := range []func(){
		func() { c.Requests = values(w.requests) },
		func() { c.Claims = values(w.claims) },
		func() { c.Volumes = values(w.volumes) },
		func() { c.Attachments = values(w.attachments) },
		func() { c.CSINodes = []storagev1.CSINode{csiNode("node-1", "i-1"), csiNode("node-2", "i-2")} },
		func() { c.Pods = values(w.pods) },
		func() { c.Contents = values(w.contents) },
	} {
		w.work(w.random.IntN(3))
		read()
	}
	return c, nil
}

func values[T any](m map[string]T) (all []T) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, m[k])
	}
	return all
}

func csiNode(name, instance string) storagev1.CSINode {
	return storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: instance}}}}
}

// pause lets the cluster work for as long as reads may lag.
func (w *world) pause(context.Context, int) error {
	for until := w.now.Add(Lag); w.now.Before(until); {
		w.work(1)
	}
	return nil
}

var ofThisCluster = Options{Clusters: []string{thisCluster}}

// plant leaves behind what an audit must find, a day before anything else happens.
func (w *world) plant() {
	found := func(kind Kind, id string) { w.planted[string(kind)+" "+id] = true }
	for n := range 1 + w.random.IntN(3) {
		id := fmt.Sprintf("d-orphan%d", n)
		d := Disk{ID: id, Cluster: thisCluster, Owner: thisCluster, Name: "disk-" + uid("orphan", n), GiB: 20, Created: w.now}
		if w.random.IntN(2) == 0 {
			d.Instances = []string{"i-1"}
		}
		w.disks.set(id, w.now, true, d)
		found(DiskWithoutVolume, id)
	}
	lost := pvOf("d-lost", "disk-"+uid("lost", 0), "lost", w.now)
	w.volumes[lost.Name] = lost
	found(VolumeWithoutDisk, "d-lost")

	w.snapshots.set("s-orphan", w.now, true, Snapshot{ID: "s-orphan", Cluster: thisCluster, Owner: thisCluster, Name: "snapshot-" + uid("shot", 0), Disk: "d-x", Created: w.now})
	found(SnapshotWithoutContent, "s-orphan")
	w.snapshots.set("s-copy", w.now, true, Snapshot{ID: "s-copy", Cluster: thisCluster, Owner: thisCluster, Copy: "disk-" + uid("copied", 0), Disk: "d-x", Created: w.now})
	found(LeftoverCopy, "s-copy")

	for n, instance := range []string{"i-1", "i-gone"} {
		id := fmt.Sprintf("d-held%d", n)
		w.disks.set(id, w.now, true, Disk{ID: id, Cluster: thisCluster, Owner: thisCluster, Name: "disk-" + uid("held", n), Instances: []string{instance}})
		w.volumes[id] = pvOf(id, "disk-"+uid("held", n), "held", w.now)
		found(UnwantedAttachment, id)
	}
	// What others own, and what is kept, is never named.
	w.disks.set("d-other", w.now, true, Disk{ID: "d-other", Cluster: "c-dead", Name: "disk-" + uid("other", 0)})
	w.disks.set("d-hand", w.now, true, Disk{ID: "d-hand", Cluster: thisCluster, Owner: thisCluster})
	w.disks.set("d-wanted", w.now, true, Disk{ID: "d-wanted", Cluster: thisCluster, Owner: thisCluster, Instances: []string{"i-2"}})
	w.volumes["d-wanted"] = pvOf("d-wanted", "", "wanted", w.now)
	w.pods["wanted"] = podOf("wanted", "node-2", "wanted")
	w.snapshots.set("s-kept", w.now, true, Snapshot{ID: "s-kept", Cluster: thisCluster, Owner: thisCluster, Archive: true, Created: w.now})
	w.snapshots.set("s-other", w.now, true, Snapshot{ID: "s-other", Cluster: "c-dead", Name: "snapshot-x", Created: w.now})
}

func uid(what string, n int) string { return fmt.Sprintf("%s-4f6b-%04d-9d3e", what, n) }

func pvOf(id, name, claim string, now time.Time) corev1.PersistentVolume {
	return corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: id, UID: types.UID("pv-" + id), CreationTimestamp: metav1.NewTime(now), Annotations: map[string]string{volumeNameAnnotation: name}},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: id}},
			ClaimRef:                      &corev1.ObjectReference{Namespace: "shop", Name: claim},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
}

func podOf(name, node, claim string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}},
	}
}

// volumeLife is a volume from its claim to its deletion, by disk-provisioner or by a provisioner without a journal, perhaps as a copy,
// perhaps attached now and then.
func (w *world) volumeLife(n int) (steps []func()) {
	claim, id, u := fmt.Sprintf("claim%d", n), fmt.Sprintf("d-%d", n), uid("claim", n)
	name := "disk-" + u
	journal, copied := w.random.IntN(3) > 0, w.random.IntN(3) == 0
	claimGoes := w.random.IntN(4) == 0 // while its disk is made
	add := func(s ...func()) { steps = append(steps, s...) }
	disk := func(change func(*Disk)) func() {
		return func() {
			d, _ := w.disks.asOf(id, w.now)
			change(&d)
			w.disks.set(id, w.now, true, d)
		}
	}
	wait := func() {}

	add(func() {
		w.claims[claim] = corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: claim, UID: types.UID(u)}}
	})
	if journal {
		add(func() { w.requests[u] = Request{Name: name, Claim: "shop/" + claim, ClaimUID: u} })
	}
	if claimGoes {
		add(func() { delete(w.claims, claim) })
	}
	if copied {
		shot := "s-copy" + id
		add(func() {
			w.snapshots.set(shot, w.now, true, Snapshot{ID: shot, Cluster: thisCluster, Owner: thisCluster, Copy: name, Disk: "d-x", Created: w.now})
		})
		defer func() {
			at := 5 + w.random.IntN(2) // the copy's snapshot goes when its disk is there, or is left to the sweep
			steps = slices.Insert(steps, min(at, len(steps)), func() { w.snapshots.set(shot, w.now, false, Snapshot{}) })
		}()
	}
	add(wait, func() {
		w.disks.set(id, w.now, true, Disk{ID: id, Cluster: thisCluster, Owner: thisCluster, Name: name, GiB: 20, Created: w.now})
	}, wait)
	add(func() { w.volumes[id] = pvOf(id, name, claim, w.now) })
	if journal && w.random.IntN(2) == 0 {
		add(func() { delete(w.requests, u) })
	}
	if !claimGoes {
		add(func() {
			c := w.claims[claim]
			c.Spec.VolumeName = id
			w.claims[claim] = c
		})
	}
	add(func() { delete(w.requests, u) })
	for turn := range w.random.IntN(4) {
		add(w.attachment(id, disk, turn)...)
	}
	add(func() { delete(w.claims, claim) })
	release := func() {
		pv := w.volumes[id]
		now := metav1.NewTime(w.now)
		pv.Status.Phase, pv.Status.LastPhaseTransitionTime = corev1.VolumeReleased, &now
		w.volumes[id] = pv
	}
	gone := func() {
		w.disks.set(id, w.now, false, Disk{})
	}
	add(release, gone, wait, func() { delete(w.volumes, id) })
	return steps
}

// lateDeletion is the end of a volume that was released a day ago, and whose disk waited for something. The PersistentVolume follows its
// disk within less than a minute.
func (w *world) lateDeletion(n int) []func() {
	id, earlier := fmt.Sprintf("d-late%d", n), w.now.Add(-24*time.Hour)
	w.disks.set(id, earlier, true, Disk{ID: id, Cluster: thisCluster, Owner: thisCluster, Name: "disk-" + uid("late", n), GiB: 20})
	pv, since := pvOf(id, "disk-"+uid("late", n), "late", earlier), metav1.NewTime(earlier)
	pv.Status.Phase, pv.Status.LastPhaseTransitionTime = corev1.VolumeReleased, &since
	w.volumes[id] = pv
	return []func(){
		func() {},
		func() {},
		func() { w.disks.set(id, w.now, false, Disk{}); w.within(Lag / 2) },
		func() { delete(w.volumes, id) },
	}
}

// attachment is a disk's time on a node: the VolumeAttachment is there before the disk is attached and until it is detached.
func (w *world) attachment(id string, disk func(func(*Disk)) func(), turn int) []func() {
	n := w.random.IntN(2)
	node, instance, name := fmt.Sprintf("node-%d", n+1), fmt.Sprintf("i-%d", n+1), fmt.Sprintf("va-%s-%d", id, turn)
	return []func(){
		func() {
			w.attachments[name] = storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: storagev1.VolumeAttachmentSpec{NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &id}}}
		},
		disk(func(d *Disk) { d.Instances = []string{instance} }),
		disk(func(d *Disk) { d.Instances, d.Detached = nil, w.now.Format(time.RFC3339Nano) }),
		func() { delete(w.attachments, name) },
	}
}

// snapshotLife is a snapshot from its content to its deletion.
func (w *world) snapshotLife(n int) []func() {
	u, id := uid("vs", n), fmt.Sprintf("s-%d", n)
	content := Content{Name: "snapcontent-" + u, SnapshotUID: u}
	return []func(){
		func() { w.contents[u] = content },
		func() {
			w.snapshots.set(id, w.now, true, Snapshot{ID: id, Cluster: thisCluster, Owner: thisCluster, Name: "snapshot-" + u, Disk: "d-x", Created: w.now})
		},
		func() { content.Handle = id; w.contents[u] = content },
		func() {},
		func() { w.snapshots.set(id, w.now, false, Snapshot{}) },
		func() { delete(w.contents, u) },
	}
}

// judge returns what of the planted a report lacks, and what it names falsely.
func (w *world) judge(r *Report) (missed, wrong []string) {
	named := map[string]bool{}
	for _, f := range r.Findings {
		if f.Kind.NeedsAction() {
			named[string(f.Kind)+" "+f.ID] = true
		}
	}
	for p := range w.planted {
		if !named[p] {
			missed = append(missed, p)
		}
	}
	for f := range named {
		if !w.planted[f] {
			wrong = append(wrong, strings.TrimSpace(f))
		}
	}
	slices.Sort(missed)
	slices.Sort(wrong)
	return missed, wrong
}
