package capacity

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
)

func TestOwner(t *testing.T) {
	owned := func(version, kind, name string, by ...metav1.OwnerReference) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: kind},
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, UID: types.UID("uid-" + name), OwnerReferences: by},
		}
	}
	by := func(kind, name string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "apps/v1", Kind: kind, Name: name, UID: types.UID("uid-" + name), Controller: ptr.To(true)}
	}
	client := provisionertest.MetadataClient(
		owned("v1", "Pod", "p", by("ReplicaSet", "rs")), owned("apps/v1", "ReplicaSet", "rs", by("Deployment", "d")), owned("v1", "Pod", "lone"))
	for _, test := range []struct {
		pod   string
		level int
		want  string // kind and name, or the error
	}{
		{"p", 0, "Pod p"}, {"p", 1, "ReplicaSet rs"}, {"p", 2, "Deployment d"},
		{"lone", 1, "Pod kube-system/lone has no owner; set --capacity-ownerref-level=0 or less"},
		{"gone", 0, "Pod kube-system/gone: "},
	} {
		got, err := Owner(t.Context(), client, "kube-system", test.pod, test.level)
		switch {
		case err != nil:
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s, %d: %v", test.pod, test.level, err)
			}
		case got.Kind+" "+got.Name != test.want || got.UID != types.UID("uid-"+got.Name):
			t.Errorf("%s, %d: got %v", test.pod, test.level, got)
		}
	}
}
