package node

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

func (r *rig) reasons(w testVolume, pod string) []string {
	r.t.Helper()
	answer, err := r.server.NodeGetVolumeHealth(context.Background(), &csi.NodeGetVolumeHealthRequest{
		VolumeId: w.volume, StagingTargetPath: w.staging, VolumePublishPath: r.target(pod)})
	r.ok(err)
	var reasons []string
	for _, entry := range answer.VolumeHealth.HealthStatuses {
		reasons = append(reasons, entry.Reason)
	}
	return reasons
}

func TestALostMountIsIllAndHasNoNumbers(t *testing.T) {
	r := newRig(t)
	v := r.volume(r.attach("s1", 1))
	r.ok(r.stage(v))
	r.ok(r.publish(v, "a"))
	if got := r.reasons(v, "a"); got != nil {
		t.Errorf("a sound volume is %v", got)
	}
	r.ok(unix.Unmount(r.target("a"), 0))
	if got := r.reasons(v, "a"); len(got) != 1 || got[0] != notMounted {
		t.Errorf("got %v", got)
	}
	_, err := r.server.NodeGetVolumeStats(context.Background(), &csi.NodeGetVolumeStatsRequest{VolumeId: v.volume, VolumePath: r.target("a")})
	r.refused(err, disk.NotFound, "no volume is there")
	_, err = r.server.NodeGetVolumeStats(context.Background(), &csi.NodeGetVolumeStatsRequest{VolumeId: v.volume, VolumePath: filepath.Join(r.kubelet, "x/y")})
	r.refused(err, disk.NotFound, "no volume is there")
}

func TestABlockVolumeIsAsLargeAsItsDevice(t *testing.T) {
	r := newRig(t)
	v := r.volume(r.attach("s1", 2), asBlock)
	r.ok(r.stage(v))
	r.ok(r.publish(v, "a"))
	if total := r.total(v, "a"); total != 2<<30 {
		t.Errorf("%d bytes", total)
	}
	if got := r.reasons(v, "a"); got != nil {
		t.Errorf("a sound volume is %v", got)
	}
}

func TestAFileSystemThatTheKernelStoppedWritingIsIll(t *testing.T) {
	r := newRig(t)
	v := r.volume(r.attach("s1", 1))
	r.ok(r.stage(v))
	r.ok(r.publish(v, "a"))
	r.sh("mount", "-o", "remount,abort", v.staging) // as after an error of the device
	if got := r.reasons(v, "a"); len(got) != 1 || got[0] != turnedReadOnly {
		t.Errorf("got %v", got)
	}
}
