package claim

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/stock"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

var errSoldOut = errors.New("the zone has sold out")

// siblingOf returns what is known of a claim of Pod web-0.
func siblingOf(name string, progress progress, changes ...func(*sibling)) sibling {
	s := sibling{claim: testClaim(func(c *v1.PersistentVolumeClaim) { c.Name, c.UID = name, types.UID(name) }), pod: "web-0", progress: progress, selected: true}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func refusedNow(s *sibling) { s.refusal, s.scarce = errSoldOut, true }
func scarce(s *sibling)     { s.scarce = true }
func discarded(s *sibling)  { s.discarded = true }

func TestWhatSiblingsMeanForAVolume(t *testing.T) {
	const noneAwaited, awaited, refused = "none is awaited", "one is awaited", "one is refused"
	for name, test := range map[string]struct {
		siblings []sibling
		want     string
	}{
		"none":                               {nil, noneAwaited},
		"it has its volume":                  {[]sibling{siblingOf("b", isMade)}, noneAwaited},
		"it has, and others are refused now": {[]sibling{siblingOf("b", isMade, refusedNow)}, noneAwaited},
		"the scheduler has not come to it":   {[]sibling{siblingOf("b", notBegun)}, awaited},
		"its volume is being made":           {[]sibling{siblingOf("b", underWay)}, awaited},
		"it was refused, and is asked again": {[]sibling{siblingOf("b", underWay, scarce)}, awaited},
		"it is refused":                      {[]sibling{siblingOf("b", notBegun, refusedNow)}, refused},
		"it fails":                           {[]sibling{siblingOf("b", hasFailed)}, noneAwaited},
		"one is refused, one is being made":  {[]sibling{siblingOf("b", notBegun, refusedNow), siblingOf("c", underWay)}, refused},
		"one is being made, one is refused":  {[]sibling{siblingOf("b", underWay), siblingOf("c", notBegun, refusedNow)}, refused},
		"one is made, one is being made":     {[]sibling{siblingOf("b", isMade), siblingOf("c", underWay)}, awaited},
		"one fails, one is being made":       {[]sibling{siblingOf("b", hasFailed), siblingOf("c", underWay)}, awaited},
	} {
		t.Run(name, func(t *testing.T) {
			got := judge(testClaim(), test.siblings)
			if (got.refused != nil) != (test.want == refused) || (got.awaited != nil) != (test.want == awaited) || got.unselected {
				t.Errorf("got %+v", got)
			}
			if err := got.refused; err != nil && (!errors.Is(err, errSoldOut) || !strings.Contains(err.Error(), "of Pod web-0 can't have a volume for node node-1")) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func TestWhichClaimOfAPodIsAskedForFirst(t *testing.T) {
	const together, first, second, back = "together", "first", "second", "back to the scheduler"
	for name, test := range map[string]struct {
		own   sibling // its name is m
		other sibling
		want  string
	}{
		"nothing is known":              {siblingOf("m", underWay), siblingOf("b", notBegun), together},
		"the other one has its volume":  {siblingOf("m", underWay, scarce), siblingOf("b", isMade, scarce), together},
		"the other one is refused":      {siblingOf("m", underWay), siblingOf("b", notBegun, refusedNow), back},
		"it was":                        {siblingOf("m", underWay), siblingOf("b", notBegun, scarce), second},
		"it was, and fails":             {siblingOf("m", underWay), siblingOf("b", hasFailed, scarce), together},
		"this one was":                  {siblingOf("m", underWay, scarce), siblingOf("b", notBegun), first},
		"both were, this one is b's":    {siblingOf("m", underWay, scarce), siblingOf("b", notBegun, scarce), second},
		"both were, this one is z's":    {siblingOf("m", underWay, scarce), siblingOf("z", notBegun, scarce), first},
		"this one had to give one up":   {siblingOf("m", underWay, discarded), siblingOf("b", notBegun), second},
		"the other one had":             {siblingOf("m", underWay), siblingOf("b", notBegun, discarded), first},
		"both had":                      {siblingOf("m", underWay, discarded), siblingOf("z", notBegun, discarded), first},
		"it was, this one gave one up":  {siblingOf("m", underWay, discarded), siblingOf("b", notBegun, scarce), second},
		"this one was, and gave one up": {siblingOf("m", underWay, scarce, discarded), siblingOf("b", notBegun), first},
	} {
		t.Run(name, func(t *testing.T) {
			waits := func(own, other sibling) (second, returned bool) {
				f, _ := errors.AsType[*failure](mayAsk(own, []sibling{other}))
				return f != nil && f.kind == siblingFirst, f != nil && f.kind == reschedules
			}
			isSecond, isBack := waits(test.own, test.other)
			if isBack != (test.want == back) || isSecond != (test.want == second) {
				t.Errorf("second: %t, back to the scheduler: %t, want %s", isSecond, isBack, test.want)
			}
			isFirst, _ := waits(test.other, test.own)
			if isSecond && isFirst {
				t.Error("each waits for the other")
			}
			if test.want == first && !isFirst {
				t.Error("the other one is not asked for after it")
			}
		})
	}
}

// together are the claims of a Pod, in the caches of a bench.
type together struct {
	*bench
	t       testing.TB
	version int // of the last object that has changed
}

func newTogether(t testing.TB, creates []answer, pods ...*v1.Pod) *together {
	b := newBench(t, creates)
	for _, pod := range pods {
		must(t, b.api.Tracker().Add(pod))
	}
	cached, err := watch.NewPods(b.api, func(*watch.Pod) {})
	must(t, err)
	cached.Fill(t.Context())
	b.Pods = cached
	must(t, b.Classes.Add(testClass(nil)))
	return &together{bench: b, t: t, version: 100}
}

// claim puts a claim into the caches and the API server.
func (g *together) claim(name string, changes ...func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	claim := testClaim(append([]func(*v1.PersistentVolumeClaim){func(c *v1.PersistentVolumeClaim) { c.Name, c.UID = name, types.UID(name) }}, changes...)...)
	must(g.t, g.Claims.Add(claim))
	must(g.t, g.api.Tracker().Add(claim.DeepCopy()))
	return claim
}

// start makes the first attempt for a claim, and has those worked on that it wakes.
func (g *together) start(claim *v1.PersistentVolumeClaim) {
	g.Start(claim)
	g.settle()
}

// settle has claims looked at until none is queued.
func (g *together) settle() {
	for g.queue.Len() > 0 {
		g.next(g.t.Context())
	}
}

// show has the caches show the claims and volumes of the API server.
func (g *together) show() {
	volumes, err := g.api.CoreV1().PersistentVolumes().List(g.t.Context(), metav1.ListOptions{})
	must(g.t, err)
	for _, pv := range volumes.Items {
		if _, exists, _ := g.Volumes.GetByKey(pv.Name); !exists {
			must(g.t, g.Volumes.Add(&pv))
			g.VolumeChanged(nil, &pv)
		}
	}
	claims, err := g.api.CoreV1().PersistentVolumeClaims("shop").List(g.t.Context(), metav1.ListOptions{})
	must(g.t, err)
	for _, live := range claims.Items {
		if old := g.claimNamed("shop", live.Name); !equality.Semantic.DeepEqual(old, &live) {
			g.update(live.Name, func(c *v1.PersistentVolumeClaim) { live.DeepCopyInto(c) })
		}
	}
}

// update changes a claim in the API server and in the cache.
func (g *together) update(name string, change func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	old := g.claimNamed("shop", name)
	claim := old.DeepCopy()
	change(claim)
	g.version++
	claim.ResourceVersion = strconv.Itoa(g.version)
	must(g.t, g.api.Tracker().Update(v1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), claim.DeepCopy(), "shop"))
	must(g.t, g.Claims.Update(claim))
	g.ClaimChanged(old, claim)
	return claim
}

// wantStates compares how far claims data and logs have come, in the words of bench.state.
func (g *together) wantStates(data, logs string) {
	g.t.Helper()
	if one, other := g.state("data"), g.state("logs"); one != data || other != logs {
		g.t.Errorf("the claims are %s and %s, want %s and %s", one, other, data, logs)
	}
}

func (g *together) savedVolumes() int {
	list, err := g.api.CoreV1().PersistentVolumes().List(g.t.Context(), metav1.ListOptions{})
	must(g.t, err)
	return len(list.Items)
}

func TestVolumesOfAPodAreSavedTogether(t *testing.T) {
	g := newTogether(t, []answer{made("d-1", 20*gib, "zone-a"), made("d-2", 20*gib, "zone-a")}, podWith("web-0", "data", "logs"))
	data, logs := g.claim("data"), g.claim("logs")
	g.start(data)
	if g.wantStates("held", "none"); g.savedVolumes() != 0 {
		t.Error("the first volume is saved before the second is made")
	}
	g.start(logs)
	if g.wantStates("saved", "saved"); g.savedVolumes() != 2 {
		t.Errorf("%d volumes are saved", g.savedVolumes())
	}
}

func TestAVolumeGoesIfAClaimOfThePodIsRefused(t *testing.T) {
	g := newTogether(t, []answer{made("d-1", 20*gib, "zone-a"), soldOut()}, podWith("web-0", "data", "logs"))
	data, logs := g.claim("data"), g.claim("logs")
	g.start(data)
	g.start(logs)
	if _, deletes := g.driver.Calls(); deletes != 1 || g.open() != 0 || g.savedVolumes() != 0 {
		t.Errorf("%d volumes are deleted, %d are under way, %d are saved", deletes, g.open(), g.savedVolumes())
	}
	g.wantStates("returned", "returned")
	for _, name := range []string{"data", "logs"} {
		claim, err := g.api.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), name, metav1.GetOptions{})
		if must(t, err); claim.Annotations[request.AnnSelectedNode] != "" {
			t.Errorf("claim %s has a selected node", name)
		}
	}
	events := g.said()
	if want := "volume d-1 was made for node node-1 and is deleted: claim logs of Pod web-0 can't have a volume for node node-1"; !strings.Contains(events, want) {
		t.Errorf("%q is not in\n%s", want, events)
	}

	g.show()
	g.settle()
	g.wantStates("returned", "returned")

	// The scheduler selects the same node again, while the refusal holds: nothing is made.
	before, _ := g.driver.Calls()
	g.update("data", func(c *v1.PersistentVolumeClaim) { c.Annotations[request.AnnSelectedNode] = "node-1" })
	g.settle()
	if after, _ := g.driver.Calls(); after != before {
		t.Error("the driver is asked for a volume that can't be used")
	}
	g.show()
	g.wantStates("returned", "returned")
	if node := g.claimNamed("shop", "data").Annotations[request.AnnSelectedNode]; node != "" {
		t.Errorf("claim data has node %s", node)
	}
}

// hookedDriver calls before, once, before it is asked for the volume of a name.
type hookedDriver struct {
	*provisionertest.ScriptedDriver
	name   string
	before func()
}

func (d *hookedDriver) CreateVolume(ctx context.Context, in *csi.CreateVolumeRequest, options ...grpc.CallOption) (*csi.CreateVolumeResponse, error) {
	if before := d.before; in.Name == d.name && before != nil {
		d.before = nil
		before()
	}
	return d.ScriptedDriver.CreateVolume(ctx, in, options...)
}

// The cache may show the Pod of a claim only after its attempt has begun.
func TestARefusedClaimWakesSiblingsOfAPodThatIsSeenLate(t *testing.T) {
	g := newTogether(t, []answer{made("d-1", 20*gib, "zone-a"), soldOut()})
	data, logs := g.claim("data"), g.claim("logs")
	g.Driver = &hookedDriver{g.driver, "disk-logs", func() {
		must(t, g.api.Tracker().Add(podWith("web-0", "data", "logs")))
		provisionertest.Eventually(t, "the Pod is seen", func() bool { return len(g.Pods.OfClaim("shop", "data")) > 0 })
		g.Start(data)
		g.next(t.Context())
		g.wantStates("held", "unknown")
	}}
	g.start(logs)
	g.wantStates("returned", "returned")
	if _, deletes := g.driver.Calls(); deletes != 1 || g.open() != 0 || g.savedVolumes() != 0 {
		t.Errorf("%d volumes are deleted, %d are under way, %d are saved", deletes, g.open(), g.savedVolumes())
	}
}

// A claim that has lost its node returns the other claims of its Pod to the scheduler, whenever they learn of it.
func TestClaimsOfAPodReturnToTheSchedulerTogether(t *testing.T) {
	withoutNode := func(version string) func(*v1.PersistentVolumeClaim) {
		return func(c *v1.PersistentVolumeClaim) { c.ResourceVersion, c.Annotations = version, nil }
	}
	for name, test := range map[string]struct {
		logs           func(*v1.PersistentVolumeClaim)
		before, during string // of data, if that is so before it begins, or while its volume is held
	}{
		"it has its node":                         {func(*v1.PersistentVolumeClaim) {}, "held", "held"},
		"the scheduler has not come to it":        {withoutNode("6"), "held", "held"},
		"it has lost its node since this has one": {withoutNode("8"), "returned", "returned"},
		"nobody knows since when it has none":     {withoutNode("new"), "held", "held"},
	} {
		t.Run(name, func(t *testing.T) {
			begin := func(change func(*v1.PersistentVolumeClaim)) *together {
				g := newTogether(t, []answer{made("d-1", 20*gib, "zone-a")}, podWith("web-0", "data", "logs"))
				g.claim("logs", change)
				g.start(g.claim("data"))
				return g
			}
			begin(test.logs).wantStates(test.before, "none")

			g := begin(func(*v1.PersistentVolumeClaim) {})
			g.wantStates("held", "none")
			old := g.claimNamed("shop", "logs")
			logs := old.DeepCopy()
			test.logs(logs)
			must(t, g.Claims.Update(logs))
			if g.ClaimChanged(old, logs); g.queue.Len() == 0 {
				g.Wake("data")
			} else if equality.Semantic.DeepEqual(old.Annotations, logs.Annotations) {
				t.Error("claim data is woken although nothing has changed")
			}
			g.next(t.Context())
			g.wantStates(test.during, "none")
			if _, deletes := g.driver.Calls(); (deletes == 1) != (test.during == "returned") {
				t.Errorf("%d volumes are deleted", deletes)
			}
		})
	}
}

func TestClaimsThatAreNotWaitedFor(t *testing.T) {
	immediate := testClass(nil)
	immediate.Name, immediate.VolumeBindingMode = "immediate", ptr.To(storagev1.VolumeBindingImmediate)
	foreign := testClass(nil)
	foreign.Name, foreign.Provisioner = "foreign", "other.example.com"
	ofClass := func(name string) func(*v1.PersistentVolumeClaim) {
		return func(c *v1.PersistentVolumeClaim) { c.Annotations, c.Spec.StorageClassName = nil, &name }
	}
	pods := func(pods ...*v1.Pod) []*v1.Pod { return pods }
	both := pods(podWith("web-0", "data", "logs"))
	deleted := podWith("web-9", "data", "more")
	deleted.DeletionTimestamp, deleted.Finalizers = ptr.To(metav1.Now()), []string{"example.com/keep"}
	for name, test := range map[string]struct {
		pods   []*v1.Pod
		change func(*v1.PersistentVolumeClaim) // of claim logs
		held   bool
	}{
		"no node is selected for it yet": {pods: both, change: func(c *v1.PersistentVolumeClaim) { c.Annotations = nil }, held: true},
		"another node is selected": {pods: both, change: func(c *v1.PersistentVolumeClaim) {
			c.Annotations[request.AnnSelectedNode] = "node-2"
		}, held: true},
		"another Pod has it":              {pods: pods(podWith("web-0", "data", "more"), podWith("web-1", "logs", "more"))},
		"the Pod has no other claim":      {pods: pods(podWith("web-0", "data"))},
		"no Pod is known":                 {},
		"several Pods wait for the claim": {pods: pods(podWith("web-0", "data", "logs"), podWith("web-1", "data", "logs"))},
		"one of them is being deleted":    {pods: pods(podWith("web-0", "data", "logs"), deleted), held: true},
		"it is bound":                     {pods: both, change: func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "d-0" }},
		"it is being deleted": {pods: both, change: func(c *v1.PersistentVolumeClaim) {
			c.DeletionTimestamp, c.Finalizers = ptr.To(metav1.Now()), []string{"example.com/keep"}
		}},
		"it binds at once":       {pods: both, change: ofClass("immediate")},
		"another driver's class": {pods: both, change: ofClass("foreign")},
		"another provisioner has it": {pods: both, change: func(c *v1.PersistentVolumeClaim) {
			c.Annotations[request.AnnStorageProvisioner] = "other.example.com"
		}},
		"a class that is gone": {pods: both, change: ofClass("gone")},
		"a volume populator makes its data": {pods: both, change: func(c *v1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &v1.TypedObjectReference{APIGroup: ptr.To("example.com"), Kind: "Image", Name: "x"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newTogether(t, []answer{made("d-1", 20*gib, "zone-a")}, test.pods...)
			must(t, g.Classes.Add(immediate))
			must(t, g.Classes.Add(foreign))
			data := g.claim("data")
			change := test.change
			if change == nil {
				change = func(*v1.PersistentVolumeClaim) {}
			}
			g.claim("logs", change)
			want := "saved"
			if g.start(data); test.held {
				want = "held"
			}
			if got := g.state("data"); got != want {
				t.Errorf("the claim is %s, want %s", got, want)
			}
		})
	}
}

// A class that lets volumes be in other zones than the selected node's doesn't do so for claims of one Pod.
func TestClaimsOfAPodAreForTheNodesZone(t *testing.T) {
	bound := func(pv string) func(*v1.PersistentVolumeClaim) {
		return func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = pv }
	}
	for name, test := range map[string]struct {
		pod  *v1.Pod
		logs func(*v1.PersistentVolumeClaim)
		want bool
	}{
		"the other claim waits":                {podWith("web-0", "data", "logs"), nil, true},
		"it is bound to a volume in a zone":    {podWith("web-0", "data", "logs"), bound("d-logs"), true},
		"it is bound to a volume without one":  {podWith("web-0", "data", "logs"), bound("d-anywhere"), false},
		"it is bound to an unknown volume":     {podWith("web-0", "data", "logs"), bound("d-unknown"), false},
		"it is another Pod's":                  {podWith("web-0", "data"), bound("d-logs"), false},
		"another claim is bound in its Pod":    {podWith("web-1", "logs", "more"), bound("d-logs"), false},
		"the Pod's other claim does not exist": {podWith("web-0", "data", "missing"), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newTogether(t, []answer{made("d-1", 20*gib, "zone-a")}, test.pod)
			g.StrictTopology = false
			must(t, g.Volumes.Add(testVolume("d-anywhere", func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef.UID = "logs" })))
			must(t, g.Volumes.Add(testVolume("d-logs", func(pv *v1.PersistentVolume) {
				pv.Spec.NodeAffinity = topology.NodeAffinity(made("d-logs", 0, "zone-a").Volume.AccessibleTopology)
				pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID = "logs", "logs"
			})))
			data := g.claim("data")
			if test.logs == nil {
				test.logs = func(*v1.PersistentVolumeClaim) {}
			}
			g.claim("logs", test.logs)
			g.start(data)
			questions := 0
			for _, asked := range g.zones.Asked {
				if asked.ClaimName != "data" {
					continue
				}
				if questions++; asked.Strict != test.want {
					t.Errorf("the topology is asked for %+v", asked)
				}
			}
			if creates, _ := g.driver.Calls(); questions == 0 || creates != 1 {
				t.Errorf("the topology is asked %d times, the driver %d times", questions, creates)
			}
		})
	}
}

// A Pod may be deleted while its volume is made, and come back for another zone: the volume is of no use to it, and nobody has used it yet.
func TestAVolumeFollowsItsPodToAnotherZone(t *testing.T) {
	for name, test := range map[string]struct {
		zone    string // of the node that is selected meanwhile
		deletes int
		saved   string
	}{
		"another zone":  {"zone-b", 1, "d-2"},
		"the same zone": {"zone-a", 0, "d-1"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newTogether(t, []answer{made("d-1", 20*gib, "zone-a"), made("d-2", 20*gib, test.zone)})
			claim := g.claim("data")
			g.Driver = &hookedDriver{g.driver, "disk-data", func() {
				g.zones.Requirement = provisionertest.InZone(test.zone).Requirement
				g.update("data", func(c *v1.PersistentVolumeClaim) { c.Annotations[request.AnnSelectedNode] = "node-2" })
			}}
			g.start(claim)
			_, deletes := g.driver.Calls()
			list, err := g.api.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
			must(t, err)
			if deletes != test.deletes || len(list.Items) != 1 || list.Items[0].Name != test.saved {
				t.Errorf("%d volumes are deleted, and there are %v", deletes, list.Items)
			}
			events := g.said()
			want := "volume d-1 was made for node node-1 and is deleted: another node was selected since, node-2 in zone zone-b"
			if strings.Contains(events, want) != (deletes > 0) {
				t.Errorf("the events are %s", events)
			}
			live, err := g.api.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), "data", metav1.GetOptions{})
			if must(t, err); live.Annotations[request.AnnSelectedNode] != "node-2" {
				t.Errorf("the selected node is %q", live.Annotations[request.AnnSelectedNode])
			}
		})
	}
}

// A Pod that can't be scheduled, such as one with a gate, shares a claim with one that can: the latter does not wait for the other claims of
// the former.
func TestAClaimIsNotHeldForAnotherPod(t *testing.T) {
	g := newTogether(t, []answer{made("d-1", 20*gib, "zone-a")}, podWith("gated", "data", "logs"), podWith("main", "data"))
	data := g.claim("data")
	g.claim("logs", func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, request.AnnSelectedNode) })
	g.start(data)
	if g.wantStates("saved", "none"); g.savedVolumes() != 1 {
		t.Errorf("%d volumes are saved", g.savedVolumes())
	}
}

// A volume is held only for moments for a claim for which no node was selected, with an event that names it.
func TestAVolumeIsNotHeldForAClaimWithoutANode(t *testing.T) {
	g := newTogether(t, []answer{made("d-1", 20*gib, "zone-a")}, podWith("web-0", "data", "logs"))
	data := g.claim("data")
	g.claim("logs", func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, request.AnnSelectedNode) })
	g.start(data)
	g.wantStates("held", "none")
	want := "Normal ProvisioningHeld volume d-1 is made for node node-1; its PersistentVolume is not saved yet: claim logs of Pod web-0 has no volume yet"
	if events := g.said(); !strings.Contains(events, want) {
		t.Errorf("%q is not in\n%s", want, events)
	}
	g.clock = g.clock.Add(10 * time.Second)
	g.Wake("data")
	g.next(t.Context())
	if g.wantStates("saved", "none"); g.savedVolumes() != 1 {
		t.Errorf("%d volumes are saved", g.savedVolumes())
	}
}

// After a refusal that is over, the call of one claim that finds out whether there is stock again is no refusal of the others of its Pod.
func TestAClaimThatIsAskedAgainRefusesNoSibling(t *testing.T) {
	g := newTogether(t, []answer{made("d-1", 20*gib, "zone-a"), made("d-2", 20*gib, "zone-a")}, podWith("web-0", "data", "logs"))
	data, logs := g.claim("data"), g.claim("logs")
	want, ok := g.wantFor(data, "node-1")
	if !ok {
		t.Fatal("the caches don't show what is wanted")
	}
	g.Refusals.Refused(want, 0, g.clock)
	g.clock = g.clock.Add(stock.FirstPause)
	g.start(data)
	g.start(logs)
	g.wantStates("saved", "saved")
	if creates, deletes := g.driver.Calls(); creates != 2 || deletes != 0 {
		t.Errorf("%d volumes were made and %d deleted", creates, deletes)
	}
}

// BenchmarkJudge measures how long all other claims wait for the lock while one claim of a Pod with the most claims looks at its siblings.
func BenchmarkJudge(b *testing.B) {
	const claims = 128
	for _, test := range []struct {
		made    int
		refused bool // something else was refused of late
	}{{made: 0}, {made: claims / 2}, {made: claims - 1}, {0, true}, {claims / 2, true}, {claims - 1, true}} {
		b.Run(fmt.Sprintf("made=%d/refusals=%t", test.made, test.refused), func(b *testing.B) {
			made := test.made
			var names []string
			for i := range claims {
				names = append(names, fmt.Sprintf("data-%d", i))
			}
			g := newTogether(b, nil, podWith("web-0", names...))
			index := topology.NewIndex(provisionertest.DriverName)
			index.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{topology.WellKnownZoneKey: "zone-a"}}})
			index.SetCSINode(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: storagev1.CSINodeSpec{
				Drivers: []storagev1.CSINodeDriver{{Name: provisionertest.DriverName, NodeID: "i-1", TopologyKeys: []string{topology.WellKnownZoneKey}}},
			}})
			g.Topology = index
			for i, name := range names {
				claim := g.claim(name)
				g.claims[claim.UID] = &entry{working: i > made}
				if i > 0 && i <= made {
					g.claims[claim.UID].volume = &csi.Volume{VolumeId: "d-" + name}
				}
			}
			if test.refused {
				other := testClass(nil)
				other.Name = "other"
				g.Refusals.Refused(stock.Want{Class: other}, 0, g.clock)
			}
			own := g.claimNamed("shop", "data-0")
			asked, err := g.requestOf(b.Context(), own)
			must(b, err)
			volume := &csi.Volume{VolumeId: "d-0", AccessibleTopology: asked.Requisite()}
			for b.Loop() {
				g.mu.Lock()
				judged := g.judge(asked, volume)
				g.mu.Unlock()
				if judged.refused != nil || (judged.awaited == nil) != (made == claims-1) {
					b.Fatalf("got %+v", judged)
				}
			}
		})
	}
}
