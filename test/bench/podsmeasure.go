package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/drivertest"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/audit"
)

// podWatch notes when the API server first says of a Pod that it runs.
type podWatch struct {
	mu      sync.Mutex
	latest  map[string]*corev1.Pod // by name
	running map[types.UID]time.Time
}

// watchPods watches the Pods of the benchmark until ctx ends.
func watchPods(ctx context.Context, client kubernetes.Interface) (*podWatch, error) {
	w := &podWatch{latest: map[string]*corev1.Pod{}, running: map[types.UID]time.Time{}}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(benchNamespace))
	informer := factory.Core().V1().Pods().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { w.note(object, time.Now()) },
		UpdateFunc: func(_, object any) { w.note(object, time.Now()) },
	})
	factory.Start(ctx.Done())
	return w, err
}

func (w *podWatch) note(object any, at time.Time) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latest[pod.Name] = pod
	if _, known := w.running[pod.UID]; !known && pod.Status.Phase == corev1.PodRunning {
		w.running[pod.UID] = at
	}
}

// since returns the Pods of the names that were made after some time and run, by name; the API server has that time by the second.
func (w *podWatch) since(begin time.Time, names []string) map[string]startedPod {
	w.mu.Lock()
	defer w.mu.Unlock()
	pods := map[string]startedPod{}
	for _, name := range names {
		pod := w.latest[name]
		if pod == nil || pod.CreationTimestamp.Time.Before(begin.Truncate(time.Second)) || pod.DeletionTimestamp != nil {
			continue
		}
		if at, runs := w.running[pod.UID]; runs && at.After(begin) {
			pods[name] = startedPod{Pod: pod, running: at}
		}
	}
	return pods
}

// startedPod is a Pod that runs, and since when.
type startedPod struct {
	*corev1.Pod
	running time.Time
}

// awaitRunning returns when Pods of all names that were made after begin run.
func (b *podsBench) awaitRunning(ctx context.Context, begin time.Time, names []string) (pods map[string]startedPod, err error) {
	err = b.Await(ctx, fmt.Sprintf("%d Pods run", len(names)), waitLimit, func(context.Context) (bool, error) {
		if pods = b.pods.since(begin, names); len(pods) < len(names) {
			return false, fmt.Errorf("%d of %d run", len(pods), len(names))
		}
		return true, nil
	})
	return pods, err
}

// mountLogs are the kubelets' logs, which say when a Pod's volume is mounted.
type mountLogs struct {
	files map[string]*bufio.Reader // by node
	rest  map[string]string
	times map[types.UID]time.Time // by Pod
}

func openMountLogs(l *lab.Lab) *mountLogs {
	m := &mountLogs{files: map[string]*bufio.Reader{}, rest: map[string]string{}, times: map[types.UID]time.Time{}}
	for _, n := range l.RealNodes {
		if f, err := os.Open(filepath.Join(l.Logs, lab.Kubelet+"-"+n.Name+".log")); err == nil {
			m.files[n.Name] = bufio.NewReader(f)
		}
	}
	return m
}

// mountLine is what the kubelet logs (klog's format) when NodePublishVolume has ended, or an emptyDir is there.
var mountLine = regexp.MustCompile(`^I(\d{4} \d{2}:\d{2}:\d{2}\.\d{6}).*MountVolume\.SetUp succeeded .*\(UID: \\"([^\\]+)\\"\)`)

// read takes in what was logged since the last time.
func (m *mountLogs) read() error {
	for node, reader := range m.files {
		for {
			line, err := reader.ReadString('\n')
			m.rest[node] += line
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			if pod, at, ok := parseMount(m.rest[node], time.Now()); ok {
				m.times[pod] = at
			}
			m.rest[node] = ""
		}
	}
	return nil
}

// parseMount returns which Pod's volume a line of a log says to be mounted, and when.
func parseMount(line string, now time.Time) (pod types.UID, at time.Time, ok bool) {
	found := mountLine.FindStringSubmatch(line)
	if found == nil {
		return "", at, false
	}
	at, err := time.ParseInLocation("20060102 15:04:05.000000", fmt.Sprint(now.Year())+found[1], time.Local)
	return types.UID(found[2]), at, err == nil
}

// sample waits until Pods of all names run, or have their volumes attached where KWOK has them run at once, and finds out how each
// came to it.
func (b *podsBench) sample(ctx context.Context, from volumeSource, begin time.Time, names []string) (s podsSample, err error) {
	pods, err := b.awaitRunning(ctx, begin, names)
	if err != nil {
		return s, err
	}
	if b.kwok() && from.has() {
		if err := b.awaitAttached(ctx, len(names)); err != nil {
			return s, err
		}
	}
	records, err := b.readRecords(ctx, from, begin)
	if err != nil {
		return s, err
	}
	var paces []pace
	for i, name := range names {
		start := records.startOf(pods[name], b.kwok())
		if start.at[podCreated].IsZero() {
			return s, fmt.Errorf("the audit log does not say when Pod %s was made", name)
		}
		if from.paced {
			start.setPace(b.paces[i])
		}
		s.starts, paces = append(s.starts, start), append(paces, start.pace)
	}
	if from.name == sourceOurs {
		b.paces = paces
	}
	s.span()
	s.drained = records.drained()
	return s, nil
}

// awaitAttached waits for all VolumeAttachments.
func (b *podsBench) awaitAttached(ctx context.Context, n int) error {
	return b.Await(ctx, "all volumes are attached", waitLimit, func(ctx context.Context) (bool, error) {
		if err := sleepFor(ctx, 500*time.Millisecond); err != nil {
			return false, err
		}
		list, err := b.Client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err
		}
		attached := 0
		for _, a := range list.Items {
			if a.Status.Attached {
				attached++
			}
		}
		if attached < n {
			err = fmt.Errorf("%d of %d are attached", attached, n)
		}
		return err == nil, err
	})
}

// podsRecords are all that tells of the Pods of one run.
type podsRecords struct {
	begin       time.Time
	requests    map[string][]audit.Request // by what they did to which object: see recordKey
	claims      map[string]string          // volume by claim
	disks       map[string]string          // disk by volume
	attachments map[string]string          // VolumeAttachment by volume
	ecs         map[string]*ecsTimes       // by disk
	calls       []ecssim.Call
	devices     map[string]time.Time // when the node saw the device, by disk
	mounts      map[types.UID]time.Time
}

// ecsTimes are how long ECS took for a disk, beyond which nobody could have been quicker.
type ecsTimes struct {
	create, attach   time.Duration // until the reply; until the disk was In_use
	ready            time.Duration // from the creation until the disk was Available, before which ECS attaches it nowhere
	available, inUse time.Time
	leaves, left     time.Time // the instance that it was attached to before
}

// blocked is for how long ECS could not attach the disk since some time: it was not Available yet, or was being detached.
func (e *ecsTimes) blocked(since time.Time) (sum time.Duration) {
	if e.attach == 0 {
		return 0
	}
	sum = max(e.available.Sub(since), 0) // a disk that was there before has no such time
	if since.Before(e.leaves) {
		since = e.leaves
	}
	return sum + max(e.left.Sub(since), 0)
}

// recordKey names the requests that did something to an object.
func recordKey(verb, resource, name string) string { return verb + " " + resource + " " + name }

// readRecords reads audit log, kubelets' logs and API objects and, for a driver of disks, ECS's ledger and the nodes' devices.
func (b *podsBench) readRecords(ctx context.Context, from volumeSource, begin time.Time) (r *podsRecords, err error) {
	if err := sleepFor(ctx, 300*time.Millisecond); err != nil { // a request is in the log shortly after its answer
		return nil, err
	}
	r = &podsRecords{begin: begin, requests: map[string][]audit.Request{}, claims: map[string]string{}, disks: map[string]string{},
		attachments: map[string]string{}, ecs: map[string]*ecsTimes{}, devices: map[string]time.Time{}, mounts: b.mounts.times}
	all, err := b.audit.Read()
	if err != nil {
		return nil, err
	}
	r.addRequests(all)
	if err := b.mounts.read(); err != nil {
		return nil, err
	}
	if !from.has() {
		return r, nil
	}
	if err := r.addObjects(ctx, b.Client); err != nil {
		return nil, err
	}
	calls, err := b.Simulator.Calls(ctx, "")
	if err != nil {
		return nil, err
	}
	r.addCalls(calls)
	return r, r.addDevices(b.Lab)
}

// addRequests keeps the successful requests that are steps of a start.
func (r *podsRecords) addRequests(all []audit.Request) {
	for _, q := range all {
		if !q.Succeeded() || q.Received.Before(r.begin) {
			continue
		}
		resource := q.Object.Resource
		if q.Object.Subresource != "" {
			resource += "/" + q.Object.Subresource
		}
		verb := q.Verb
		switch {
		case verb == "update":
			verb = "patch"
		case verb != "create" && verb != "patch":
			continue
		}
		if resource == "persistentvolumeclaims" && verb == "patch" && q.Program() != "kube-scheduler" {
			continue
		}
		key := recordKey(verb, resource, q.Object.Name)
		r.requests[key] = append(r.requests[key], q)
	}
}

// addObjects finds out which volume, disk and VolumeAttachment belong to a claim.
func (r *podsRecords) addObjects(ctx context.Context, client kubernetes.Interface) error {
	claims, err := client.CoreV1().PersistentVolumeClaims(benchNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, c := range claims.Items {
		r.claims[c.Name] = c.Spec.VolumeName
	}
	volumes, err := client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, v := range volumes.Items {
		if v.Spec.CSI != nil {
			r.disks[v.Name] = v.Spec.CSI.VolumeHandle
		}
	}
	attachments, err := client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, a := range attachments.Items {
		if a.Spec.Source.PersistentVolumeName != nil && a.DeletionTimestamp == nil {
			r.attachments[*a.Spec.Source.PersistentVolumeName+" "+a.Spec.NodeName] = a.Name
		}
	}
	return nil
}

// addCalls keeps what ECS took for each disk.
func (r *podsRecords) addCalls(calls []ecssim.Call) {
	for _, c := range calls {
		if c.Code != "" || c.Time.Before(r.begin) {
			continue
		}
		r.calls = append(r.calls, c)
		if c.Disk == "" {
			continue
		}
		e := r.ecs[c.Disk]
		if e == nil {
			e = &ecsTimes{}
			r.ecs[c.Disk] = e
		}
		switch c.Action {
		case "CreateDisk":
			e.create, e.ready, e.available = c.Took, c.Settles, c.Time.Add(c.Settles)
		case "AttachDisk":
			e.attach = max(c.Took, c.Settles)
			e.inUse = c.Time.Add(c.Settles)
		case "DetachDisk":
			e.leaves, e.left = c.Time, c.Time.Add(max(c.Took, c.Settles))
		}
	}
}

// addDevices finds out when each node has seen its devices: the simulator makes a link for each then.
func (r *podsRecords) addDevices(l *lab.Lab) error {
	for _, n := range l.RealNodes {
		entries, err := os.ReadDir(n.Links())
		if err != nil {
			return err
		}
		for _, entry := range entries {
			info, err := entry.Info()
			if err != nil {
				continue // it has just gone
			}
			for id := range r.ecs {
				if strings.Contains(entry.Name(), strings.TrimPrefix(id, "d-")) {
					r.devices[id] = info.ModTime()
				}
			}
		}
	}
	return nil
}

// drained is how long ECS needed to detach and attach all disks, at least; zero if none was detached.
func (r *podsRecords) drained() time.Duration {
	limit := drivertest.DrainLimit(r.calls)
	if limit == 0 {
		return 0
	}
	var shortest time.Duration
	for id, at := range r.devices {
		if wait := at.Sub(r.ecs[id].inUse); shortest == 0 || wait < shortest {
			shortest = wait
		}
	}
	return limit + max(shortest, 0)
}

// latest returns the last request of a kind for an object that was answered before some time.
func (r *podsRecords) latest(verb, resource, name string, before time.Time) (q audit.Request, ok bool) {
	for _, one := range r.requests[recordKey(verb, resource, name)] {
		if !one.Answered.After(before) {
			q, ok = one, true
		}
	}
	return q, ok
}

// startOf finds when a Pod came to each step, and what ECS took of that.
func (r *podsRecords) startOf(p startedPod, kwok bool) (s podStart) {
	note := func(m milestone, verb, resource, name string, before time.Time) {
		if q, ok := r.latest(verb, resource, name, before); ok {
			s.at[m] = q.Answered
		}
	}
	s.at[podStarted] = p.running
	if q, ok := r.latest("create", "pods", p.Name, p.running); ok {
		s.at[podCreated] = q.Received
	}
	note(podBound, "create", "pods/binding", p.Name, p.running)
	s.at[podScheduled] = s.at[podBound]
	s.at[volumeStaged] = r.mounts[p.UID]
	if claim := claimOf(p.Pod); claim != "" {
		volume := r.claims[claim]
		id := r.disks[volume]
		end := p.running
		if kwok {
			end = time.Now()
		}
		note(volumeAttached, "patch", "volumeattachments/status", r.attachments[volume+" "+p.Spec.NodeName], end)
		if q, made := r.latest("create", "persistentvolumes", volume, p.running); made {
			s.at[volumeProvisioned] = q.Answered
			note(podScheduled, "patch", "persistentvolumeclaims", claim, q.Received)
		}
		if e := r.ecs[id]; e != nil {
			s.pace = pace{Create: e.create, Ready: e.ready, Attach: e.attach}
			if seen, ok := r.devices[id]; ok && e.attach > 0 {
				s.pace.Device = max(seen.Sub(e.inUse), 0)
			}
			s.ecs[volumeProvisioned], s.ecs[volumeAttached], s.ecs[volumeStaged] = e.create, e.attach, s.pace.Device
			s.ecs[volumeAttached] += e.blocked(s.at[podBound])
		}
	}
	if kwok { // it has Pods run as soon as they are bound
		s.at[podStarted] = s.at[volumeAttached]
		if s.at[podStarted].IsZero() {
			s.at[podStarted] = p.running
		}
	}
	s.order()
	return s
}

// claimOf is the name of the Pod's claim, empty if it has none.
func claimOf(p *corev1.Pod) string {
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			return v.PersistentVolumeClaim.ClaimName
		}
	}
	return ""
}
