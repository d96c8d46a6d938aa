package provisioner

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

var errSoldOut = errors.New("the zone has sold out")

// siblingOf returns what is known of a claim of Pod web-0.
func siblingOf(name string, progress attempt.Progress, changes ...func(*sibling)) sibling {
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
	for name, test := range map[string]struct {
		siblings []sibling
		want     attempt.SiblingState
	}{
		"none":                               {nil, attempt.NoneAwaited},
		"it has its volume":                  {[]sibling{siblingOf("b", attempt.VolumeMade)}, attempt.NoneAwaited},
		"it has, and others are refused now": {[]sibling{siblingOf("b", attempt.VolumeMade, refusedNow)}, attempt.NoneAwaited},
		"the scheduler has not come to it":   {[]sibling{siblingOf("b", attempt.NoAttempt)}, attempt.Awaited},
		"its volume is being made":           {[]sibling{siblingOf("b", attempt.InAttempt)}, attempt.Awaited},
		"it was refused, and is asked again": {[]sibling{siblingOf("b", attempt.InAttempt, scarce)}, attempt.Awaited},
		"it is refused":                      {[]sibling{siblingOf("b", attempt.NoAttempt, refusedNow)}, attempt.Refused},
		"it fails":                           {[]sibling{siblingOf("b", attempt.Failed)}, attempt.NoneAwaited},
		"one is refused, one is being made":  {[]sibling{siblingOf("b", attempt.NoAttempt, refusedNow), siblingOf("c", attempt.InAttempt)}, attempt.Refused},
		"one is being made, one is refused":  {[]sibling{siblingOf("b", attempt.InAttempt), siblingOf("c", attempt.NoAttempt, refusedNow)}, attempt.Refused},
		"one is made, one is being made":     {[]sibling{siblingOf("b", attempt.VolumeMade), siblingOf("c", attempt.InAttempt)}, attempt.Awaited},
		"one fails, one is being made":       {[]sibling{siblingOf("b", attempt.Failed), siblingOf("c", attempt.InAttempt)}, attempt.Awaited},
	} {
		t.Run(name, func(t *testing.T) {
			got := judgeOf(testClaim(), test.siblings)
			if got.State != test.want || (got.Err == nil) != (test.want == attempt.NoneAwaited) {
				t.Errorf("got %d, %v", got.State, got.Err)
			}
			if got.State == attempt.Refused && (!errors.Is(got.Err, errSoldOut) || !strings.Contains(got.Err.Error(), "of Pod web-0 can't have a volume for node node-1")) {
				t.Errorf("the error is %v", got.Err)
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
		"nothing is known":              {siblingOf("m", attempt.InAttempt), siblingOf("b", attempt.NoAttempt), together},
		"the other one has its volume":  {siblingOf("m", attempt.InAttempt, scarce), siblingOf("b", attempt.VolumeMade, scarce), together},
		"the other one is refused":      {siblingOf("m", attempt.InAttempt), siblingOf("b", attempt.NoAttempt, refusedNow), back},
		"it was":                        {siblingOf("m", attempt.InAttempt), siblingOf("b", attempt.NoAttempt, scarce), second},
		"it was, and fails":             {siblingOf("m", attempt.InAttempt), siblingOf("b", attempt.Failed, scarce), together},
		"this one was":                  {siblingOf("m", attempt.InAttempt, scarce), siblingOf("b", attempt.NoAttempt), first},
		"both were, this one is b's":    {siblingOf("m", attempt.InAttempt, scarce), siblingOf("b", attempt.NoAttempt, scarce), second},
		"both were, this one is z's":    {siblingOf("m", attempt.InAttempt, scarce), siblingOf("z", attempt.NoAttempt, scarce), first},
		"this one had to give one up":   {siblingOf("m", attempt.InAttempt, discarded), siblingOf("b", attempt.NoAttempt), second},
		"the other one had":             {siblingOf("m", attempt.InAttempt), siblingOf("b", attempt.NoAttempt, discarded), first},
		"both had":                      {siblingOf("m", attempt.InAttempt, discarded), siblingOf("z", attempt.NoAttempt, discarded), first},
		"it was, this one gave one up":  {siblingOf("m", attempt.InAttempt, discarded), siblingOf("b", attempt.NoAttempt, scarce), second},
		"this one was, and gave one up": {siblingOf("m", attempt.InAttempt, scarce, discarded), siblingOf("b", attempt.NoAttempt), first},
	} {
		t.Run(name, func(t *testing.T) {
			got := orderOf(test.own, []sibling{test.other})
			back := got.refused != nil
			switch want := test.want; {
			case back != (want == "back to the scheduler"), (got.first != nil) != (want == second):
				t.Errorf("got %+v, want %s", got, want)
			}
			reverse := orderOf(test.other, []sibling{test.own})
			if got.first != nil && reverse.first != nil {
				t.Error("each waits for the other")
			}
			if test.want == first && reverse.first == nil {
				t.Error("the other one is not asked for after it")
			}
		})
	}
}

// together are the claims of a Pod, in the caches of a bench.
type together struct {
	*bench
	t *testing.T
}

func newTogether(t *testing.T, creates []answer, pods ...*v1.Pod) *together {
	b := newBench(t, creates)
	for _, pod := range pods {
		if err := b.api.Tracker().Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	cached, err := watch.NewPods(b.api, func(*watch.Pod) {})
	if err != nil {
		t.Fatal(err)
	}
	cached.Fill(t.Context())
	b.siblings = &siblings{p: b.Provisioner, pods: cached}
	b.resolver.siblings, b.conflicts.pods = b.siblings, cached
	must(t, b.resolver.classes.Add(testClass(nil)))
	return &together{bench: b, t: t}
}

// claim puts a claim into the caches and the API server.
func (g *together) claim(name string, changes ...func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	claim := testClaim(append([]func(*v1.PersistentVolumeClaim){func(c *v1.PersistentVolumeClaim) { c.Name, c.UID = name, types.UID(name) }}, changes...)...)
	must(g.t, g.claims.Add(claim))
	must(g.t, g.api.Tracker().Add(claim.DeepCopy()))
	return claim
}

// start makes the first attempt for a claim, and has those worked on that it wakes.
func (g *together) start(claim *v1.PersistentVolumeClaim) {
	g.exec.Start(claim)
	for g.exec.queue.Len() > 0 {
		g.exec.workOnNext(g.t.Context())
	}
}

func (g *together) wantPhases(data, logs attempt.Phase) {
	g.t.Helper()
	if one, other := g.attempts.Phase("data"), g.attempts.Phase("logs"); one != data || other != logs {
		g.t.Errorf("the Records are %v and %v, want %v and %v", one, other, data, logs)
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
	if g.wantPhases(attempt.Held, attempt.New); g.savedVolumes() != 0 {
		t.Error("the first volume is saved before the second is made")
	}
	g.start(logs)
	if g.wantPhases(attempt.Saved, attempt.Saved); g.savedVolumes() != 2 {
		t.Errorf("%d volumes are saved", g.savedVolumes())
	}
}

func TestAVolumeGoesIfAClaimOfThePodIsRefused(t *testing.T) {
	g := newTogether(t, []answer{made("d-1", 20*gib, "zone-a"), soldOutAnswer()}, podWith("web-0", "data", "logs"))
	data, logs := g.claim("data"), g.claim("logs")
	g.start(data)
	g.start(logs)
	if _, deletes := g.driver.calls(); deletes != 1 || g.open() != 0 || g.savedVolumes() != 0 {
		t.Errorf("%d volumes are deleted, %d are under way, %d are saved", deletes, g.open(), g.savedVolumes())
	}
	g.wantPhases(attempt.Unselected, attempt.Unselected)
	for _, name := range []string{"data", "logs"} {
		claim, err := g.api.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), name, metav1.GetOptions{})
		if must(t, err); claim.Annotations[request.AnnSelectedNode] != "" {
			t.Errorf("claim %s has a selected node", name)
		}
	}
	events := strings.Join(g.drained(), "\n")
	if want := "volume d-1 was made for node node-1 and is deleted: claim logs of Pod web-0 can't have a volume for node node-1"; !strings.Contains(events, want) {
		t.Errorf("%q is not in\n%s", want, events)
	}

	// The scheduler selects the same node again, while the refusal holds: nothing is made.
	before, _ := g.driver.calls()
	again := data.DeepCopy()
	again.ResourceVersion = "8"
	_, err := g.api.CoreV1().PersistentVolumeClaims("shop").Update(t.Context(), again, metav1.UpdateOptions{})
	must(t, err)
	g.attempts.Post("data", attempt.ClaimChanged{Claim: again})
	g.exec.workOnNext(t.Context())
	if after, _ := g.driver.calls(); after != before {
		t.Error("the driver is asked for a volume that can't be used")
	}
	g.wantPhases(attempt.Unselected, attempt.Unselected)
}

// hookedDriver calls before, once, before it is asked for the volume of a name.
type hookedDriver struct {
	*scriptedDriver
	name   string
	before func()
}

func (d *hookedDriver) CreateVolume(ctx context.Context, in *csi.CreateVolumeRequest, options ...grpc.CallOption) (*csi.CreateVolumeResponse, error) {
	if before := d.before; in.Name == d.name && before != nil {
		d.before = nil
		before()
	}
	return d.scriptedDriver.CreateVolume(ctx, in, options...)
}

// The cache may show the Pod of a claim only after its attempt has begun.
func TestARefusedClaimWakesSiblingsOfAPodThatIsSeenLate(t *testing.T) {
	g := newTogether(t, []answer{made("d-1", 20*gib, "zone-a"), soldOutAnswer()})
	data, logs := g.claim("data"), g.claim("logs")
	g.Provisioner.driver = &hookedDriver{g.driver, "disk-logs", func() {
		must(t, g.api.Tracker().Add(podWith("web-0", "data", "logs")))
		eventually(t, "the Pod is seen", func() bool { return len(g.siblings.pods.OfClaim("shop", "data")) > 0 })
		g.exec.Start(data)
		g.exec.workOnNext(t.Context())
		g.wantPhases(attempt.Held, attempt.Calling)
	}}
	g.start(logs)
	g.wantPhases(attempt.Unselected, attempt.Unselected)
	if _, deletes := g.driver.calls(); deletes != 1 || g.open() != 0 || g.savedVolumes() != 0 {
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
		before, during attempt.Phase // of data, if that is so before it begins, or while its volume is held
	}{
		"it has its node":                         {func(*v1.PersistentVolumeClaim) {}, attempt.Held, attempt.Held},
		"the scheduler has not come to it":        {withoutNode("6"), attempt.Held, attempt.Held},
		"it has lost its node since this has one": {withoutNode("8"), attempt.Unselected, attempt.Unselected},
		"nobody knows since when it has none":     {withoutNode("new"), attempt.Held, attempt.Held},
	} {
		t.Run(name, func(t *testing.T) {
			begin := func(change func(*v1.PersistentVolumeClaim)) *together {
				g := newTogether(t, []answer{made("d-1", 20*gib, "zone-a")}, podWith("web-0", "data", "logs"))
				g.claim("logs", change)
				g.start(g.claim("data"))
				return g
			}
			begin(test.logs).wantPhases(test.before, attempt.New)

			g := begin(func(*v1.PersistentVolumeClaim) {})
			g.wantPhases(attempt.Held, attempt.New)
			logs := claimNamed(g.claims, "shop", "logs").DeepCopy()
			test.logs(logs)
			must(t, g.claims.Update(logs))
			g.attempts.Post("data", attempt.Woken{})
			g.exec.workOnNext(t.Context())
			g.wantPhases(test.during, attempt.New)
			if _, deletes := g.driver.calls(); (deletes == 1) != (test.during == attempt.Unselected) {
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
	deleted := podWith("web-9", "data", "more")
	deleted.DeletionTimestamp, deleted.Finalizers = ptr.To(metav1.Now()), []string{"example.com/keep"}
	for name, test := range map[string]struct {
		pods   []*v1.Pod
		change func(*v1.PersistentVolumeClaim) // of claim logs
		held   bool
	}{
		"no node is selected for it yet":  {pods: pods(podWith("web-0", "data", "logs")), change: func(c *v1.PersistentVolumeClaim) { c.Annotations = nil }, held: true},
		"another node is selected":        {pods: pods(podWith("web-0", "data", "logs")), change: func(c *v1.PersistentVolumeClaim) { c.Annotations[request.AnnSelectedNode] = "node-2" }, held: true},
		"another Pod has it":              {pods: pods(podWith("web-0", "data", "more"), podWith("web-1", "logs", "more"))},
		"the Pod has no other claim":      {pods: pods(podWith("web-0", "data"))},
		"no Pod is known":                 {},
		"several Pods wait for the claim": {pods: pods(podWith("web-0", "data", "logs"), podWith("web-1", "data", "logs"))},
		"one of them is being deleted":    {pods: pods(podWith("web-0", "data", "logs"), deleted), held: true},
		"it is bound":                     {pods: pods(podWith("web-0", "data", "logs")), change: func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "d-0" }},
		"it is being deleted": {pods: pods(podWith("web-0", "data", "logs")), change: func(c *v1.PersistentVolumeClaim) {
			c.DeletionTimestamp, c.Finalizers = ptr.To(metav1.Now()), []string{"example.com/keep"}
		}},
		"it binds at once":           {pods: pods(podWith("web-0", "data", "logs")), change: ofClass("immediate")},
		"another driver's class":     {pods: pods(podWith("web-0", "data", "logs")), change: ofClass("foreign")},
		"another provisioner has it": {pods: pods(podWith("web-0", "data", "logs")), change: func(c *v1.PersistentVolumeClaim) { c.Annotations[request.AnnStorageProvisioner] = "other.example.com" }},
		"a class that is gone":       {pods: pods(podWith("web-0", "data", "logs")), change: ofClass("gone")},
		"a volume populator makes its data": {pods: pods(podWith("web-0", "data", "logs")), change: func(c *v1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &v1.TypedObjectReference{APIGroup: ptr.To("example.com"), Kind: "Image", Name: "x"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newTogether(t, []answer{made("d-1", 20*gib, "zone-a")}, test.pods...)
			must(t, g.resolver.classes.Add(immediate))
			must(t, g.resolver.classes.Add(foreign))
			data := g.claim("data")
			change := test.change
			if change == nil {
				change = func(*v1.PersistentVolumeClaim) {}
			}
			g.claim("logs", change)
			want := attempt.Saved
			if g.start(data); test.held {
				want = attempt.Held
			}
			if got := g.attempts.Phase("data"); got != want {
				t.Errorf("the Record is %v, want %v", got, want)
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
			config := testConfig()
			config.StrictTopology = false
			g.configure(config)
			must(t, g.volumes.Add(testVolume("d-anywhere")))
			must(t, g.volumes.Add(testVolume("d-logs", func(pv *v1.PersistentVolume) {
				pv.Spec.NodeAffinity = topology.NodeAffinity(made("d-logs", 0, "zone-a").volume.AccessibleTopology)
				pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID = "logs", "logs"
			})))
			data := g.claim("data")
			if test.logs == nil {
				test.logs = func(*v1.PersistentVolumeClaim) {}
			}
			g.claim("logs", test.logs)
			g.resolver.prefetch(t.Context(), data)
			g.start(data)
			if len(g.zones.asked) < 2 {
				t.Fatalf("the topology is asked for %+v", g.zones.asked)
			}
			for _, asked := range g.zones.asked {
				if asked.ClaimName == "data" && asked.Strict != test.want {
					t.Errorf("the topology is asked for %+v", asked)
				}
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
			g.Provisioner.driver = &hookedDriver{g.driver, "disk-data", func() {
				moved := claim.DeepCopy()
				moved.ResourceVersion, moved.Annotations[request.AnnSelectedNode] = "8", "node-2"
				_, err := g.api.CoreV1().PersistentVolumeClaims("shop").Update(t.Context(), moved, metav1.UpdateOptions{})
				must(t, err)
				must(t, g.claims.Update(moved))
				g.zones.requirement = inZone(test.zone).requirement
				g.attempts.Post(claim.UID, attempt.ClaimChanged{Claim: moved})
			}}
			g.start(claim)
			_, deletes := g.driver.calls()
			list, err := g.api.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
			must(t, err)
			if deletes != test.deletes || len(list.Items) != 1 || list.Items[0].Name != test.saved {
				t.Errorf("%d volumes are deleted, and there are %v", deletes, list.Items)
			}
			events := strings.Join(g.drained(), "\n")
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
	if g.wantPhases(attempt.Saved, attempt.New); g.savedVolumes() != 1 {
		t.Errorf("%d volumes are saved", g.savedVolumes())
	}
}

// A volume is held only for moments for a claim for which no node was selected, with an event that names it.
func TestAVolumeIsNotHeldForAClaimWithoutANode(t *testing.T) {
	g := newTogether(t, []answer{made("d-1", 20*gib, "zone-a")}, podWith("web-0", "data", "logs"))
	data := g.claim("data")
	g.claim("logs", func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, request.AnnSelectedNode) })
	g.start(data)
	g.wantPhases(attempt.Held, attempt.New)
	want := "Normal ProvisioningHeld volume d-1 is made for node node-1; its PersistentVolume is not saved yet: claim logs of Pod web-0 has no volume yet"
	if events := strings.Join(g.drained(), "\n"); !strings.Contains(events, want) {
		t.Errorf("%q is not in\n%s", want, events)
	}
	g.clock = g.clock.Add(10 * time.Second)
	g.attempts.Post("data", attempt.Woken{})
	g.exec.workOnNext(t.Context())
	if g.wantPhases(attempt.Saved, attempt.New); g.savedVolumes() != 1 {
		t.Errorf("%d volumes are saved", g.savedVolumes())
	}
}
