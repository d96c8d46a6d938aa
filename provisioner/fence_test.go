package provisioner

import (
	"errors"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

func TestTheDriverIsAskedForNothingOnceTheLeaseIsLost(t *testing.T) {
	var held error
	driver := &scriptedDriver{creates: []answer{made("d-1", 0, "zone-a")}}
	fenced := FenceDriver(func() error { return held }, driver)
	for _, test := range []struct {
		held  error
		asked int
	}{{nil, 1}, {errors.New("the lease is lost"), 1}} {
		held = test.held
		_, createErr := fenced.CreateVolume(t.Context(), &csi.CreateVolumeRequest{})
		_, deleteErr := fenced.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{})
		if creates, deletes := driver.calls(); creates != test.asked || deletes != test.asked {
			t.Errorf("%v: %d creates, %d deletes", test.held, creates, deletes)
		}
		if isNotAsked(createErr) != (held != nil) || isNotAsked(deleteErr) != (held != nil) {
			t.Errorf("%v: %v, %v", held, createErr, deleteErr)
		}
	}
}
