package deletion

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
)

func TestDeleteUnowned(t *testing.T) {
	foreign := func(pv *v1.PersistentVolume) { pv.Spec.CSI.Driver = "other" }
	for name, test := range map[string]struct {
		pv    *v1.PersistentVolume
		owner string
	}{
		"no PersistentVolume":                  {},
		"that of another volume":               {pv: provisionertest.Volume("d-bp2")},
		"that of the volume":                   {pv: provisionertest.Volume("d-bp1"), owner: "d-bp1"},
		"that of the volume, another driver's": {pv: provisionertest.Volume("d-bp1", foreign), owner: "d-bp1"},
	} {
		t.Run(name, func(t *testing.T) {
			var live []runtime.Object
			if test.pv != nil {
				live = append(live, test.pv)
			}
			driver := &scriptedDriver{}
			err := NewDeleter(fake.NewClientset(live...), driver, time.Second).DeleteUnowned(t.Context(), "d-bp1", map[string]string{"k": "v"})
			owner := ""
			if owned := (*OwnedError)(nil); errors.As(err, &owned) {
				owner, err = owned.PersistentVolume, nil
			}
			if err != nil || owner != test.owner || (len(driver.deleted) == 1) != (test.owner == "") {
				t.Fatalf("%v, owned by %q, deleted %v", err, owner, driver.deleted)
			}
			if owner == "" && (driver.deleted[0].VolumeId != "d-bp1" || driver.deleted[0].Secrets["k"] != "v") {
				t.Errorf("deleted %v", driver.deleted)
			}
		})
	}
	t.Run("unknown PersistentVolumes", func(t *testing.T) {
		api, driver := fake.NewClientset(), &scriptedDriver{}
		api.PrependReactor("list", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("etcd is slow")
		})
		if err := NewDeleter(api, driver, time.Second).DeleteUnowned(t.Context(), "d-bp1", nil); err == nil || driver.calls() != 0 {
			t.Errorf("%v, deleted %v", err, driver.deleted)
		}
	})
}

// timedDriver says whether its caller has set a deadline.
type timedDriver struct{ timed bool }

func (d *timedDriver) DeleteVolume(ctx context.Context, _ *csi.DeleteVolumeRequest, _ ...grpc.CallOption) (*csi.DeleteVolumeResponse, error) {
	_, d.timed = ctx.Deadline()
	return &csi.DeleteVolumeResponse{}, nil
}

func TestCallsOfDeleteVolumeHaveADeadline(t *testing.T) {
	driver := &timedDriver{}
	if err := NewDeleter(fake.NewClientset(), driver, time.Second).DeleteUnowned(t.Context(), "d-bp1", nil); err != nil || !driver.timed {
		t.Errorf("%v, with a deadline: %v", err, driver.timed)
	}
}
