package provisioner

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/topodisk/topodisk/provisioner/attempt"
)

// heldSaves is an API server that saves PersistentVolumes once it is released.
type heldSaves struct {
	kubernetes.Interface
	release chan struct{}
	saving  *atomic.Int32
}

func (s heldSaves) CoreV1() corev1.CoreV1Interface { return heldCore{s.Interface.CoreV1(), s} }

type heldCore struct {
	corev1.CoreV1Interface
	saves heldSaves
}

func (c heldCore) PersistentVolumes() corev1.PersistentVolumeInterface {
	return heldVolumes{c.CoreV1Interface.PersistentVolumes(), c.saves}
}

type heldVolumes struct {
	corev1.PersistentVolumeInterface
	saves heldSaves
}

func (v heldVolumes) Create(ctx context.Context, pv *v1.PersistentVolume, options metav1.CreateOptions) (*v1.PersistentVolume, error) {
	v.saves.saving.Add(1)
	defer v.saves.saving.Add(-1)
	<-v.saves.release
	return v.PersistentVolumeInterface.Create(ctx, pv, options)
}

// While the API server saves as many volumes as it may, as many claims as there are workers are with the driver; no more volumes are made than that.
func TestVolumesThatAreSavedKeepNoClaimFromTheDriver(t *testing.T) {
	const claims = 20
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.exec.trace = func(types.UID, attempt.Action) {}
		driver, saves := &busyDriver{scriptedDriver: b.driver}, heldSaves{b.client, make(chan struct{}), &atomic.Int32{}}
		b.Provisioner.driver, b.client = driver, saves
		b.beginImmediate(t, claims)
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { b.exec.run(ctx) })
		time.Sleep(5 * time.Second) // a call takes one
		workers, savers := b.config.Workers, b.config.SaveWorkers
		if made, saving := int(driver.volumes.Load()), int(saves.saving.Load()); made != workers+savers || saving != savers {
			t.Errorf("%d volumes are made and %d being saved, want %d and %d", made, saving, workers+savers, savers)
		}
		close(saves.release)
		time.Sleep(time.Minute)
		cancel()
		run.Wait()
		list, err := b.api.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
		must(t, err)
		if len(list.Items) != claims {
			t.Errorf("%d volumes are saved for %d claims", len(list.Items), claims)
		}
		if most := int(driver.most.Load()); most != workers {
			t.Errorf("the driver had %d calls at a time, want %d", most, workers)
		}
	})
}

// Whatever becomes of a volume, its claim gives back the slot that it has.
func TestASlotIsGivenBack(t *testing.T) {
	save, other := []attempt.Action{attempt.SaveVolume{}}, []attempt.Action{attempt.CheckClaim{}}
	for name, steps := range map[string][][]attempt.Action{
		"no volume":           {other},
		"saved":               {other, save, {attempt.CountLeakPrevented{}}, nil},
		"not to be saved":     {other, save, other},
		"saved after a retry": {save, save},
		"of another attempt":  {save, other, save},
	} {
		t.Run(name, func(t *testing.T) {
			all := newSlots(1, 1)
			for range 2 { // the second would wait for ever for a slot that the first has kept
				s := all.take()
				for _, actions := range steps {
					s.exchange(actions)
				}
				if working, saving := len(all.working), len(all.saving); working+saving != 1 {
					t.Errorf("it has %d slots of claims without a volume and %d of others", working, saving)
				}
				s.giveBack()
			}
		})
	}
}
