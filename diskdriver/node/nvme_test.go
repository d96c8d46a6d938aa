package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// shows makes the node's sysfs show a disk under a kernel name, with the device of a test disk below it.
func (r *rig) shows(name string, m *testDisk, attributes map[string]string) {
	r.t.Helper()
	dir := filepath.Join(r.server.devices.sys, "block", name)
	r.ok(os.MkdirAll(filepath.Join(dir, "device"), 0o755))
	for attribute, value := range attributes {
		r.put(filepath.Join(dir, attribute), value+"\n")
	}
	if m != nil {
		number, _ := blockAt(m.loop)
		r.ok(unix.Mknod(filepath.Join(r.dev, name), unix.S_IFBLK|0o600, int(number)))
	}
}

// showsAt is shows, of a disk that the kernel has at a place below its devices, from where its number and its name lead there.
func (r *rig) showsAt(place string, m *testDisk, attributes map[string]string) {
	r.t.Helper()
	sys, name := r.server.devices.sys, filepath.Base(place)
	dir := filepath.Join(sys, "devices", place)
	r.ok(os.MkdirAll(dir, 0o755))
	r.ok(os.Symlink(dir, filepath.Join(sys, "block", name)))
	r.shows(name, m, attributes)
	number, _ := blockAt(m.loop)
	numbers := filepath.Join(sys, "dev/block")
	if _, err := os.Readlink(filepath.Dir(numbers)); err == nil {
		r.ok(os.Remove(filepath.Dir(numbers)))
	}
	r.ok(os.MkdirAll(numbers, 0o755))
	r.ok(os.Symlink(dir, filepath.Join(numbers, fmt.Sprintf("%d:%d", unix.Major(number), unix.Minor(number)))))
}

// What the kernel pads the model of an NVMe cloud disk to.
const paddedModel = "Alibaba Cloud Elastic Block Storage     "

// newRigWithoutUdev is a rig whose sysfs shows what the test has it show.
func newRigWithoutUdev(t *testing.T) *rig {
	r, sys := newRig(t), t.TempDir()
	r.server.devices.sys = sys
	r.ok(os.MkdirAll(filepath.Join(sys, "block"), 0o755))
	r.ok(os.Symlink("/sys/dev", filepath.Join(sys, "dev")))
	return r
}

// With native multipath the kernel shows each path to a disk as a hidden one, which has no device node (D5).
func TestAHiddenNVMePathIsNoSecondDisk(t *testing.T) {
	r := newRigWithoutUdev(t)
	m := r.attach("s1", 1)
	r.ok(os.Remove(filepath.Join(r.dev, "disk/by-id/virtio-s1")))
	r.shows("nvme0n1", m, map[string]string{"device/serial": "s1", "device/model": paddedModel, "hidden": "0"})
	for _, path := range []string{"nvme0c0n1", "nvme0c1n1"} {
		r.shows(path, nil, map[string]string{"device/serial": "s1", "device/model": paddedModel, "hidden": "1"})
	}
	v := r.volume(m)
	r.ok(r.stage(v))
	if at, _, err := r.server.mounts.at(v.staging); err != nil || filepath.Base(at.Source) != "nvme0n1" {
		t.Errorf("staged is %s, %v", at.Source, err)
	}
	serials, err := r.server.serials()
	if err != nil || !slices.Equal(serials, []string{"s1"}) {
		t.Errorf("the node sees %v, %v", serials, err)
	}
}

// A local SSD is part of the instance and takes no cloud disk's place (D5).
func TestALocalSSDIsNoCloudDisk(t *testing.T) {
	r := newRigWithoutUdev(t)
	for name, shown := range map[string]map[string]string{
		"nvme0n1": {"device/serial": "cloud", "device/model": paddedModel},
		"nvme1n1": {"device/serial": "local-1", "device/model": "INTEL SSDPE2KX040T8                      "},
		"nvme2n1": {"device/serial": "local-2", "device/model": "Alibaba Cloud Local Storage"},
		"vdb":     {"serial": "virtio"},
	} {
		r.shows(name, r.attach(shown["serial"]+shown["device/serial"], 1), shown)
	}
	links, err := filepath.Glob(filepath.Join(r.dev, "disk/by-id/*"))
	r.ok(err)
	for _, link := range links {
		r.ok(os.Remove(link))
	}
	// udev links local disks, too.
	r.ok(os.Symlink("../../nvme1n1", filepath.Join(r.dev, "disk/by-id/virtio-local-1")))
	serials, err := r.server.serials()
	if err != nil || !slices.Equal(serials, []string{"cloud", "virtio"}) {
		t.Errorf("the cloud disks are %v, %v; want cloud and virtio", serials, err)
	}
}

// A call that takes a volume away has no context, and knows the disk by the volume's ID alone.
func TestADiskThatOnlyItsContextKnowsIsRefused(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.volume(m, func(w *testVolume) { w.volume = "d-other"; w.publish[disk.VolumeKey] = w.volume })
	m.refusesStage(v, disk.Invalid, `is "s1", and the serial number of disk d-other is "other"`)
}

// The kernel has an NVMe disk below its controller or subsystem, with no directory named block between as of others.
func TestAnNVMeDiskIsKnownByItsNumber(t *testing.T) {
	for name, place := range map[string]string{
		"virtio":         "pci0000:00/0000:00:07.0/virtio3/block/vdb",
		"NVMe":           "pci0000:00/0000:00:07.0/nvme/nvme0/nvme0n1",
		"NVMe multipath": "virtual/nvme-subsystem/nvme-subsys0/nvme0n1",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigWithoutUdev(t)
			m, other := r.attach("s1", 1), r.attach("s2", 1)
			for _, serial := range []string{"s1", "s2"} {
				r.ok(os.Remove(filepath.Join(r.dev, "disk/by-id/virtio-"+serial)))
			}
			r.showsAt(place, m, map[string]string{"device/serial": "s1", "hidden": "0"})
			r.showsAt(strings.NewReplacer("vdb", "vdc", "nvme0n1", "nvme1n1").Replace(place), other, map[string]string{"device/serial": "s2", "hidden": "0"})
			v := r.published(m, asFileSystem("xfs"))
			r.isIll(v)
			m.grow(2)
			r.expands(v)
			wrong := r.volume(other)
			_, err := r.stats(wrong, v.target("a"))
			r.refused(err, disk.Blocked, "has another disk than d-s2")
		})
	}
}
