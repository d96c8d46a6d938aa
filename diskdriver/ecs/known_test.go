package ecs

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

func TestOldLooksAreDroppedBesideOneThatIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKnown()
		see := func(id disk.ID) {
			now := time.Now()
			k.saw(id, glimpse[disk.Disk]{left: now.Add(-time.Second), back: now, found: true, shown: disk.Disk{ID: id}})
		}
		see("d-renewed")
		see("d-once")
		for range 4 {
			time.Sleep(time.Second)
			see("d-renewed")
		}
		if k.disks["d-once"].look != nil {
			t.Error("a look of four seconds ago is kept")
		}
		if k.disks["d-renewed"].look == nil || len(k.whole) > 3 {
			t.Errorf("the newest look is gone, or %d are kept", len(k.whole))
		}
	})
}
