package podclaims

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func volume(name string, source corev1.VolumeSource) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: source}
}

func ofClaim(name, claim string) corev1.Volume {
	return volume(name, corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}})
}

func TestNames(t *testing.T) {
	scratch := volume("scratch", corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}})
	tmp := volume("tmp", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	for name, test := range map[string]struct {
		volumes []corev1.Volume
		want    []string
	}{
		"no volume":                {},
		"a volume without a claim": {[]corev1.Volume{tmp}, nil},
		"a claim":                  {[]corev1.Volume{ofClaim("data", "data-web-0")}, []string{"data-web-0"}},
		"a generic ephemeral volume, named after the Pod": {[]corev1.Volume{scratch}, []string{"web-0-scratch"}},
		"all, in the Pod's order":                         {[]corev1.Volume{scratch, tmp, ofClaim("data", "b"), ofClaim("logs", "a")}, []string{"web-0-scratch", "b", "a"}},
		"a claim that two volumes share":                  {[]corev1.Volume{ofClaim("data", "a"), ofClaim("more", "a")}, []string{"a", "a"}},
		"a claim without a name":                          {[]corev1.Volume{ofClaim("data", ""), ofClaim("logs", "a")}, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}, Spec: corev1.PodSpec{Volumes: test.volumes}}
			if got := Names(pod); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestByVolume(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{ofClaim("data", "a"), ofClaim("logs", "b")}}}
	for volume, name := range ByVolume(pod) {
		if volume != &pod.Spec.Volumes[0] || name != "a" {
			t.Errorf("the first is volume %s with claim %s", volume.Name, name)
		}
		break // which ends it
	}
}
