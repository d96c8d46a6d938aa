package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/process"
	"github.com/topodisk/topodisk/test/lab/programs"
	"github.com/topodisk/topodisk/topology"
)

// queueLimit is how many times as long attaches may wait behind detaches that hang as without any.
const queueLimit = 1.2

// disksPerInstance is how many disks an instance detaches at a time: so many hang at each.
const disksPerInstance = 5

// queueScale is how much there is of everything.
type queueScale struct {
	hanging, attaches int
	settle            time.Duration // how long the detaches have hung when attaches come for the second time
	limit             time.Duration // for how long the attaches are waited for
}

var (
	queueAll = queueScale{hanging: 5000, attaches: 500, settle: 5 * time.Minute, limit: 40 * time.Minute}
	queueFew = queueScale{hanging: 50, attaches: 20, settle: 10 * time.Second, limit: 5 * time.Minute}
)

// variant is how csi-attacher and disk-driver are started.
type variant struct {
	name, says       string
	attacher, driver []string // after the chart's
	shipped          bool     // held to the target, and measured a second time; others are for comparison
}

func (v variant) named() string { return v.name }

// variants are all of them, the chart's first.
var variants = []variant{
	{name: "chart", says: "as the chart starts them", shipped: true},
	{name: "narrow", says: "500 workers, 100 requests a second, back-off up to 10 s, every call waits for 2 minutes",
		attacher: []string{"--worker-threads=500", "--kube-api-qps=100", "--kube-api-burst=200", "--retry-interval-max=10s"},
		driver:   []string{"--max-waiting-calls=0"}},
}

// attachQueue is a control plane with csi-attacher, disk-driver and the volumes.
type attachQueue struct {
	*lab.Lab
	scale    queueScale
	attacher *process.Process
	batches  int
}

// waits are how long attaches, or detaches, took that were asked for at once.
type waits []time.Duration

func (w waits) at(part float64) float64 {
	slices.Sort(w)
	return w[min(len(w)-1, int(math.Ceil(part*float64(len(w))))-1)].Seconds()
}

// queueFigures are what a variant came to: seconds, and MiB.
type queueFigures struct {
	Variant                  string
	Hanging, Attaches        int
	Idle, Behind, Settled    queueRound
	AttacherPeak, DriverPeak int
	AttacherIdle, DriverIdle int
}

// queueRound is how long attaches took, and the detaches of the same disks after them.
type queueRound struct{ Attach, Detach percentiles }

type percentiles struct{ P50, P99 float64 }

func (w waits) percentiles() percentiles { return percentiles{w.at(0.5), w.at(0.99)} }

func (p percentiles) String() string { return fmt.Sprintf("%s s, %s s", short(p.P50), short(p.P99)) }

func (q *attachQueue) volume(ctx context.Context, controller csi.ControllerClient, i int) error {
	use := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
	}
	zones := []*csi.Topology{{Segments: map[string]string{topology.ZoneKey: zone}}}
	made, err := controller.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: fmt.Sprintf("disk-%d", i), CapacityRange: &csi.CapacityRange{RequiredBytes: 20 << 30}, VolumeCapabilities: []*csi.VolumeCapability{use},
		Parameters: map[string]string{"type": "cloud_essd"}, AccessibilityRequirements: &csi.TopologyRequirement{Requisite: zones, Preferred: zones},
	})
	if err != nil {
		return err
	}
	_, err = q.Client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: queueVolume(i)},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: lab.DriverName, VolumeHandle: made.GetVolume().GetVolumeId(), FSType: "ext4", VolumeAttributes: made.GetVolume().GetVolumeContext(),
			}},
		},
	}, metav1.CreateOptions{})
	return err
}

func queueVolume(i int) string { return fmt.Sprintf("pv-%d", i) }

// instance makes an instance and the CSINode of its node.
func (q *attachQueue) instance(ctx context.Context, name string) error {
	n := lab.Node{Name: "node-" + name, Instance: "i-" + name, Type: "ecs.g6.xlarge", Region: region, Zone: zone}
	if err := q.Simulator.AddInstance(ctx, n.Instance, n.Zone, n.Type); err != nil {
		return err
	}
	_, err := q.Client.StorageV1().CSINodes().Create(ctx, n.CSINode(), metav1.CreateOptions{})
	return err
}

// fill makes volumes and nodes: those that hang first.
func (q *attachQueue) fill(ctx context.Context) error {
	conn, err := grpc.NewClient("unix://"+q.Topodisk.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	controller := csi.NewControllerClient(conn)
	s := q.scale
	return errors.Join(
		each(s.hanging+s.attaches, func(i int) error { return q.volume(ctx, controller, i) }),
		each((s.hanging+disksPerInstance-1)/disksPerInstance, func(i int) error { return q.instance(ctx, fmt.Sprintf("hang%d", i)) }),
		each((s.attaches+disksPerInstance-1)/disksPerInstance, func(i int) error { return q.instance(ctx, fmt.Sprintf("free%d", i)) }),
	)
}

// hang has every detach from the instances of the disks that are to hang never end.
func (q *attachQueue) hang(ctx context.Context) error {
	return q.Simulator.AddFault(ctx, ecssim.Fault{Action: "DetachDisk", Do: ecssim.FaultStuck,
		Params: map[string]string{"InstanceId": "^" + regexp.QuoteMeta("i-hang")}})
}

func (q *attachQueue) startAttacher(flags ...string) (err error) {
	q.attacher, err = q.StartSidecar("csi-attacher", append([]string{"--http-endpoint="}, flags...)...)
	return err
}

// openAttachQueue starts a control plane with the volumes, of which those that are to hang are attached.
func openAttachQueue(ctx context.Context, root string, dirs programs.Dirs, s queueScale) (*attachQueue, batch, error) {
	l, err := lab.Start(ctx, lab.Options{
		Root: root, Programs: dirs, Nodes: lab.ManyNodes(3), Controllers: append([]string{"node-lifecycle-controller"}, controllers[1:]...),
		SimulatorArgs: []string{"--latency=zero", "--queues=parallel", "--calls-kept=1000"},
	})
	if err != nil {
		return nil, batch{}, err
	}
	l.Topodisk.Stop(lab.ProvisionerName)
	q := &attachQueue{Lab: l, scale: s}
	l.Client, err = unlimitedClient(l.Kubeconfig)
	if err == nil {
		err = q.fill(ctx)
	}
	old := q.batch("hang", 0, s.hanging)
	if err == nil {
		err = q.startAttacher(unlimited...)
	}
	if err == nil {
		_, err = q.attach(ctx, old)
	}
	if err == nil {
		q.StopProgram(q.attacher, false)
		q.Topodisk.Stop(lab.DriverProgram)
		err = errors.Join(q.Simulator.SetLatency(ctx, fixed("real")(0)), q.hang(ctx))
	}
	if err != nil {
		return nil, old, errors.Join(err, l.Stop())
	}
	return q, old, nil
}

// round attaches the disks that don't hang, and detaches them again.
func (q *attachQueue) round(ctx context.Context, name string) (r queueRound, err error) {
	b := q.batch("free", q.scale.hanging, q.scale.attaches)
	attach, err := q.attach(ctx, b)
	if err != nil {
		return r, fmt.Errorf("%s: attach: %w", name, err)
	}
	r.Attach = attach.percentiles()
	fmt.Printf("  %s: attached after %s (p50, p99)\n", name, r.Attach)
	detach, err := q.detach(ctx, b)
	if err != nil {
		return r, fmt.Errorf("%s: detach: %w", name, err)
	}
	r.Detach = detach.percentiles()
	fmt.Printf("  %s: detached after %s\n", name, r.Detach)
	return r, nil
}

// measure takes the figures of a variant.
func (q *attachQueue) measure(ctx context.Context, v variant, old batch) (f queueFigures, err error) {
	f = queueFigures{Variant: v.name, Hanging: q.scale.hanging, Attaches: q.scale.attaches}
	if _, err := q.round(ctx, "at the start"); err != nil {
		return f, err
	}
	if f.Idle, err = q.round(ctx, "idle"); err != nil {
		return f, err
	}
	if f.AttacherIdle, f.DriverIdle, err = q.memory("VmRSS"); err != nil {
		return f, err
	}
	begin := time.Now()
	if err := each(len(old.names), func(i int) error { return q.remove(ctx, old, i) }); err != nil {
		return f, err
	}
	fmt.Printf("  (%d VolumeAttachments took %s to delete)\n", len(old.names), time.Since(begin).Round(time.Second))
	if f.Behind, err = q.round(ctx, "behind"); err != nil {
		return f, err
	}
	if v.shipped {
		if err := sleepFor(ctx, time.Until(begin.Add(q.scale.settle))); err != nil {
			return f, err
		}
		if f.Settled, err = q.round(ctx, "settled"); err != nil {
			return f, err
		}
	}
	f.AttacherPeak, f.DriverPeak, err = q.memory("VmHWM")
	return f, err
}

// memory is that of csi-attacher and of disk-driver in MiB.
func (q *attachQueue) memory(name string) (attacher, driver int, err error) {
	a, err := memoryOf(q.attacher, name)
	if err != nil {
		return 0, 0, err
	}
	d, err := memoryOf(q.Find(lab.DriverProgram), name)
	return int(a >> 20), int(d >> 20), err
}

// benchAttachQueue measures how long attaches wait behind detaches that hang. What it measures is kept, and the
// page is written from what is kept.
func benchAttachQueue(ctx context.Context, root string, s queueScale, rows, write string) (err error) {
	wanted, err := chooseRows(rows, variants, variant.named)
	if err != nil {
		return err
	}
	dirs, err := programs.BuildSidecars(ctx, root, os.Stdout)
	if err != nil {
		return err
	}
	results := resultFile[queueFigures]{path: filepath.Join(root, "test", "bench", "attachqueue.json"), commit: commit()}
	for _, v := range wanted {
		f, err := benchVariant(ctx, root, dirs, s, v)
		if err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		fmt.Printf("%s: %+v\n", v.name, f)
		if write == "" {
			continue
		}
		if err := results.save(v.name, []queueFigures{f}); err != nil {
			return err
		}
	}
	if write == "" {
		return nil
	}
	return results.publish(write, "attach-queue", rowKeys(variants, variant.named), queuePage)
}

// benchVariant measures a variant on a control plane of its own.
func benchVariant(ctx context.Context, root string, dirs programs.Dirs, s queueScale, v variant) (f queueFigures, err error) {
	q, old, err := openAttachQueue(ctx, root, dirs, s)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, q.Stop()) }()
	if err := q.Topodisk.StartDriver(ctx, v.driver...); err != nil {
		return f, err
	}
	if err := q.startAttacher(v.attacher...); err != nil {
		return f, err
	}
	return q.measure(ctx, v, old)
}
