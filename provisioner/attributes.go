package provisioner

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/watch"
)

// attributes returns what the claim's VolumeAttributesClass asks for.
func (r *resolver) attributes(ctx context.Context, claim *v1.PersistentVolumeClaim) (map[string]string, error) {
	name := ptr.Deref(claim.Spec.VolumeAttributesClassName, "")
	switch {
	case name == "":
		return nil, nil
	case !r.config.AttributesClasses:
		return nil, fmt.Errorf("claim.spec.volumeAttributesClassName=%s: --feature-gates=VolumeAttributesClass=false switches it off", name)
	case !r.config.DriverModifies:
		return nil, fmt.Errorf("claim.spec.volumeAttributesClassName=%s: driver %s cannot modify volumes; remove it", name, r.config.DriverName)
	}
	class, err := r.client.StorageV1().VolumeAttributesClasses().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, watch.ReadError(watch.Object{Resource: watch.VolumeAttributesClasses, Name: name}, err)
	}
	if class.DriverName != r.config.DriverName {
		return nil, fmt.Errorf("claim.spec.volumeAttributesClassName=%s: it is of driver %s, not of %s", name, class.DriverName, r.config.DriverName)
	}
	return class.Parameters, nil
}
