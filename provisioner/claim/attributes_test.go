package claim

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/watch"
)

func TestAttributesOfVolumes(t *testing.T) {
	class := &storagev1.VolumeAttributesClass{
		ObjectMeta: metav1.ObjectMeta{Name: "fast"}, DriverName: provisionertest.DriverName, Parameters: map[string]string{"performanceLevel": "PL2"},
	}
	foreign := class.DeepCopy()
	foreign.Name, foreign.DriverName = "foreign", "other"
	tests := map[string]struct {
		class  string
		config func(*Config)
		want   string
		waits  watch.Object
	}{
		"of a class":         {class: "fast"},
		"another driver's":   {class: "foreign", want: "is of driver other"},
		"missing":            {class: "later", want: "not found", waits: watch.Object{Resource: watch.VolumeAttributesClasses, Name: "later"}},
		"can't be modified":  {class: "fast", config: func(c *Config) { c.DriverModifies = false }, want: "cannot modify volumes"},
		"switched off":       {class: "fast", config: func(c *Config) { c.AttributesClasses = false }, want: "VolumeAttributesClass=false"},
		"none, by its empty": {class: ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			keys := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vault", Name: "p"}, Data: map[string][]byte{"k": []byte("v")}}
			b := newBench(t, []answer{made("d-bp1", 0, "zone-a")}, class, foreign, keys)
			b.DriverModifies = true
			if test.config != nil {
				test.config(&b.Config)
			}
			claim := testClaim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = &test.class })
			pv, _, err := b.provision(t.Context(), claim, testClass(map[string]string{
				"csi.storage.k8s.io/provisioner-secret-name": "p", "csi.storage.k8s.io/provisioner-secret-namespace": "vault",
				"csi.storage.k8s.io/controller-publish-secret-name": "p", "csi.storage.k8s.io/controller-publish-secret-namespace": "vault",
				"csi.storage.k8s.io/controller-modify-secret-name": "m", "csi.storage.k8s.io/controller-modify-secret-namespace": "vault",
			}), "node-1")
			if test.want != "" {
				if !strings.Contains(fmt.Sprint(err), test.want) || watch.NotReadyObject(err) != test.waits {
					t.Errorf("got %v, waiting for %v", err, watch.NotReadyObject(err))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := b.driver.Created[0].MutableParameters["performanceLevel"]; (got == "PL2") != (test.class != "") {
				t.Errorf("asked for %q", got)
			}
			if got := ptr.Deref(pv.Spec.VolumeAttributesClassName, ""); got != test.class {
				t.Errorf("the PersistentVolume names %q", got)
			}
			if pv.Annotations["volume.kubernetes.io/controller-modify-secret-name"] != "m" ||
				pv.Annotations["volume.kubernetes.io/controller-modify-secret-namespace"] != "vault" {
				t.Errorf("annotations %v", pv.Annotations)
			}
		})
	}
}
