package deletion

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
)

func TestDeleteUnowned(t *testing.T) {
	of := func(driver, handle string) func(*v1.PersistentVolume) {
		return func(pv *v1.PersistentVolume) { pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle = driver, handle }
	}
	const ours = provisionertest.DriverName
	for name, test := range map[string]struct {
		live  *v1.PersistentVolume
		owner string
	}{
		"no PersistentVolume":                         {},
		"that of another volume":                      {live: provisionertest.Volume("d-bp2")},
		"that of another volume with the name of one": {live: provisionertest.Volume("d-bp1", of(ours, "d-bp2"))},
		"just saved, named after the volume":          {live: provisionertest.Volume("d-bp1"), owner: "d-bp1"},
		"just saved, named after the claim":           {live: provisionertest.Volume("disk-0f1e", of(ours, "d-bp1")), owner: "disk-0f1e"},
		"just saved, another driver's":                {live: provisionertest.Volume("d-bp1", of("other", "d-bp1")), owner: "d-bp1"},
		"of another name":                             {live: provisionertest.Volume("by-hand", of(ours, "d-bp1")), owner: "by-hand"},
		"of another name, another driver's":           {live: provisionertest.Volume("by-hand", of("other", "d-bp1")), owner: "by-hand"},
	} {
		t.Run(name, func(t *testing.T) {
			var live []runtime.Object
			if test.live != nil {
				live = append(live, test.live)
			}
			driver, api := &provisionertest.DeletingDriver{}, fake.NewClientset(live...)
			err := NewDeleter(api, driver, time.Second).DeleteUnowned(t.Context(), "d-bp1", map[string]string{"k": "v"}, func() {})
			owner := ""
			if owned := (*OwnedError)(nil); errors.As(err, &owned) {
				owner, err = owned.PersistentVolume, nil
			}
			if err != nil || owner != test.owner || (len(driver.Deleted) == 1) != (test.owner == "") {
				t.Fatalf("%v, owned by %q, deleted %v", err, owner, driver.Deleted)
			}
			if owner == "" && (driver.Deleted[0].VolumeId != "d-bp1" || driver.Deleted[0].Secrets["k"] != "v") {
				t.Errorf("deleted %v", driver.Deleted)
			}
		})
	}
	t.Run("unknown PersistentVolumes", func(t *testing.T) {
		api, driver := fake.NewClientset(), &provisionertest.DeletingDriver{}
		api.PrependReactor("list", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("etcd is slow")
		})
		if err := NewDeleter(api, driver, time.Second).DeleteUnowned(t.Context(), "d-bp1", nil, func() {}); err == nil || driver.Deletes() != 0 {
			t.Errorf("%v, deleted %v", err, driver.Deleted)
		}
	})
	t.Run("one on the second page", func(t *testing.T) {
		api, driver := fake.NewClientset(), &provisionertest.DeletingDriver{}
		api.PrependReactor("list", "persistentvolumes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			options := action.(clienttesting.ListActionImpl).ListOptions
			if options.Limit == 0 {
				t.Error("all are listed at once")
			}
			if options.Continue == "" {
				return true, &v1.PersistentVolumeList{ListMeta: metav1.ListMeta{Continue: "next"}}, nil
			}
			return true, &v1.PersistentVolumeList{Items: []v1.PersistentVolume{*provisionertest.Volume("d-bp1")}}, nil
		})
		err := NewDeleter(api, driver, time.Second).DeleteUnowned(t.Context(), "d-bp1", nil, func() {})
		if owned := (*OwnedError)(nil); !errors.As(err, &owned) || driver.Deletes() != 0 {
			t.Errorf("%v, deleted %v", err, driver.Deleted)
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
	if err := NewDeleter(fake.NewClientset(), driver, time.Second).DeleteUnowned(t.Context(), "d-bp1", nil, func() {}); err != nil || !driver.timed {
		t.Errorf("%v, with a deadline: %v", err, driver.timed)
	}
}
