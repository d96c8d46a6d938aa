package node

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// isIll wants a volume of Pod a to be ill for some reasons; without any it is sound.
func (r *rig) isIll(w testVolume, reasons ...string) {
	r.t.Helper()
	answer, err := r.server.NodeGetVolumeHealth(r.t.Context(), &csi.NodeGetVolumeHealthRequest{
		VolumeId: w.volume, StagingTargetPath: w.staging, VolumePublishPath: w.target("a")})
	r.ok(err)
	var got []string
	for _, entry := range answer.VolumeHealth.HealthStatuses {
		got = append(got, entry.Reason)
	}
	if !slices.Equal(got, reasons) {
		r.t.Errorf("the volume is ill for %v; want %v", got, reasons)
	}
}

func TestALostMountIsIllAndHasNoNumbers(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.published(m)
	r.isIll(v)
	r.ok(unix.Unmount(r.target("a"), 0))
	r.isIll(v, notMounted)
	for _, path := range []string{r.target("a"), filepath.Join(r.kubelet, "x/y")} {
		_, err := r.stats(v, path)
		r.refused(err, disk.NotFound, "no volume is there")
	}
}

func TestABlockVolumeIsAsLargeAsItsDevice(t *testing.T) {
	r := newRig(t)
	v := r.published(r.attach("s1", 2), asBlock)
	answer, err := r.stats(v, r.target("a"))
	if r.ok(err); answer.Usage[0].Total != 2<<30 {
		t.Errorf("%d bytes", answer.Usage[0].Total)
	}
	r.isIll(v)
}

func TestAFileSystemThatTheKernelStoppedWritingIsIll(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.published(m)
	r.sh("mount", "-o", "remount,abort", v.staging) // as after an error of the device
	r.isIll(v, turnedReadOnly)
}
