package provisioner

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/request"
)

// A provisioner without a Lease, or with one in a namespace that nobody looks at, is found by what it saves.
func TestAnotherProvisionerIsFoundByItsVolumes(t *testing.T) {
	const uid = types.UID("6f2c8a54-0f1e-4d5c-9a52-7f6d3c1b2a90")
	named := func(name string) func(*v1.PersistentVolume) {
		return func(pv *v1.PersistentVolume) { pv.Annotations[request.AnnVolumeName] = name }
	}
	savedBy := func(identity string) func(*v1.PersistentVolume) {
		return func(pv *v1.PersistentVolume) {
			pv.Spec.CSI.VolumeAttributes = map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": identity}
		}
	}
	own := named("disk-" + string(uid))
	for name, test := range map[string]struct {
		pv      string
		changes []func(*v1.PersistentVolume)
		age     time.Duration // of the claim when this process begins to lead
		want    bool
	}{
		"csi-provisioner":                          {pv: "pvc-" + string(uid), changes: []func(*v1.PersistentVolume){savedBy("17-1-disk")}, want: true},
		"csi-provisioner, of an earlier claim":     {pv: "pvc-" + string(uid), changes: []func(*v1.PersistentVolume){savedBy("17-1-disk")}, age: time.Minute},
		"this process":                             {pv: "d-1", changes: []func(*v1.PersistentVolume){own, savedBy("test-identity")}},
		"this process, without its annotation":     {pv: "disk-" + string(uid), changes: []func(*v1.PersistentVolume){savedBy("test-identity")}},
		"disk-provisioner of another namespace":    {pv: "d-1", changes: []func(*v1.PersistentVolume){own, savedBy("18-2-disk")}, want: true},
		"the leader before, of an earlier claim":   {pv: "d-1", changes: []func(*v1.PersistentVolume){own, savedBy("18-2-disk")}, age: time.Minute},
		"a backup that was restored":               {pv: "pvc-an-earlier-one", changes: []func(*v1.PersistentVolume){savedBy("17-1-disk")}},
		"a backup of disk-provisioner's":           {pv: "d-1", changes: []func(*v1.PersistentVolume){named("disk-an-earlier-one"), savedBy("18-2-disk")}},
		"by hand":                                  {pv: "d-" + string(uid), changes: []func(*v1.PersistentVolume){func(pv *v1.PersistentVolume) { pv.Annotations = nil }}},
		"the provisioner of a driver of that name": {pv: "pvc-" + string(uid), changes: []func(*v1.PersistentVolume){func(pv *v1.PersistentVolume) { pv.Spec.CSI.Driver = "other" }}},
	} {
		t.Run(name, func(t *testing.T) {
			var told []string
			b := newBench(t, nil, func(c *Config) {
				c.OtherProvisioner = func(pv, claim string) { told = append(told, pv+" for "+claim) }
			})
			b.claims.Lead()
			made := metav1.NewTime(time.Now().Add(5*time.Second - test.age))
			claim := provisionertest.Claim(func(c *v1.PersistentVolumeClaim) { c.UID, c.CreationTimestamp = uid, made })
			pv := provisionertest.Volume(test.pv, append(test.changes, func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef.UID = uid })...)
			must(t, b.api.Tracker().Add(claim))
			must(t, b.api.Tracker().Add(pv))
			must(t, b.caches.Fill(t.Context()))
			b.volumeChanged(nil, b.cachedVolume(t, test.pv))
			if (len(told) > 0) != test.want || test.want && told[0] != test.pv+" for shop/data" {
				t.Errorf("told %q", told)
			}
		})
	}
}

// cachedVolume returns a PersistentVolume as the cache shows it.
func (b *bench) cachedVolume(t *testing.T, name string) *v1.PersistentVolume {
	t.Helper()
	object, exists, err := b.caches.Volumes.GetStore().GetByKey(name)
	if err != nil || !exists {
		t.Fatalf("the cache has no %s, %v", name, err)
	}
	return object.(*v1.PersistentVolume)
}
