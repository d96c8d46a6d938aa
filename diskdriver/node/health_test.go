package node

import (
	"os"
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

// The kernel tells the last numbers of a file system whose device is gone.
func TestADeviceThatIsGoneIsIllAndHasNoNumbers(t *testing.T) {
	for name, options := range map[string][]func(*testVolume){"file system": nil, "block": {asBlock}} {
		t.Run(name, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			v := r.published(m, options...)
			_, err := r.stats(v, r.target("a"))
			r.ok(err)
			device, err := filepath.EvalSymlinks(filepath.Join(r.dev, "disk/by-id/virtio-s1"))
			r.ok(err)
			r.ok(os.Rename(device, device+"-hidden"))
			r.isIll(v, deviceGone)
			_, err = r.stats(v, r.target("a"))
			r.refused(err, disk.Unreachable, "has left the node")
			r.ok(os.Rename(device+"-hidden", device))
		})
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

// The publish path is no required field: a block volume, of which nothing is mounted where it is staged, is sound as long as its device is there.
func TestTheHealthOfABlockVolumeIsKnownByItsStagingPathAlone(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.published(m, asBlock, likeKubelet(r))
	health := func() []*csi.VolumeHealth_VolumeHealthEntry {
		answer, err := r.server.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: v.volume, StagingTargetPath: v.staging})
		r.ok(err)
		return answer.VolumeHealth.HealthStatuses
	}
	if ill := health(); len(ill) > 0 {
		t.Errorf("a sound block volume is ill: %v", ill)
	}
	r.ok(r.unpublish(v, "a"))
	if ill := health(); len(ill) > 0 {
		t.Errorf("a block volume that is only staged is ill: %v", ill)
	}
	link := filepath.Join(r.dev, "disk/by-id/virtio-s1")
	r.ok(os.Rename(link, link+"-hidden"))
	if ill := health(); len(ill) != 1 || ill[0].Reason != deviceGone {
		t.Errorf("without a device it is ill for %v", ill)
	}
	r.ok(os.Rename(link+"-hidden", link))
	r.ok(r.unstage(v))
	r.ok(os.Remove(v.staging)) // as the kubelet does
	if ill := health(); len(ill) != 1 || ill[0].Reason != notMounted {
		t.Errorf("unstaged it is ill for %v", ill)
	}
}

func TestAFileSystemThatTheKernelStoppedWritingIsIll(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.published(m)
	r.sh("mount", "-o", "remount,abort", v.staging) // as after an error of the device
	r.isIll(v, turnedReadOnly)
}
