package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/test/lab"
)

const (
	benchNamespace = "bench"
	otherNamespace = "other"
	classLabel     = "class" // of a claim, by which a run's are found again
)

// sideBySide is how many requests of the benchmark are in flight.
const sideBySide = 32

// each calls f for 0 to n-1, many side by side, and returns the first error.
func each(n int, f func(i int) error) error { return eachOf(sideBySide, n, f) }

// eachOf is each with that many calls side by side.
func eachOf(workers, n int, f func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(workers)
	for i := range n {
		group.Go(func() error { return f(i) })
	}
	return group.Wait()
}

func zoneNamed(i int) string { return fmt.Sprintf("zone-%c", 'a'+i%3) }

func nodeNamed(i int) string { return fmt.Sprintf("node-%05d", i) }

// addNodes makes nodes with the driver, from the first to before the last number, over three zones.
func (e *environment) addNodes(ctx context.Context, from, to int) error {
	return each(to-from, func(i int) error {
		node, csiNode := nodeOf(from + i)
		if _, err := e.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return err
		}
		_, err := e.Client.StorageV1().CSINodes().Create(ctx, csiNode, metav1.CreateOptions{})
		return err
	})
}

// nodeOf is a node as kubelet and driver register it.
func nodeOf(i int) (*corev1.Node, *storagev1.CSINode) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeNamed(i), Labels: map[string]string{
		zoneLabel: zoneNamed(i), corev1.LabelHostname: nodeNamed(i), corev1.LabelInstanceTypeStable: "ecs.g6.xlarge",
		"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "node.kubernetes.io/pool": fmt.Sprintf("pool-%d", i%7),
	}}}
	for image := range 20 { // a kubelet tells of its images, and they are most of a Node
		node.Status.Images = append(node.Status.Images,
			corev1.ContainerImage{Names: []string{fmt.Sprintf("registry.invalid/team-%d/service-%d@sha256:%064d", i%5, image, image)}, SizeBytes: 1 << 27})
	}
	return node, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: nodeNamed(i)}, Spec: storagev1.CSINodeSpec{
		Drivers: []storagev1.CSINodeDriver{{Name: benchDriver, NodeID: nodeNamed(i), TopologyKeys: []string{zoneLabel}}}}}
}

// addDriver starts one more driver, which the first three nodes have.
func (e *environment) addDriver(ctx context.Context, name string, creates time.Duration) error {
	if err := serveInstant(e.Dir, name, creates); err != nil {
		return err
	}
	return each(3, func(i int) error {
		node, err := e.Client.StorageV1().CSINodes().Get(ctx, nodeNamed(i), metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Spec.Drivers = append(node.Spec.Drivers, storagev1.CSINodeDriver{Name: name, NodeID: node.Name, TopologyKeys: []string{zoneLabel}})
		_, err = e.Client.StorageV1().CSINodes().Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
}

// addClass makes a class of its own for a run.
func (e *environment) addClass(ctx context.Context, mode storagev1.VolumeBindingMode) (string, error) {
	return e.addClassOf(ctx, benchDriver, mode)
}

// addClassOf is addClass for a driver.
func (e *environment) addClassOf(ctx context.Context, driver string, mode storagev1.VolumeBindingMode) (string, error) {
	e.classes++
	class := lab.Class(fmt.Sprintf("bench-%d", e.classes), mode, nil)
	class.Provisioner = driver
	e.driverOf[class.Name] = driver
	_, err := e.Client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	return class.Name, err
}

// claim is one that waits for the controller-manager to assign its provisioner: the scheduler has said its part.
func (e *environment) claim(class string, i int, mode storagev1.VolumeBindingMode) *corev1.PersistentVolumeClaim {
	claim := lab.Claim(benchNamespace, fmt.Sprintf("%s-%d", class, i), class, "20Gi")
	claim.Labels, claim.Annotations = map[string]string{classLabel: class}, map[string]string{}
	if mode == storagev1.VolumeBindingWaitForFirstConsumer {
		claim.Annotations[lab.SelectedNode] = nodeNamed(i % 3)
	}
	return claim
}

// readyClaim is one that is ready to be provisioned: the controller-manager has said its part, too.
func (e *environment) readyClaim(class string, i int, mode storagev1.VolumeBindingMode) *corev1.PersistentVolumeClaim {
	claim := e.claim(class, i, mode)
	for _, key := range []string{"volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner"} {
		claim.Annotations[key] = e.driverOf[class]
	}
	return claim
}

// addClaims makes n claims of a class that are ready, all at once.
func (e *environment) addClaims(ctx context.Context, class string, n int, mode storagev1.VolumeBindingMode) error {
	_, err := e.addClaimsIn(ctx, benchNamespace, class, n, mode)
	return err
}

// addClaimsIn is addClaims for a namespace, and returns the claims.
func (e *environment) addClaimsIn(
	ctx context.Context, namespace, class string, n int, mode storagev1.VolumeBindingMode,
) ([]*corev1.PersistentVolumeClaim, error) {
	made := make([]*corev1.PersistentVolumeClaim, n)
	return made, each(n, func(i int) (err error) {
		claim := e.readyClaim(class, i, mode)
		claim.Namespace = namespace
		made[i], err = e.Client.CoreV1().PersistentVolumeClaims(namespace).Create(ctx, claim, metav1.CreateOptions{})
		return err
	})
}

// addBound makes claims with their volumes, as they stand in a cluster that has been at work for a while.
func (e *environment) addBound(ctx context.Context, n int) error {
	class, err := e.addClass(ctx, storagev1.VolumeBindingWaitForFirstConsumer)
	if err != nil {
		return err
	}
	return each(n, func(i int) error {
		claim := e.readyClaim(class, i, storagev1.VolumeBindingWaitForFirstConsumer)
		claim.Spec.VolumeName = fmt.Sprintf("d-bp1%09d", i)
		claim.Annotations["pv.kubernetes.io/bind-completed"] = "yes"
		made, err := e.Client.CoreV1().PersistentVolumeClaims(benchNamespace).Create(ctx, claim, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		pv, err := e.Client.CoreV1().PersistentVolumes().Create(ctx, boundVolume(made), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		return e.setBound(ctx, made, pv)
	})
}

// setBound does for the controller-manager what it does one after the other. What it has begun with it ends itself.
func (e *environment) setBound(ctx context.Context, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) error {
	pv.Status.Phase = corev1.VolumeBound
	_, err := e.Client.CoreV1().PersistentVolumes().UpdateStatus(ctx, pv, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsConflict(err) {
		return err
	}
	claim.Status.Phase, claim.Status.AccessModes, claim.Status.Capacity = corev1.ClaimBound, claim.Spec.AccessModes, pv.Spec.Capacity
	_, err = e.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func boundVolume(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: claim.Spec.VolumeName, Finalizers: []string{"external-provisioner.volume.kubernetes.io/finalizer"},
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": benchDriver},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")}, AccessModes: claim.Spec.AccessModes,
			StorageClassName: *claim.Spec.StorageClassName, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: zoneLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{zoneNamed(0)}}}}}}},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: benchDriver, VolumeHandle: claim.Spec.VolumeName, FSType: "ext4",
				VolumeAttributes: map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "1700000000000-1234-" + benchDriver, "type": "cloud_essd"},
			}},
		},
	}
}

// clear deletes the claims of a class and their volumes, with no provisioner at work.
func (e *environment) clear(ctx context.Context, class string) error {
	if err := e.dropClaims(ctx, class); err != nil {
		return err
	}
	volumes, err := e.volumesOf(ctx, class)
	if err != nil {
		return err
	}
	return errors.Join(e.dropVolumes(ctx, volumes), e.Await(ctx, "the claims of class "+class+" are gone", waitLimit, func(ctx context.Context) (bool, error) {
		claims, err := e.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll).List(ctx, ofClass(class))
		return err == nil && len(claims.Items) == 0, err
	}))
}

// dropVolumes deletes volumes, with no provisioner at work.
func (e *environment) dropVolumes(ctx context.Context, volumes []corev1.PersistentVolume) error {
	return each(len(volumes), func(i int) error {
		name := volumes[i].Name
		if err := e.Client.CoreV1().PersistentVolumes().Delete(ctx, name, metav1.DeleteOptions{}); ignoreMissing(err) != nil {
			return err
		}
		_, err := e.Client.CoreV1().PersistentVolumes().Patch(ctx, name,
			types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		return ignoreMissing(err)
	})
}

func ofClass(class string) metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: classLabel + "=" + class}
}

// dropClaims deletes the claims of a class.
func (e *environment) dropClaims(ctx context.Context, class string) error {
	var all error
	for _, namespace := range []string{benchNamespace, otherNamespace} {
		all = errors.Join(all, e.Client.CoreV1().PersistentVolumeClaims(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, ofClass(class)))
	}
	return all
}

func (e *environment) volumesOf(ctx context.Context, class string) ([]corev1.PersistentVolume, error) {
	list, err := e.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var of []corev1.PersistentVolume
	for _, pv := range list.Items {
		if pv.Spec.StorageClassName == class {
			of = append(of, pv)
		}
	}
	return of, nil
}

// addClaimsAlternately makes n claims of each provisioner's class at an even rate. Of each pair, the provisioner is first that was second
// in the pair before.
func (e *environment) addClaimsAlternately(ctx context.Context, classes [2]string, round, n, perSecond int) error {
	var group errgroup.Group
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for pair := range n {
		for i := range e.inTurn(round + pair) {
			<-tick.C
			group.Go(func() error {
				claim := e.claim(classes[i], pair, waitForConsumer)
				_, err := e.Client.CoreV1().PersistentVolumeClaims(benchNamespace).Create(ctx, claim, metav1.CreateOptions{})
				return err
			})
		}
	}
	return group.Wait()
}
