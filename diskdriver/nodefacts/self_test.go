package nodefacts

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/topology"
)

const csiDriver = "disk.example.com"

// told is a Node whose facts are published.
func told(changes ...func(*corev1.Node)) *corev1.Node {
	facts := Facts{Instance: "i-1", Boot: "b1", Type: "ecs.g6.large", Zone: "cn-hangzhou-h", DataDisks: 4}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{}, Annotations: map[string]string{Annotation: facts.text()}},
		Spec:       corev1.NodeSpec{ProviderID: "cn-hangzhou.i-1"},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "b1"}},
	}
	for _, change := range changes {
		change(node)
	}
	return node
}

// What is asked for by flag is what the kubelet is told, at registration and whenever it asks again.
func TestANodeSaysWhereItIsAndHowManyVolumesItTakes(t *testing.T) {
	all := map[string]string{topology.ZoneKey: "cn-hangzhou-h", topology.WellKnownZoneKey: "cn-hangzhou-h", topology.RegionKey: "cn-hangzhou"}
	noWellKnownZone := map[string]string{topology.ZoneKey: "cn-hangzhou-h", topology.RegionKey: "cn-hangzhou"}
	none := func(*corev1.Node) {}
	for _, row := range []struct {
		name     string
		limits   Limits
		change   func(*corev1.Node)
		serials  []string
		segments map[string]string
		volumes  int64
	}{
		{"nothing attached", Limits{}, none, nil, all, 4},
		{"one of ours and one of somebody's", Limits{}, func(n *corev1.Node) {
			n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "kubernetes.io/csi/disk.example.com^d-ours"}}
		}, []string{"ours", "foreign"}, all, 3},
		{"one that is in use still", Limits{}, func(n *corev1.Node) {
			n.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/disk.example.com^d-ours"}
		}, []string{"ours"}, all, 4},
		{"one of another driver", Limits{}, func(n *corev1.Node) {
			n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "kubernetes.io/csi/other.example.com^d-theirs"}}
		}, []string{"theirs"}, all, 3},
		{"ours, which is being attached or detached", Limits{}, none, []string{"moving", "foreign"}, all, 3},
		{"labels that agree", Limits{}, func(n *corev1.Node) {
			n.Labels[topology.WellKnownZoneKey], n.Labels[topology.RegionKey] = "cn-hangzhou-h", "cn-hangzhou"
		}, nil, all, 4},
		{"a zone label of another meaning", Limits{}, func(n *corev1.Node) { n.Labels[topology.WellKnownZoneKey] = "rack-7" }, nil, noWellKnownZone, 4},
		{"none reserved, one seen", Limits{}, none, []string{"foreign"}, all, 3},
		{"two reserved, none seen", Limits{Reserved: 2}, none, nil, all, 2},
		{"two reserved, one of them seen", Limits{Reserved: 2}, none, []string{"foreign"}, all, 2},
		{"one reserved, two seen", Limits{Reserved: 1}, none, []string{"a", "b"}, all, 2},
		{"a limit below", Limits{Volumes: 2}, none, []string{"foreign"}, all, 2},
		{"a limit above", Limits{Volumes: 40}, none, nil, all, 40},
		{"a limit, and ECS doesn't say", Limits{Volumes: 8}, withoutDataDisks, nil, all, 8},
	} {
		t.Run(row.name, func(t *testing.T) {
			moving := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: attachmentName("d-moving", csiDriver, "n1")}}
			elsewhere := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: attachmentName("d-foreign", csiDriver, "n2")}}
			got, err := NewSelf(fake.NewClientset(told(row.change), moving, elsewhere), "n1", csiDriver, row.limits).Node(t.Context(), row.serials)
			want := disk.Node{ID: "i-1", Segments: row.segments, MaxVolumes: row.volumes}
			if err != nil || !cmp.Equal(got, want) {
				t.Errorf("%v\n%s", err, cmp.Diff(want, got))
			}
		})
	}
}

// withoutDataDisks is a Node whose instance's type ECS says nothing of.
func withoutDataDisks(n *corev1.Node) {
	n.Annotations[Annotation] = Facts{Instance: "i-1", Boot: "b1", Type: "ecs.g6.large", Zone: "cn-hangzhou-h"}.text()
}

func TestANodeThatDoesNotKnowItselfSaysWhatIsMissing(t *testing.T) {
	for _, row := range []struct {
		name    string
		objects []runtime.Object
		limits  Limits
		serials []string
		kind    disk.Kind
		want    string
	}{
		{"no Node", nil, Limits{}, nil, disk.Unreachable, "read Node n1"},
		{"no instance", []runtime.Object{told(func(n *corev1.Node) { n.Spec.ProviderID = "kind://x" })}, Limits{}, nil, disk.Blocked, `spec.providerID is "kind://x"; allowed is`},
		{"no facts", []runtime.Object{told(func(n *corev1.Node) { n.Annotations = nil })}, Limits{}, nil, disk.Pending, "the controller of the driver (--node-facts) publishes it"},
		{"facts of an earlier boot", []runtime.Object{told(func(n *corev1.Node) { n.Status.NodeInfo.BootID = "b2" })}, Limits{}, nil, disk.Pending, "as it runs now"},
		{"no room", []runtime.Object{told()}, Limits{}, []string{"a", "b", "c", "d"}, disk.Blocked, "takes 4 data disks, and has as many that are not the driver's: a, b, c, d"},
		{"no room, one reserved", []runtime.Object{told()}, Limits{Reserved: 1}, []string{"a", "b", "c", "d"}, disk.Blocked, "as many that are not the driver's"},
		{"all reserved", []runtime.Object{told()}, Limits{Reserved: 4}, nil, disk.Blocked, "instance i-1 takes 4 data disks, and --reserved-attachments=4 leaves no place for a volume; allowed are fewer than 4"},
		{"reserved, and ECS doesn't say", []runtime.Object{told(withoutDataDisks)}, Limits{Reserved: 1}, nil, disk.Pending, "with dataDisks"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := NewSelf(fake.NewClientset(row.objects...), "n1", csiDriver, row.limits).Node(t.Context(), row.serials)
			if disk.KindOf(err) != row.kind || err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v (%v), want %q", err, disk.KindOf(err), row.want)
			}
		})
	}
}

// The name is one that the attach/detach controller of Kubernetes 1.36.3 gave.
func TestNameOfAnAttachmentIsThatOfKubernetes(t *testing.T) {
	got := attachmentName("d-bp10toyqav0000000004", "diskplugin.csi.alibabacloud.com", "node-j1")
	if want := "csi-f83b93ea72897e9748f388ca4f6cf5e95b857109a96b4a5b2e6d40221e84addd"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestAnAttachmentThatCannotBeReadIsNotTakenForNone(t *testing.T) {
	client := fake.NewClientset(told())
	client.PrependReactor("get", "volumeattachments", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no answer")
	})
	_, err := NewSelf(client, "n1", csiDriver, Limits{}).Node(t.Context(), []string{"unread"})
	if want := "of disk d-unread, which Node n1 sees: no answer"; disk.KindOf(err) != disk.Unreachable || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v (%v), want %q", err, disk.KindOf(err), want)
	}
	if got, err := NewSelf(client, "n1", csiDriver, Limits{Volumes: 2}).Node(t.Context(), []string{"unread"}); err != nil || got.MaxVolumes != 2 {
		t.Errorf("with a limit of its own: %d, %v; want 2 without a look at attachments", got.MaxVolumes, err)
	}
}

func TestStartupTaintGoesOnceCSINodeHasTheLimit(t *testing.T) {
	other := corev1.Taint{Key: "example.com/other", Effect: corev1.TaintEffectNoSchedule}
	client := fake.NewClientset(told(func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: StartupTaint, Effect: corev1.TaintEffectNoExecute}, other}
	}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		NewSelf(client, "n1", csiDriver, Limits{}).Untaint(ctx)
	}()
	csiNode := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: storagev1.CSINodeSpec{
		Drivers: []storagev1.CSINodeDriver{{Name: csiDriver, NodeID: "i-1"}}}}
	if _, err := client.StorageV1().CSINodes().Create(ctx, csiNode, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	limit := int32(4)
	csiNode = csiNode.DeepCopy()
	csiNode.Spec.Drivers[0].Allocatable = &storagev1.VolumeNodeResources{Count: &limit}
	if n := len(taints(t, client)); n != 2 {
		t.Errorf("%d taints before there is a limit", n)
	}
	if _, err := client.StorageV1().CSINodes().Update(ctx, csiNode, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for len(taints(t, client)) != 1 {
		time.Sleep(time.Millisecond) // the informers run in real time
	}
	stop()
	<-ended
	if left := taints(t, client); !slices.Equal(left, []corev1.Taint{other}) {
		t.Errorf("left are %v", left)
	}
}

func taints(t *testing.T, client *fake.Clientset) []corev1.Taint {
	t.Helper()
	node, err := client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node.Spec.Taints
}

func TestADrainedNodeWaitsForItsOwnVolumes(t *testing.T) {
	attached := func(driver string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: corev1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^d-1")}}
		}
	}
	drained := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	karpenter := func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "karpenter.sh/disrupted"}} }
	for _, row := range []struct {
		name    string
		objects []runtime.Object
		waits   bool
	}{
		{"a node that stays", []runtime.Object{told(attached(csiDriver))}, false},
		{"a drained node", []runtime.Object{told(drained, attached(csiDriver))}, true},
		{"a node that Karpenter takes", []runtime.Object{told(karpenter, attached(csiDriver))}, true},
		{"a node that is gone", nil, false},
		{"volumes of others", []runtime.Object{told(drained, attached("other"))}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				began := time.Now()
				err := NewSelf(fake.NewClientset(row.objects...), "n1", csiDriver, Limits{}).AwaitDeparture(ctx)
				if took := time.Since(began); (err != nil) != row.waits || (took > 0) != row.waits {
					t.Errorf("got %v after %v", err, took)
				}
				if row.waits && !strings.Contains(err.Error(), "1 volumes are attached to node n1 still") {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}
