package collect

import (
	"context"
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/topodisk/topodisk/diskdriver/nodefacts"
	"github.com/topodisk/topodisk/provisioner/request"
)

// usualNamespace is where topodisk is installed if nothing else is said.
const usualNamespace = metav1.NamespaceSystem

func (r *reader) readNamedClaim(ctx context.Context, namespace, name string) *corev1.PersistentVolumeClaim {
	claim := readNamed(ctx, r, Claim, namespace, name, &r.claims, r.Kube.CoreV1().PersistentVolumeClaims(namespace).Get)
	if claim != nil {
		r.involve(Claim, claim)
	}
	return claim
}

func (r *reader) readNamedVolume(ctx context.Context, name string) *corev1.PersistentVolume {
	volume := readNamed(ctx, r, Volume, "", name, &r.volumes, r.Kube.CoreV1().PersistentVolumes().Get)
	if volume != nil {
		r.involve(Volume, volume)
	}
	return volume
}

func (r *reader) readNamedNode(ctx context.Context, name string) {
	if node := readNamed(ctx, r, Node, "", name, &r.nodes, r.Kube.CoreV1().Nodes().Get); node != nil {
		r.involve(Node, node)
	}
}

func (r *reader) readNamedCSINode(ctx context.Context, name string) {
	readNamed(ctx, r, csiNode, "", name, &r.csiNodes, r.Kube.StorageV1().CSINodes().Get)
}

func (r *reader) readCSIDriver(ctx context.Context) {
	if driver := readNamed(ctx, r, csiDriver, "", r.driver, &r.csiDrivers, r.Kube.StorageV1().CSIDrivers().Get); driver != nil {
		r.involve(csiDriver, driver)
	}
}

// readNodes reads all Nodes and CSINodes.
func (r *reader) readNodes(ctx context.Context) {
	together(
		func() { listNoted(ctx, r, Node, "", fromCache, r.Kube.CoreV1().Nodes().List, nil, &r.nodes) },
		func() {
			listNoted(ctx, r, csiNode, "", fromCache, r.Kube.StorageV1().CSINodes().List, nil, &r.csiNodes)
		},
	)
}

// readAttachments reads the VolumeAttachments that keep returns true for, nil for all of them.
func (r *reader) readAttachments(ctx context.Context, keep func(*storagev1.VolumeAttachment) bool) {
	listNoted(ctx, r, VolumeAttachment, "", fromCache, r.Kube.StorageV1().VolumeAttachments().List, keep, &r.attachments)
}

// everything lists without the cache: it is for what is short.
var everything = metav1.ListOptions{Limit: pageSize}

// listVolumes lists the PersistentVolumes that keep returns true for.
func (r *reader) listVolumes(ctx context.Context, keep func(*corev1.PersistentVolume) bool, to *objects[corev1.PersistentVolume]) {
	listNoted(ctx, r, Volume, "", fromCache, r.Kube.CoreV1().PersistentVolumes().List, keep, to)
}

// readClasses reads all StorageClasses, which are few: a claim may have none, and then the default one counts.
func (r *reader) readClasses(ctx context.Context) {
	r.once("StorageClasses", func() {
		listNoted(ctx, r, storageClass, "", everything, r.Kube.StorageV1().StorageClasses().List, nil, &r.classes)
	})
}

// readAttributesClasses reads the VolumeAttributesClasses that a claim wants and has.
func (r *reader) readAttributesClasses(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	names := []*string{claim.Spec.VolumeAttributesClassName, claim.Status.CurrentVolumeAttributesClassName}
	if modification := claim.Status.ModifyVolumeStatus; modification != nil {
		names = append(names, &modification.TargetVolumeAttributesClassName)
	}
	for _, name := range names {
		if name != nil {
			readNamed(ctx, r, attributesClass, "", *name, &r.attributes, r.Kube.StorageV1().VolumeAttributesClasses().Get)
		}
	}
}

// readCapacities reads all CSIStorageCapacities: disk-provisioner keeps few.
func (r *reader) readCapacities(ctx context.Context) {
	r.once("CSIStorageCapacities", func() {
		listEverywhere(ctx, r, capacity, r.subject.Namespace, everything, func(namespace string) lister[*storagev1.CSIStorageCapacityList] {
			return r.Kube.StorageV1().CSIStorageCapacities(namespace).List
		}, nil, &r.capacities)
	})
}

// readProvisioner reads the CSIDriver and the Leases of disk-provisioner and of the node facts.
func (r *reader) readProvisioner(ctx context.Context) {
	together(
		func() { r.readCSIDriver(ctx) },
		func() { r.readLease(ctx, request.ObjectName(r.driver)) },
		func() { r.readLease(ctx, nodefacts.LeaseName(r.driver)) },
	)
}

// readLease reads a Lease of the namespace that topodisk runs in. Whoever may write to a namespace may make a Lease in it: where several
// namespaces have it and the caller hasn't said which counts, none does.
func (r *reader) readLease(ctx context.Context, name string) {
	if r.namespace != "" {
		readNamed(ctx, r, lease, r.namespace, name, &r.leases, r.Kube.CoordinationV1().Leases(r.namespace).Get)
		return
	}
	options := fromCache
	options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	var found objects[coordinationv1.Lease]
	listEverywhere(ctx, r, lease, usualNamespace, options, func(namespace string) lister[*coordinationv1.LeaseList] {
		return r.Kube.CoordinationV1().Leases(namespace).List
	}, func(l *coordinationv1.Lease) bool { return l.Name == name }, &found)
	all := sorted(&found)
	if len(all) > 1 {
		var namespaces []string
		for i := range all {
			namespaces = append(namespaces, all[i].Namespace)
		}
		r.note(lease, "", fmt.Sprintf("namespaces %s each have a Lease %s; set --topodisk-namespace to the one in which topodisk runs",
			strings.Join(namespaces, ", "), name))
		return
	}
	for i := range all {
		r.leases.put(all[i].Namespace, name, &all[i], false)
	}
}
