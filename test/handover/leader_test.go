//go:build e2e

package handover

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/programs"
	"github.com/topodisk/topodisk/test/labtest"
	"github.com/topodisk/topodisk/topology"
)

// What is under way when the leader is lost: half of the volumes are to be attached, the other half detached.
const (
	volumes = 100
	nodes   = 10
)

// leaseName is the Lease of csi-attacher.
const leaseName = "external-attacher-leader-diskplugin-csi-alibabacloud-com"

// What a handover may cost. The chart's Leases are valid for 10 s from when a stand-by sees that they were renewed, and a
// stand-by looks every 2 to 4.4 s (client-go's leaderelection.JitterFactor). So one takes over 18.8 s after the last renewal at
// the latest; with two stand-bys it is about 13 s. The driver that is asked then can't know which calls of the other are still on their
// way, so for 10 s it takes no read for the proof that a disk is detached.
const (
	takeoverTakes = 19 * time.Second
	readsMayLag   = 10 * time.Second
	timeLost      = takeoverTakes + readsMayLag + 6*time.Second // until all is done, against the same work without a handover
)

// cluster is a control plane with the Pods of the controller: a leader and stand-bys.
type cluster struct {
	labtest.T
	*lab.Lab
	pods  []*lab.ControllerPod
	disks []string

	mu    sync.Mutex
	wrong map[string]bool // told already
}

// TestLeaderIsLost has the leader killed, then the next one stopped for longer than its Lease, during attaches and
// detaches. Whatever Kubernetes is told of a disk must be so in ECS.
func TestLeaderIsLost(t *testing.T) {
	c := newCluster(t)
	c.makeVolumes()
	before := c.swap(nil)
	t.Logf("%d attaches and detaches take %s without a handover", volumes, before.Round(time.Millisecond))

	t.Run("killed", func(t *testing.T) {
		c.T.T = t
		var taken time.Duration
		took := c.swap(func() { taken = c.lose(c.leader(), syscall.SIGKILL) })
		c.judge(before, took, taken)
	})
	t.Run("stopped", func(t *testing.T) {
		c.T.T = t
		var taken time.Duration
		var attaching, detaching []int
		leader := c.leader()
		took := c.swap(func() {
			attaching, detaching = c.underWay()
			taken = c.lose(leader, syscall.SIGSTOP)
		})
		c.judge(before, took, taken)
		c.turnBack(attaching, detaching)
		c.Must(leader.Signal(syscall.SIGCONT))
		for began := time.Now(); time.Since(began) < 15*time.Second; c.sleep(100 * time.Millisecond) {
			c.check()
		}
		if !leader.Beside.Ended() {
			t.Error("the csi-attacher that has lost its Lease has not ended")
		}
	})
}

// newCluster starts it all. The stand-bys are as old as the leader.
func newCluster(t *testing.T) *cluster {
	root, err := programs.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := programs.BuildSidecars(t.Context(), root, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	dirs.Topodisk = *built
	queues := "serial"
	if testing.Short() {
		queues = "parallel"
	}
	started, err := lab.Start(t.Context(), lab.Options{Root: root, Programs: dirs, Nodes: lab.ManyNodes(nodes),
		SimulatorArgs: []string{"--latency=fast", "--queues=" + queues}})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{T: labtest.T{T: t}, Lab: started, wrong: map[string]bool{}}
	t.Cleanup(func() {
		if t.Failed() {
			c.KeepLogs()
			t.Logf("the programs' logs are in %s", c.Logs)
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	c.Topodisk.Stop(lab.ProvisionerName)
	c.Topodisk.Stop(lab.DriverProgram)
	for _, name := range []string{"pod-a", "pod-b", "pod-c"} {
		pod, err := c.StartControllerPod(t.Context(), name)
		c.Must(err)
		c.pods = append(c.pods, pod)
	}
	return c
}

func (c *cluster) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.Context().Done():
	}
}

// makeVolumes makes the disks and their PersistentVolumes, and attaches the first half. From then on ECS takes its time: always
// the same, for what is lost is the difference to work that took as long.
func (c *cluster) makeVolumes() {
	c.Helper()
	conn, err := grpc.NewClient("unix://"+c.pods[0].Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	c.Must(err)
	defer conn.Close()
	driver := csi.NewControllerClient(conn)
	c.disks = make([]string, volumes)
	errs := make([]error, volumes)
	var group sync.WaitGroup
	for n := range volumes {
		group.Go(func() { c.disks[n], errs[n] = c.makeVolume(driver, n) })
	}
	group.Wait()
	for _, err := range errs {
		c.Must(err)
	}
	for n := range volumes / 2 {
		c.attach(n, c.node(n))
	}
	c.Must(c.Await(c.Context(), "the first volumes are attached", time.Minute, func(context.Context) (bool, error) {
		if attached, _ := c.progress(); attached < volumes/2 {
			return false, fmt.Errorf("%d are", attached)
		}
		return true, nil
	}))
	c.Must(c.Simulator.SetLatency(c.Context(), ecssim.LatencyForm{Profile: "real", Spread: ptr.To(0.0)}))
}

func (c *cluster) makeVolume(driver csi.ControllerClient, n int) (string, error) {
	zone := []*csi.Topology{{Segments: map[string]string{topology.WellKnownZoneKey: c.ZoneOf(c.node(n))}}}
	made, err := driver.CreateVolume(c.Context(), &csi.CreateVolumeRequest{
		Name: fmt.Sprintf("volume-%d", n), Parameters: map[string]string{"type": "cloud_essd"}, CapacityRange: &csi.CapacityRange{RequiredBytes: 20 << 30},
		VolumeCapabilities: []*csi.VolumeCapability{capability(false)}, AccessibilityRequirements: &csi.TopologyRequirement{Requisite: zone},
	})
	if err != nil {
		return "", err
	}
	id := made.Volume.VolumeId
	_, err = c.Client.CoreV1().PersistentVolumes().Create(c.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: id},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: lab.DriverName, VolumeHandle: id}},
		},
	}, metav1.CreateOptions{})
	return id, err
}

// node is where a volume belongs, elsewhere another node of its zone.
func (c *cluster) node(n int) string { return c.Nodes[n%nodes].Name }

func (c *cluster) elsewhere(n int) string {
	for _, node := range c.Nodes {
		if node.Name != c.node(n) && node.Zone == c.ZoneOf(c.node(n)) {
			return node.Name
		}
	}
	c.Fatalf("node %s is the only one of its zone", c.node(n))
	return ""
}

// attachmentName is that of the VolumeAttachment of a volume and a node.
func (c *cluster) attachmentName(n int, node string) string { return c.disks[n] + "." + node }

func (c *cluster) attach(n int, node string) {
	c.Helper()
	_, err := c.Client.StorageV1().VolumeAttachments().Create(c.Context(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: c.attachmentName(n, node)},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: lab.DriverName, NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &c.disks[n]}},
	}, metav1.CreateOptions{})
	c.Must(err)
}

func (c *cluster) detach(n int, node string) {
	c.Helper()
	c.Must(c.Client.StorageV1().VolumeAttachments().Delete(c.Context(), c.attachmentName(n, node), metav1.DeleteOptions{}))
}

// attachments are all VolumeAttachments by name.
func (c *cluster) attachments() map[string]storagev1.VolumeAttachment {
	c.Helper()
	list, err := c.Client.StorageV1().VolumeAttachments().List(c.Context(), metav1.ListOptions{})
	c.Must(err)
	all := map[string]storagev1.VolumeAttachment{}
	for _, a := range list.Items {
		all[a.Name] = a
	}
	return all
}

// isAttached says whether Kubernetes takes a volume for attached, and means it to be.
func isAttached(a storagev1.VolumeAttachment) bool {
	return a.Status.Attached && a.DeletionTimestamp == nil
}

// progress counts the volumes that are attached, and those that Kubernetes knows no attachment of.
func (c *cluster) progress() (attached, detached int) {
	c.Helper()
	all := c.attachments()
	detached = volumes - len(all)
	for _, a := range all {
		if isAttached(a) {
			attached++
		}
	}
	return attached, detached
}

// underWay are the volumes that are being attached and detached.
func (c *cluster) underWay() (attaching, detaching []int) {
	c.Helper()
	all := c.attachments()
	for n := range volumes {
		switch a, ok := all[c.attachmentName(n, c.node(n))]; {
		case !ok || isAttached(a):
		case a.DeletionTimestamp != nil:
			detaching = append(detaching, n)
		default:
			attaching = append(attaching, n)
		}
	}
	return attaching, detaching
}

// swap detaches the half of the volumes that is attached, attaches the other, and returns how long that takes. When a third
// of both is done it calls meanwhile, if there is one.
func (c *cluster) swap(meanwhile func()) time.Duration {
	c.Helper()
	all := c.attachments()
	began := time.Now()
	for n := range volumes {
		if _, ok := all[c.attachmentName(n, c.node(n))]; ok {
			c.detach(n, c.node(n))
		} else {
			c.attach(n, c.node(n))
		}
	}
	for end := began.Add(4 * time.Minute); ; c.sleep(50 * time.Millisecond) {
		c.check()
		attached, detached := c.progress()
		switch done := attached + detached; {
		case done == volumes:
			return time.Since(began)
		case done >= volumes/3 && meanwhile != nil:
			meanwhile()
			meanwhile = nil
		case time.Now().After(end):
			c.Fatalf("%d volumes are attached and %d detached, want %d of each", attached, detached, volumes/2)
		}
	}
}

// leader is the Pod that the Lease names.
func (c *cluster) leader() *lab.ControllerPod {
	c.Helper()
	lease, err := c.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(c.Context(), leaseName, metav1.GetOptions{})
	c.Must(err)
	at := slices.IndexFunc(c.pods, func(p *lab.ControllerPod) bool { return p.Name == ptr.Deref(lease.Spec.HolderIdentity, "") })
	if at < 0 {
		c.Fatalf("%v leads", lease.Spec.HolderIdentity)
	}
	return c.pods[at]
}

// lose ends or stops the leader, and returns how long it takes until another leads.
func (c *cluster) lose(leader *lab.ControllerPod, sig syscall.Signal) time.Duration {
	c.Helper()
	began := time.Now()
	c.Must(leader.Signal(sig))
	c.Must(c.Await(c.Context(), "another Pod leads", takeoverTakes+10*time.Second, func(context.Context) (bool, error) {
		c.check()
		return c.leader() != leader, nil
	}))
	return time.Since(began)
}

// judge holds what a handover cost against what it may.
func (c *cluster) judge(before, took, taken time.Duration) {
	c.Helper()
	lost := took - before
	c.Logf("with a handover they take %s: %s are lost, of which %s until another led", took.Round(time.Millisecond), lost.Round(time.Millisecond), taken.Round(time.Millisecond))
	if taken > takeoverTakes {
		c.Errorf("another leads after %s, want %s at most", taken, takeoverTakes)
	}
	if lost > timeLost {
		c.Errorf("%s are lost, want %s at most", lost, timeLost)
	}
}

// turnBack has the new leader undo what the old one was at: what was to be attached goes elsewhere, what was to be detached is
// attached again. The old one, when it goes on, must take none of them away.
func (c *cluster) turnBack(attaching, detaching []int) {
	c.Helper()
	const most = 10
	attaching, detaching = attaching[:min(most, len(attaching))], detaching[:min(most, len(detaching))]
	c.Logf("%d attaches and %d detaches that were under way are undone before the old leader goes on", len(attaching), len(detaching))
	if len(attaching)+len(detaching) == 0 {
		c.Fatal("nothing was under way")
	}
	for _, n := range detaching {
		c.attach(n, c.node(n))
	}
	for _, n := range attaching {
		c.detach(n, c.node(n))
	}
	for _, n := range attaching {
		c.Must(c.Await(c.Context(), "volume "+c.disks[n]+" is detached", time.Minute, func(ctx context.Context) (bool, error) {
			c.check()
			_, err := c.Client.StorageV1().VolumeAttachments().Get(ctx, c.attachmentName(n, c.node(n)), metav1.GetOptions{})
			return apierrors.IsNotFound(err), nil
		}))
		c.attach(n, c.elsewhere(n))
	}
	c.Must(c.Await(c.Context(), "all are attached again", time.Minute, func(context.Context) (bool, error) {
		c.check()
		for _, a := range c.attachments() {
			if !isAttached(a) {
				return false, fmt.Errorf("%s is not", a.Name)
			}
		}
		return true, nil
	}))
}

// check holds what Kubernetes is told against what is so in ECS: what is attached, is attached there, and where Kubernetes
// knows of no attachment there is none.
func (c *cluster) check() {
	c.Helper()
	before := c.attachments()
	state, err := c.Simulator.State(c.Context())
	c.Must(err)
	after := c.attachments()
	phases := map[string]string{} // by name of the VolumeAttachment
	for _, d := range state.Disks {
		for _, a := range d.Attachments {
			at := slices.IndexFunc(c.Nodes, func(n lab.Node) bool { return n.Instance == a.Instance })
			phases[d.ID+"."+c.Nodes[at].Name] = a.Phase
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	tell := func(name, format string, args ...any) {
		if !c.wrong[name] {
			c.wrong[name] = true
			c.Errorf("%s: "+format, append([]any{name}, args...)...)
		}
	}
	for name, phase := range phases {
		_, was := before[name]
		if _, is := after[name]; !was && !is {
			tell(name, "ECS has it %s, and Kubernetes knows of no attachment", phase)
		}
	}
	for name, a := range before {
		if isAttached(a) && isAttached(after[name]) && phases[name] != "In_use" {
			tell(name, "Kubernetes has it attached, ECS %q", phases[name])
		}
	}
}
