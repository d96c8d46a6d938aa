package collect

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// strip removes from an object what no verdict needs and a stranger must not see.
func strip(object metav1.Object, driver string) {
	stripMeta(object)
	switch o := object.(type) {
	case *corev1.Pod:
		stripPod(o)
	case *corev1.Node:
		o.Status.Images = nil
	case *corev1.PersistentVolume:
		stripVolume(o, driver)
	case *storagev1.StorageClass:
		if o.Provisioner != driver {
			o.Parameters = nil
		}
	case *storagev1.VolumeAttributesClass:
		if o.DriverName != driver {
			o.Parameters = nil
		}
	case *storagev1.VolumeAttachment:
		if o.Spec.Attacher != driver {
			o.Status.AttachmentMetadata = nil
		}
	}
}

// annotationDomains are those whose annotations are kept; users put anything into their own.
var annotationDomains = []string{"kubernetes.io", "k8s.io", "topodisk.io", "alibabacloud.com", "aliyun.com", "karpenter.sh"}

func stripMeta(object metav1.Object) {
	object.SetManagedFields(nil)
	annotations := maps.Clone(object.GetAnnotations())
	maps.DeleteFunc(annotations, func(name, _ string) bool { return name == corev1.LastAppliedConfigAnnotation || !isKept(name) })
	if len(annotations) == 0 {
		annotations = nil
	}
	object.SetAnnotations(annotations)
}

func isKept(annotation string) bool {
	domain, _, prefixed := strings.Cut(annotation, "/")
	return prefixed && slices.ContainsFunc(annotationDomains, func(kept string) bool { return domain == kept || strings.HasSuffix(domain, "."+kept) })
}

// stripPod keeps what a Pod asks for and how it is: no command, no environment, and of volumes the claims alone.
func stripPod(pod *corev1.Pod) {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			stripContainer(&containers[i])
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		c := corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		stripContainer(&c)
		pod.Spec.EphemeralContainers[i].EphemeralContainerCommon = corev1.EphemeralContainerCommon(c)
	}
	for i, volume := range pod.Spec.Volumes {
		pod.Spec.Volumes[i].VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: volume.PersistentVolumeClaim, Ephemeral: volume.Ephemeral}
		if template := volume.Ephemeral; template != nil && template.VolumeClaimTemplate != nil {
			stripMeta(template.VolumeClaimTemplate)
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range statuses {
			stripState(&statuses[i].State)
			stripState(&statuses[i].LastTerminationState)
		}
	}
}

func stripContainer(c *corev1.Container) {
	*c = corev1.Container{
		Name: c.Name, Image: c.Image, Ports: c.Ports, Resources: c.Resources, ResizePolicy: c.ResizePolicy, RestartPolicy: c.RestartPolicy,
		VolumeMounts: c.VolumeMounts, VolumeDevices: c.VolumeDevices,
	}
}

// stripState removes what may be the end of a container's log.
func stripState(s *corev1.ContainerState) {
	if s.Terminated != nil {
		s.Terminated.Message = ""
	}
}

// stripVolume keeps the attributes of the driver's volumes. Other drivers take keys there.
func stripVolume(pv *corev1.PersistentVolume, driver string) {
	source := pv.Spec.CSI
	pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: source}
	if source == nil || source.Driver == driver {
		return
	}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: source.Driver, VolumeHandle: source.VolumeHandle, ReadOnly: source.ReadOnly, FSType: source.FSType}
}
