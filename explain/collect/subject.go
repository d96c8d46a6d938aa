package collect

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/internal/podclaims"
	"github.com/topodisk/topodisk/provisioner/request"
)

// What each kind of subject needs is said at explain.Facts.

func (r *reader) readPod(ctx context.Context) error {
	pod, err := read(ctx, r, &r.pods, r.subject.Name, r.Kube.CoreV1().Pods(r.subject.Namespace).Get)
	if err != nil {
		return err
	}
	r.involve(Pod, pod)
	names := podclaims.Names(pod)
	together(
		func() { r.readClaims(ctx, pod.Namespace, names) },
		func() { r.readPodsUsing(ctx, pod.Namespace, names) },
		func() { r.readNodes(ctx) },
		func() { r.readAttachments(ctx, nil) },
		func() { r.readProvisioner(ctx) },
	)
	if node := r.nodes.of("", pod.Spec.NodeName); node != nil {
		r.involve(Node, node)
	}
	return nil
}

func (r *reader) readClaim(ctx context.Context) error {
	claim, err := read(ctx, r, &r.claims, r.subject.Name, r.Kube.CoreV1().PersistentVolumeClaims(r.subject.Namespace).Get)
	if err != nil {
		return err
	}
	r.involve(Claim, claim)
	together(
		func() { r.readClaimNeeds(ctx, claim) },
		func() { r.readPodsUsing(ctx, claim.Namespace, []string{claim.Name}) },
		func() { r.readNodesOfClaim(ctx, claim) },
		func() { r.readAttachmentsOf(ctx, claim.Spec.VolumeName, "") },
		func() { r.readProvisioner(ctx) },
	)
	if claim.Spec.VolumeName == "" {
		r.readConsumers(ctx, claim.Annotations[request.AnnSelectedNode] == "")
	}
	return nil
}

// readConsumers reads what the Pods that use a claim without a volume need: the volumes of all their claims are saved together. Without a
// node, one of the Pods is to get one first.
func (r *reader) readConsumers(ctx context.Context, withoutNode bool) {
	var each []func()
	for _, pod := range r.pods.all() {
		each = append(each, func() { r.readClaims(ctx, pod.Namespace, podclaims.Names(pod)) })
	}
	if len(each) > 0 && withoutNode {
		each = append(each, func() { r.readAttachments(ctx, nil) })
	}
	together(each...)
}

func (r *reader) readVolume(ctx context.Context) error {
	volume, err := read(ctx, r, &r.volumes, r.subject.Name, r.Kube.CoreV1().PersistentVolumes().Get)
	if err != nil {
		return err
	}
	r.involve(Volume, volume)
	together(
		func() {
			if ref := volume.Spec.ClaimRef; ref != nil {
				r.readNamedClaim(ctx, ref.Namespace, ref.Name)
			}
		},
		func() {
			r.listVolumes(ctx, func(other *corev1.PersistentVolume) bool { return sameDisk(other, volume) }, &r.volumes)
		},
		func() { r.readAttachmentsOf(ctx, volume.Name, "") },
		func() { r.readClasses(ctx) },
		func() { r.readProvisioner(ctx) },
	)
	return nil
}

func (r *reader) readNode(ctx context.Context) error {
	node, err := read(ctx, r, &r.nodes, r.subject.Name, r.Kube.CoreV1().Nodes().Get)
	if err != nil {
		return err
	}
	r.involve(Node, node)
	together(
		func() { r.readNamedCSINode(ctx, node.Name) },
		func() { r.readCSIDriver(ctx) },
		func() { r.readAttachmentsOf(ctx, "", node.Name) },
		func() {
			readNamed(ctx, r, lease, corev1.NamespaceNodeLease, node.Name, &r.leases, r.Kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get)
		},
	)
	return nil
}

func (r *reader) readAttachment(ctx context.Context) error {
	attachment, err := read(ctx, r, &r.attachments, r.subject.Name, r.Kube.StorageV1().VolumeAttachments().Get)
	if err != nil {
		return err
	}
	r.involve(VolumeAttachment, attachment)
	together(
		func() { r.readNamedNode(ctx, attachment.Spec.NodeName) },
		func() { r.readNamedCSINode(ctx, attachment.Spec.NodeName) },
		func() { r.readAttachmentsOf(ctx, explain.VolumeName(attachment), attachment.Spec.NodeName) },
		func() { r.readVolumeAndUsers(ctx, explain.VolumeName(attachment)) },
	)
	return nil
}

// readVolumeAndUsers reads a PersistentVolume, its claim and the Pods that use the claim.
func (r *reader) readVolumeAndUsers(ctx context.Context, name string) {
	volume := r.readNamedVolume(ctx, name)
	if volume == nil || volume.Spec.ClaimRef == nil {
		return
	}
	claim := volume.Spec.ClaimRef
	together(
		func() { r.readNamedClaim(ctx, claim.Namespace, claim.Name) },
		func() { r.readPodsUsing(ctx, claim.Namespace, []string{claim.Name}) },
	)
}

// readClaims reads a Pod's claims and what they need.
func (r *reader) readClaims(ctx context.Context, namespace string, names []string) {
	var each []func()
	for _, name := range names {
		each = append(each, func() {
			if claim := r.readNamedClaim(ctx, namespace, name); claim != nil {
				r.readClaimNeeds(ctx, claim)
			}
		})
	}
	together(each...)
}

// readClaimNeeds reads what a claim names, but nodes.
func (r *reader) readClaimNeeds(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	together(
		func() { r.readNamedVolume(ctx, claim.Spec.VolumeName) },
		func() { r.readClasses(ctx) },
		func() { r.readAttributesClasses(ctx, claim) },
		func() { r.readSource(ctx, claim) },
		func() { r.readCapacities(ctx) },
	)
}

// readNodesOfClaim reads the nodes that may decide about a claim: all of them as long as it has no volume.
func (r *reader) readNodesOfClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	if claim.Spec.VolumeName == "" {
		r.readNodes(ctx)
		return
	}
	selected := claim.Annotations[request.AnnSelectedNode]
	together(
		func() { r.readNamedNode(ctx, selected) },
		func() { r.readNamedCSINode(ctx, selected) },
	)
}

// readAttachmentsOf reads the VolumeAttachments of a PersistentVolume and those of a node, and the nodes that have the volume.
func (r *reader) readAttachmentsOf(ctx context.Context, volume, node string) {
	if volume == "" && node == "" {
		return
	}
	r.readAttachments(ctx, func(a *storagev1.VolumeAttachment) bool {
		return volume != "" && explain.VolumeName(a) == volume || node != "" && a.Spec.NodeName == node
	})
	var each []func()
	for _, a := range r.attachments.all() {
		if volume != "" && explain.VolumeName(a) == volume && a.Spec.NodeName != node {
			each = append(each, func() { r.readNamedNode(ctx, a.Spec.NodeName) })
		}
	}
	together(each...)
}

// readPodsUsing reads the Pods that use one of the claims.
func (r *reader) readPodsUsing(ctx context.Context, namespace string, claims []string) {
	if len(claims) == 0 {
		return
	}
	uses := func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(podclaims.Names(pod), func(name string) bool { return slices.Contains(claims, name) })
	}
	var users objects[corev1.Pod]
	listNoted(ctx, r, Pod, namespace, fromCache, r.Kube.CoreV1().Pods(namespace).List, uses, &users)
	oldest := slices.SortedFunc(slices.Values(users.all()), func(a, b *corev1.Pod) int {
		return cmp.Or(endOf(a)-endOf(b), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for i, pod := range oldest {
		r.pods.put(pod.Namespace, pod.Name, pod, false)
		if i < explain.MaxTellingPods {
			r.involve(Pod, pod)
		}
	}
}

// endOf orders Pods by how near they are to their end: those that go on, those that are being deleted, those that have ended.
func endOf(pod *corev1.Pod) int {
	switch {
	case podclaims.HasEnded(pod):
		return 2
	case pod.DeletionTimestamp != nil:
		return 1
	}
	return 0
}

// sameDisk says whether two PersistentVolumes stand for one disk, or for one claim.
func sameDisk(x, y *corev1.PersistentVolume) bool {
	if x.Spec.CSI != nil && y.Spec.CSI != nil && x.Spec.CSI.Driver == y.Spec.CSI.Driver && x.Spec.CSI.VolumeHandle == y.Spec.CSI.VolumeHandle {
		return true
	}
	return x.Spec.ClaimRef != nil && y.Spec.ClaimRef != nil &&
		x.Spec.ClaimRef.Namespace == y.Spec.ClaimRef.Namespace && x.Spec.ClaimRef.Name == y.Spec.ClaimRef.Name
}
