// Package podclaims says which PersistentVolumeClaims a Pod uses, and whether it still does.
package podclaims

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"
)

// ByVolume yields the volumes of a Pod that have a PersistentVolumeClaim, in the Pod's order, and the claim's name in the Pod's namespace.
// That of a generic ephemeral volume is named after Pod and volume; it is the Pod's only if the Pod owns it, which ByVolume can't know.
func ByVolume(pod *corev1.Pod) iter.Seq2[*corev1.Volume, string] {
	return func(yield func(*corev1.Volume, string) bool) {
		for i := range pod.Spec.Volumes {
			volume, name := &pod.Spec.Volumes[i], ""
			switch {
			case volume.PersistentVolumeClaim != nil:
				name = volume.PersistentVolumeClaim.ClaimName
			case volume.Ephemeral != nil:
				name = ephemeral.VolumeClaimName(pod, volume)
			}
			if name != "" && !yield(volume, name) {
				return
			}
		}
	}
}

// Names returns the names that ByVolume yields. A claim that two volumes share is there twice.
func Names(pod *corev1.Pod) []string {
	var names []string
	for _, name := range ByVolume(pod) {
		names = append(names, name)
	}
	return names
}

// HasEnded says whether a Pod has run to its end, so that it uses neither its claims nor room on its node any more.
func HasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// InUse returns the names that ByVolume yields, and none of a Pod that has ended.
func InUse(pod *corev1.Pod) []string {
	if HasEnded(pod) {
		return nil
	}
	return Names(pod)
}
