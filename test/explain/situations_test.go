//go:build e2eexplain

package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/internal/sleep"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/simulator"
	"github.com/topodisk/topodisk/test/labtest"
	"github.com/topodisk/topodisk/topology"
)

// situations bring about the cases of explain/testdata/verdicts.yaml, and return the object to be explained.
var situations = map[string]func(*scene) explain.Ref{
	"unschedulable-without-storage": func(s *scene) explain.Ref {
		s.claim("data", s.class(waits, "cloud_essd"))
		s.Pod("app", "data", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000")}
		})
		return pod("app")
	},
	"node-name-set": func(s *scene) explain.Ref {
		s.claim("data", s.class(waits, "cloud_essd"))
		s.Pod("app", "data", func(p *corev1.Pod) { p.Spec.NodeName = nodeH })
		return pod("app")
	},
	"no-room-in-volume-zone": func(s *scene) explain.Ref {
		s.volumeIn(zoneI)
		s.cordon(nodeI)
		s.Pod("next", "data")
		return pod("next")
	},
	"zone-sold-out": func(s *scene) explain.Ref {
		s.Must(s.Simulator.SellOut(s.Context(), zoneJ))
		s.claim("data", s.class(waits, "cloud_essd"))
		s.Pod("app", "data", inZone(zoneJ))
		return pod("app")
	},
	"claims-in-different-zones": func(s *scene) explain.Ref {
		s.claim("data", s.class(atOnce, "cloud_essd", onlyIn(zoneH)))
		s.claim("log", s.class(atOnce, "cloud_essd", onlyIn(zoneI)))
		s.bound("data")
		s.bound("log")
		s.Pod("app", "data", func(p *corev1.Pod) {
			second := p.Spec.Volumes[0].DeepCopy()
			second.Name, second.PersistentVolumeClaim.ClaimName = "log", "log"
			p.Spec.Volumes = append(p.Spec.Volumes, *second)
		})
		return pod("app")
	},
	"selected-node-gone": func(s *scene) explain.Ref {
		s.Must(s.Topodisk.Signal(lab.ProvisionerName, syscall.SIGSTOP)) // it would return the claim to the scheduler within a second
		s.afterwards("resume the provisioner", func(context.Context) error { return s.Topodisk.Signal(lab.ProvisionerName, syscall.SIGCONT) })
		s.claim("data", s.class(waits, "cloud_essd"), func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{"volume.kubernetes.io/selected-node": "node-gone"}
		})
		return claim("data")
	},
	"attach-limit": func(s *scene) explain.Ref {
		class := s.class(waits, "cloud_essd")
		s.claim("first", class)
		s.runs("first", "first", labtest.OnNode(nodeJ))
		s.limit(nodeJ, 1)
		s.claim("data", class)
		s.Pod("app", "data", inZone(zoneJ))
		return pod("app")
	},
	"attach-limit-on-new-node": func(s *scene) explain.Ref {
		s.fault(ecssim.Fault{Action: "AttachDisk", Do: ecssim.FaultError, Status: 403, Code: "InstanceDiskLimitExceeded"})
		s.claim("data", s.class(waits, "cloud_essd"))
		s.Pod("app", "data", labtest.OnNode(nodeH))
		return pod("app")
	},
	"autoscaler-would-not-help": func(s *scene) explain.Ref {
		s.volumeIn(zoneI)
		s.cordon(nodeI)
		s.Pod("next", "data")
		s.Must(s.recordAutoscaler("next"))
		return pod("next")
	},
	"karpenter-would-not-help": func(s *scene) explain.Ref {
		s.volumeIn(zoneI)
		s.cordon(nodeI)
		s.startKarpenter()
		s.Pod("next", "data")
		return pod("next")
	},
	"node-without-driver": func(s *scene) explain.Ref {
		s.claim("data", s.class(waits, "cloud_essd"))
		s.runs("first", "data", labtest.OnNode(nodeI)) // so that the disk is attached
		s.stopPlugin(nodeI)
		s.Pod("app", "data", labtest.OnNode(nodeI))
		s.told(pod("app"), "not found in the list of registered CSI drivers")
		return pod("app")
	},
	"selected-node-without-driver": func(s *scene) explain.Ref {
		s.stopPlugin(nodeI)
		s.claim("data", s.class(waits, "cloud_essd"))
		s.Pod("app", "data", labtest.OnNode(nodeI))
		return pod("app")
	},
	"node-with-startup-taint": func(s *scene) explain.Ref {
		s.stopPlugin(nodeI)
		s.patchNode(nodeI, `{"spec":{"taints":[{"key":"topodisk.io/agent-not-ready","effect":"NoSchedule"}]}}`, `{"spec":{"taints":null}}`)
		return node(nodeI)
	},
	"disk-type-not-taken": func(s *scene) explain.Ref {
		s.volumeIn(zoneH)
		s.Pod("app", "data", labtest.OnNode(oldNode))
		return pod("app")
	},
	"dead-node-has-disk": func(s *scene) explain.Ref {
		s.claim("data", s.class(waits, "cloud_essd"))
		s.runs("app", "data", labtest.OnNode(nodeH))
		s.kill(nodeH)
		s.Must(s.Client.CoreV1().Pods(s.Namespace).Delete(s.Context(), "app", metav1.DeleteOptions{}))
		s.Pod("next", "data", labtest.OnNode(otherH))
		return pod("next")
	},
	"attach-queue": func(s *scene) explain.Ref {
		s.span("Attach", 75*time.Second)
		class := s.class(atOnce, "cloud_essd", onlyIn(zoneI))
		var volumes []string
		for i := range 3 {
			name := fmt.Sprintf("data-%d", i)
			s.claim(name, class)
			volumes = append(volumes, s.bound(name).Volume.Name)
			s.Pod(name, name)
		}
		return s.attachmentThatSays(volumes, "in the queue of the instance")
	},
	"attachment-held-by-finalizer": func(s *scene) explain.Ref {
		s.claim("data", s.class(waits, "cloud_essd"))
		s.runs("app", "data")
		a, err := s.attachment(s.Context(), s.bound("data").Volume.Name)
		s.Must(err)
		s.hold(a)
		s.Must(s.Client.CoreV1().Pods(s.Namespace).Delete(s.Context(), "app", metav1.DeleteOptions{}))
		return attachment(a.Name)
	},
	"resize-pending": func(s *scene) explain.Ref {
		s.claim("data", s.class(atOnce, "cloud_essd"))
		s.bound("data")
		s.PatchClaim("data", `{"spec":{"resources":{"requests":{"storage":"30Gi"}}}}`)
		return claim("data")
	},
	"resize-infeasible": func(s *scene) explain.Ref {
		s.claim("data", s.class(atOnce, "cloud_essd"))
		s.bound("data")
		s.PatchClaim("data", `{"spec":{"resources":{"requests":{"storage":"70Ti"}}}}`)
		return claim("data")
	},
	"modification-cooling-down": func(s *scene) explain.Ref {
		s.span("CoolCategory", 10*time.Minute)
		first, second := s.attributesClass("cloud_essd"), s.attributesClass("cloud_auto") // csi-resizer doesn't ask again for one it has yet to see
		s.claim("data", s.class(atOnce, "cloud_efficiency"))
		s.bound("data")
		modify := func(class string) {
			s.PatchClaim("data", fmt.Sprintf(`{"spec":{"volumeAttributesClassName":%q}}`, class))
		}
		modify(first)
		s.awaitAttributes("data", first)
		modify(second)
		return claim("data")
	},
	"credentials-refused": func(s *scene) explain.Ref {
		s.Must(s.Topodisk.WriteCredentials(simulator.KeyID, "a-wrong-secret"))
		s.afterwards("put the credentials back", func(context.Context) error { return s.Topodisk.WriteCredentials(simulator.KeyID, simulator.Secret) })
		s.claim("data", s.class(atOnce, "cloud_essd"))
		return claim("data")
	},
	"quota-reached": func(s *scene) explain.Ref {
		s.fault(ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultError, Status: 403, Code: "QuotaExceed.PostPaidDisk"})
		s.claim("data", s.class(atOnce, "cloud_essd"))
		return claim("data")
	},
	"calls-throttled": func(s *scene) explain.Ref {
		s.fault(ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultThrottle})
		s.claim("data", s.class(atOnce, "cloud_essd"))
		return claim("data")
	},
	"parameter-refused": func(s *scene) explain.Ref {
		s.claim("data", s.class(atOnce, "cloud_turbo"))
		return claim("data")
	},
	"released-volume-kept": func(s *scene) explain.Ref {
		s.claim("data", s.class(atOnce, "cloud_essd", func(c *storagev1.StorageClass) {
			policy := corev1.PersistentVolumeReclaimRetain
			c.ReclaimPolicy = &policy
		}))
		name := s.bound("data").Volume.Name
		s.afterwards("delete "+name, func(ctx context.Context) error {
			_, err := s.kubectl(ctx, "", "patch", "pv", name, "--patch", `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`)
			return err
		})
		s.Must(s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Delete(s.Context(), "data", metav1.DeleteOptions{}))
		return volume(name)
	},
	"snapshot-not-ready": func(s *scene) explain.Ref {
		s.claim("origin", s.class(waits, "cloud_essd"))
		s.runs("app", "origin")
		for _, span := range []string{"SnapshotCut", "SnapshotUsable", "SnapshotDone"} {
			s.span(span, 30*time.Second)
		}
		s.snapshot("origin")
		s.claim("data", s.class(atOnce, "cloud_essd"), func(c *corev1.PersistentVolumeClaim) {
			group := "snapshot.storage.k8s.io"
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: "origin"}
		})
		return claim("data")
	},
	"other-provisioner": func(s *scene) explain.Ref {
		s.claim("data", s.class(atOnce, "cloud_essd", func(c *storagev1.StorageClass) { c.Provisioner = "ebs.csi.example.com" }))
		return claim("data")
	},
	"nobody-provisions": func(s *scene) explain.Ref {
		s.Topodisk.Stop(lab.ProvisionerName)
		s.afterwards("start the provisioner", func(ctx context.Context) error { return s.Topodisk.StartProvisioner(ctx, lab.ProvisionerName) })
		s.claim("data", s.class(atOnce, "cloud_essd"))
		return claim("data")
	},
	"zone-labels-disagree": func(s *scene) explain.Ref {
		label := func(zone string) string {
			return fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, topology.WellKnownZoneKey, zone)
		}
		s.patchNode(nodeJ, label("cn-hangzhou-x"), label(zoneJ))
		return node(nodeJ)
	},
}

// volumeIn makes the claim data, whose disk is in a zone and attached nowhere.
func (s *scene) volumeIn(zone string) {
	s.Helper()
	s.claim("data", s.class(atOnce, "cloud_essd", onlyIn(zone)))
	s.bound("data")
}

// limit sets how many volumes a node takes. The kubelet sets it anew when the node plugin says something else.
func (s *scene) limit(name string, count int32) {
	s.Helper()
	nodes := s.Client.StorageV1().CSINodes()
	n, err := nodes.Get(s.Context(), name, metav1.GetOptions{})
	s.Must(err)
	i := slices.IndexFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == lab.DriverName })
	before := *n.Spec.Drivers[i].Allocatable.Count
	set := func(ctx context.Context, count int32) error {
		patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/drivers/%d/allocatable/count","value":%d}]`, i, count)
		_, err := nodes.Patch(ctx, name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	s.Must(set(s.Context(), count))
	held, release := context.WithCancel(s.Context())
	var holding sync.WaitGroup
	holding.Go(func() { // the kubelet writes what the driver says again every minute
		for sleep.For(held, time.Second) == nil {
			_ = set(held, count) // the next one may succeed
		}
	})
	s.afterwards("set the limit of "+name+" back", func(ctx context.Context) error {
		release()
		holding.Wait()
		return set(ctx, before)
	})
}

// recordAutoscaler writes the event that cluster-autoscaler 1.33 wrote on a Pod whose volume is in a zone without room.
func (s *scene) recordAutoscaler(name string) error {
	p, err := s.Client.CoreV1().Pods(s.Namespace).Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	now := metav1.Now()
	_, err = s.Client.CoreV1().Events(s.Namespace).Create(s.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: name + ".", Namespace: s.Namespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: s.Namespace, Name: name, UID: p.UID},
		Reason:         "NotTriggerScaleUp",
		Message:        "pod didn't trigger scale-up: 2 node(s) had volume node affinity conflict, 1 max node group size reached",
		Type:           corev1.EventTypeNormal, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: "cluster-autoscaler"},
	}, metav1.CreateOptions{})
	return err
}

// stopPlugin stops the node plugin of a node until the test is over, and waits until the kubelet has unregistered the driver.
func (s *scene) stopPlugin(name string) {
	s.Helper()
	n := s.RealNode(name)
	n.StopProgram(lab.NodePlugin, false)
	s.afterwards("start the node plugin of "+name, func(ctx context.Context) error { return n.StartProgram(ctx, lab.NodePlugin) })
	s.WaitFor("the driver is not registered on "+name, soon, func(ctx context.Context) (bool, error) {
		node, err := s.Client.StorageV1().CSINodes().Get(ctx, name, metav1.GetOptions{})
		return err == nil && !slices.ContainsFunc(node.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == lab.DriverName }), err
	})
}

// kill cuts a node's power until the test is over, and waits until it is found dead.
func (s *scene) kill(name string) {
	s.Helper()
	n := s.RealNode(name)
	n.Kill()
	s.afterwards("start "+name, func(ctx context.Context) error {
		if _, err := s.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service","value":"nodeshutdown","effect":"NoExecute"}]}}`), metav1.PatchOptions{}); err != nil {
			return err
		}
		if _, err := s.AwaitRunning(ctx, s.Namespace, "next", late); err != nil {
			return err
		}
		if _, err := s.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{}); err != nil {
			return err
		}
		return n.Start(ctx)
	})
	s.WaitFor(name+" is found dead", late, func(ctx context.Context) (bool, error) {
		node, err := s.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
		}), err
	})
}

// span has ECS take so long for something until the test is over.
func (s *scene) span(name string, d time.Duration) {
	s.Helper()
	s.Must(s.Simulator.SetSpans(s.Context(), map[string]time.Duration{name: d}))
	s.afterwards("have ECS be quick again", func(ctx context.Context) error {
		return s.Simulator.SetSpans(ctx, map[string]time.Duration{name: 50 * time.Millisecond})
	})
}

// attachmentThatSays waits until one of the volumes' VolumeAttachments has an error with that text.
func (s *scene) attachmentThatSays(volumes []string, text string) (found explain.Ref) {
	s.Helper()
	s.WaitFor("a VolumeAttachment says "+text, late, func(ctx context.Context) (bool, error) {
		for _, name := range volumes {
			a, err := s.attachment(ctx, name)
			if err != nil {
				return false, err
			}
			if e := a.Status.AttachError; e != nil && strings.Contains(e.Message, text) {
				found = attachment(a.Name)
				return true, nil
			}
		}
		return false, nil
	})
	return found
}

// hold adds a finalizer to a VolumeAttachment that nobody removes until the test is over.
func (s *scene) hold(a *storagev1.VolumeAttachment) {
	s.Helper()
	const finalizer = "example.com/backup"
	attachments := s.Client.StorageV1().VolumeAttachments()
	set := func(ctx context.Context, change func([]string) []string) error {
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error { // csi-attacher writes, too
			live, err := attachments.Get(ctx, a.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			live.Finalizers = change(live.Finalizers)
			_, err = attachments.Update(ctx, live, metav1.UpdateOptions{})
			return err
		})
	}
	s.Must(set(s.Context(), func(all []string) []string { return append(all, finalizer) }))
	s.afterwards("remove the finalizer", func(ctx context.Context) error {
		return set(ctx, func(all []string) []string {
			return slices.DeleteFunc(all, func(f string) bool { return f == finalizer })
		})
	})
}

// attributesClass makes a VolumeAttributesClass of a disk type that goes when the test is over, and returns its name.
func (s *scene) attributesClass(kind string) string {
	s.Helper()
	classes := s.Client.StorageV1().VolumeAttributesClasses()
	name := s.Namespace + "-" + strings.ReplaceAll(kind, "_", "-")
	_, err := classes.Create(s.Context(), &storagev1.VolumeAttributesClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: lab.DriverName, Parameters: map[string]string{"type": kind},
	}, metav1.CreateOptions{})
	s.Must(err)
	s.afterwards("delete "+name, func(ctx context.Context) error { return classes.Delete(ctx, name, metav1.DeleteOptions{}) })
	return name
}

// awaitAttributes waits until a claim has a VolumeAttributesClass.
func (s *scene) awaitAttributes(claim, class string) {
	s.Helper()
	s.WaitFor("claim "+claim+" has "+class, late, func(ctx context.Context) (bool, error) {
		c, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(ctx, claim, metav1.GetOptions{})
		return err == nil && c.Status.CurrentVolumeAttributesClassName != nil && *c.Status.CurrentVolumeAttributesClassName == class, err
	})
}

// snapshot takes a VolumeSnapshot of a claim, under the claim's name, to be restored into the claim data.
func (s *scene) snapshot(claim string) {
	s.Helper()
	s.apply(fmt.Sprintf(`apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: %[1]s}
driver: %[3]s
deletionPolicy: Delete
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: %[2]s}
spec:
  volumeSnapshotClassName: %[1]s
  source: {persistentVolumeClaimName: %[2]s}
`, s.Namespace, claim, lab.DriverName))
	s.afterwards("delete snapshot "+claim, func(ctx context.Context) error {
		// The claim keeps the snapshot while it waits for it; csi-snapshotter 8.6 may forget a snapshot that is deleted while it is taken,
		// until it lists all of them after 15 minutes; and the deletion needs the class.
		for _, step := range [][]string{
			{"delete", "--ignore-not-found", "pvc/data"},
			{"wait", "--for=jsonpath={.status.readyToUse}=true", "--timeout=3m", "volumesnapshot/" + claim},
			{"delete", "--ignore-not-found", "volumesnapshot/" + claim},
			{"delete", "--ignore-not-found", "volumesnapshotclass/" + s.Namespace},
		} {
			if _, err := s.kubectl(ctx, "", step...); err != nil {
				return err
			}
		}
		return nil
	})
}
