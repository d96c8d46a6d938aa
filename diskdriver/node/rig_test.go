package node

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/test/need"
)

// rig is a node with a Server, whose disks are loop devices.
type rig struct {
	t            *testing.T
	server       *Server
	kubelet, dev string
}

// newRig needs what every test of the node does: the kernel lets only root make devices and mounts. What one of them needs
// besides, such as another file system, sh and volume ask for.
func newRig(t *testing.T) *rig {
	t.Helper()
	need.Has(t, append(need.Programs("losetup", "blockdev", "blkid", "partx", "mkswap", "e2fsck", "resize2fs", "dumpe2fs", "debugfs"),
		need.Mounts, need.LoopDevices, need.FileSystem("ext4"))...)
	if exists("/dev/shm") { // the bodies of disks are written to often, and synced each time
		t.Setenv("TMPDIR", "/dev/shm")
	}
	dir := t.TempDir()
	r := &rig{t: t, kubelet: filepath.Join(dir, "kubelet"), dev: filepath.Join(dir, "dev")}
	for _, d := range []string{r.kubelet, filepath.Join(r.dev, "disk/by-id")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { r.unmountAll() })
	r.restart()
	return r
}

// newRigWithDisk is a rig that has a disk of 1 GiB.
func newRigWithDisk(t *testing.T) (*rig, *testDisk) {
	t.Helper()
	r := newRig(t)
	return r, r.attach("s1", 1)
}

// onEach runs a test for each of some file systems, with a rig of its own.
func onEach(t *testing.T, fsTypes []string, test func(r *rig, m *testDisk, fsType string)) {
	for _, fsType := range fsTypes {
		t.Run(fsType, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			test(r, m, fsType)
		})
	}
}

// restart is the process killed and started again: it knows nothing.
func (r *rig) restart() {
	server, err := New(rigConfig(r.kubelet, r.dev))
	if err != nil {
		r.t.Fatal(err)
	}
	r.server = server
}

// rigConfig is what a Server of a rig works with.
func rigConfig(kubelet, dev string) Config {
	return Config{Driver: "disk.example.com", KubeletDir: kubelet, Dev: dev, Facts: noFacts{}, BlankCheck: BlankCheck{Limit: 20 << 30, Rate: 8 << 30}}
}

type noFacts struct{}

func (noFacts) Node(context.Context, []string) (disk.Node, error) {
	return disk.Node{}, errors.New("none")
}

func (r *rig) unmountAll() {
	all, err := r.server.mounts.table()
	if err != nil {
		r.t.Error(err)
	}
	for i := len(all) - 1; i >= 0; i-- {
		if below(all[i].MountPoint, filepath.Dir(r.kubelet)) {
			if err := unix.Unmount(all[i].MountPoint, 0); err != nil {
				r.t.Errorf("unmount %s: %v", all[i].MountPoint, err)
			}
		}
	}
}

// testDisk is a disk that is attached to the node.
type testDisk struct {
	rig          *rig
	serial, file string
	loop         string // its own device node, below the rig's dev
	size         int64
	body         *body // nil unless its body can fail
}

func (r *rig) sh(name string, args ...string) string {
	r.t.Helper()
	if need.Knows(name) {
		need.Has(r.t, need.Program(name))
	}
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// attach attaches a disk of so many GiB, all zeros.
func (r *rig) attach(serial string, gib int64) *testDisk {
	r.t.Helper()
	return r.attachIn(r.t.TempDir(), serial, gib)
}

// attachIn attaches a disk whose body is a file in a directory.
func (r *rig) attachIn(dir, serial string, gib int64) *testDisk {
	r.t.Helper()
	m := &testDisk{rig: r, serial: serial, file: filepath.Join(dir, "body"), size: gib << 30}
	m.truncate(m.size)
	m.connect(m.file)
	return m
}

// connect makes the disk's device, whose bytes are a file's, and returns the host's node of it. The options are losetup's.
func (m *testDisk) connect(file string, options ...string) (host string) {
	r := m.rig
	r.t.Helper()
	host = r.sh("losetup", append([]string{"--find", "--show", "--partscan", file}, options...)...)
	r.t.Cleanup(func() { r.unmountAll(); r.sh("losetup", "--detach", host) })
	r.sh("blockdev", "--setrw", host) // the kernel keeps what the last disk in the drive was
	m.loop = m.node(host)
	r.ok(os.Symlink("../../"+filepath.Base(m.loop), filepath.Join(r.dev, "disk/by-id", "virtio-"+m.serial)))
	return host
}

// node makes the device node of a host's device on the rig.
func (m *testDisk) node(host string) string {
	m.rig.t.Helper()
	number, is := blockAt(host)
	path := filepath.Join(m.rig.dev, filepath.Base(host))
	if !is {
		m.rig.t.Fatalf("%s is no block device", host)
	}
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(number)); err != nil {
		m.rig.t.Fatal(err)
	}
	return path
}

func (m *testDisk) truncate(size int64) {
	f, err := os.OpenFile(m.file, os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = errors.Join(f.Truncate(size), f.Close())
	}
	if err != nil {
		m.rig.t.Fatal(err)
	}
}

// grow is ECS making the disk larger while it is attached.
func (m *testDisk) grow(gib int64) {
	m.size = gib << 30
	if m.body == nil {
		m.truncate(m.size)
	} else {
		m.rig.ok(unix.Truncate(m.body.path, m.size))
	}
	m.rig.sh("losetup", "--set-capacity", m.loop)
}

// write puts bytes on the device.
func (m *testDisk) write(at int64, content []byte) {
	m.rig.t.Helper()
	f, err := os.OpenFile(m.loop, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(content, at)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		m.rig.t.Fatal(err)
	}
}

// invert changes every bit of one byte, whatever it was: a checksum may have any value.
func (m *testDisk) invert(at int64) {
	m.rig.t.Helper()
	f, err := os.Open(m.loop)
	if err != nil {
		m.rig.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	content := make([]byte, 1)
	if _, err := f.ReadAt(content, at); err != nil {
		m.rig.t.Fatal(err)
	}
	m.write(at, []byte{^content[0]})
}

// scramble fills what is looked at with random bytes.
func (m *testDisk) scramble() {
	m.rig.t.Helper()
	f, err := os.OpenFile(m.loop, os.O_WRONLY, 0)
	m.rig.ok(err)
	defer func() { _ = f.Close() }()
	for _, p := range append(places(m.size), place{m.size - markFromEnd, markSize}) {
		_, err := f.WriteAt(randomBytes(p.size), p.at)
		m.rig.ok(err)
	}
	m.rig.ok(f.Sync())
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

// sum is a checksum of all of the body that was ever written to.
func (m *testDisk) sum() string {
	m.rig.t.Helper()
	m.rig.sh("blockdev", "--flushbufs", m.loop)
	f, err := os.Open(m.file)
	if err != nil {
		m.rig.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	buffer := make([]byte, 1<<20)
	for at := int64(0); ; {
		from, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if err != nil {
			return fmt.Sprintf("%x", sum.Sum(nil))
		}
		hole, err := unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
		m.rig.ok(err)
		n, _ := f.ReadAt(buffer[:min(int64(len(buffer)), hole-from)], from)
		if strings.Trim(string(buffer[:n]), "\x00") != "" {
			_, _ = fmt.Fprintf(sum, "%d %s", from, buffer[:n])
		}
		at = from + int64(n)
	}
}

// testVolume is a volume as it is asked for.
type testVolume struct {
	volume           string
	publish, context map[string]string
	capability       *csi.VolumeCapability
	staging          string
	target           func(pod string) string
	readOnly         bool
}

// volume returns the request for a volume on a disk; the changes are made to it.
func (r *rig) volume(m *testDisk, changes ...func(*testVolume)) testVolume {
	w := testVolume{
		volume: "d-" + m.serial,
		publish: map[string]string{
			disk.VolumeKey: "d-" + m.serial, disk.SerialKey: m.serial, disk.SizeKey: fmt.Sprint(m.size),
			disk.HistoryKey: string(disk.HistoryNew), disk.AttachedKey: time.Now().UTC().Format(time.RFC3339),
		},
		context:    map[string]string{disk.OriginKey: string(disk.OriginEmpty)},
		capability: mounted("ext4"),
		staging:    r.directory("staging-" + m.serial),
		target:     r.target,
	}
	for _, change := range changes {
		change(&w)
	}
	fsType := w.capability.GetMount().GetFsType()
	if _, known := formats[fsType]; known {
		need.Has(r.t, need.FileSystem(fsType))
	}
	return w
}

func (r *rig) directory(name string) string {
	path := filepath.Join(r.kubelet, name)
	if err := os.MkdirAll(path, 0o750); err != nil {
		r.t.Fatal(err)
	}
	return path
}

func mounted(fsType string, options ...string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: options}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

func asFileSystem(fsType string, options ...string) func(*testVolume) {
	return func(w *testVolume) { w.capability = mounted(fsType, options...) }
}

func asBlock(w *testVolume) {
	w.capability = &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

func singlePod(w *testVolume) {
	w.capability.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
}

// usedBefore is a volume that was published before.
func usedBefore(w *testVolume) { w.publish[disk.HistoryKey] = string(disk.HistoryInUse) }

func readOnlyNode(w *testVolume) { w.publish[disk.ReadOnlyKey] = "true" }

func origin(o disk.Origin) func(*testVolume) {
	return func(w *testVolume) { w.context[disk.OriginKey] = string(o) }
}

func (r *rig) stage(w testVolume) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := r.server.NodeStageVolume(ctx, w.stageRequest())
	return err
}

func (w testVolume) stageRequest() *csi.NodeStageVolumeRequest {
	return &csi.NodeStageVolumeRequest{
		VolumeId: w.volume, PublishContext: w.publish, VolumeContext: w.context, StagingTargetPath: w.staging, VolumeCapability: w.capability,
	}
}

// refusesStage wants a volume not to be staged, and no byte of the disk to change.
func (m *testDisk) refusesStage(v testVolume, kind disk.Kind, text string) {
	m.rig.t.Helper()
	defer m.unchanged()()
	m.rig.refused(m.rig.stage(v), kind, text)
}

// unchanged returns a check that the disk's bytes are what they are now.
func (m *testDisk) unchanged() (check func()) {
	before := m.sum()
	return func() {
		m.rig.t.Helper()
		if m.sum() != before {
			m.rig.t.Errorf("the bytes of disk %s changed", m.serial)
		}
	}
}

// published is the volume of a disk, staged, and published to Pod a.
func (r *rig) published(m *testDisk, changes ...func(*testVolume)) testVolume {
	r.t.Helper()
	v := r.volume(m, changes...)
	r.ok(r.stage(v))
	r.ok(r.publish(v, "a"))
	return v
}

// written is the volume of a disk, staged, with a file that holds a word.
func (r *rig) written(m *testDisk, fsType string) testVolume {
	r.t.Helper()
	v := r.volume(m, asFileSystem(fsType))
	r.ok(r.stage(v))
	r.put(filepath.Join(v.staging, "file"), "kept")
	return v
}

func (r *rig) target(pod string) string { return filepath.Join(r.directory("pods"), pod) }

func (r *rig) publish(w testVolume, pod string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := r.server.NodePublishVolume(ctx, w.publishRequest(pod))
	return err
}

func (w testVolume) publishRequest(pod string) *csi.NodePublishVolumeRequest {
	return &csi.NodePublishVolumeRequest{
		VolumeId: w.volume, PublishContext: w.publish, VolumeContext: w.context, StagingTargetPath: w.staging, VolumeCapability: w.capability,
		TargetPath: w.target(pod), Readonly: w.readOnly,
	}
}

func (r *rig) unpublish(w testVolume, pod string) error {
	_, err := r.server.NodeUnpublishVolume(context.Background(), w.unpublishRequest(pod))
	return err
}

func (w testVolume) unpublishRequest(pod string) *csi.NodeUnpublishVolumeRequest {
	return &csi.NodeUnpublishVolumeRequest{VolumeId: w.volume, TargetPath: w.target(pod)}
}

func (r *rig) unstage(w testVolume) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_, err := r.server.NodeUnstageVolume(ctx, w.unstageRequest())
	return err
}

func (w testVolume) unstageRequest() *csi.NodeUnstageVolumeRequest {
	return &csi.NodeUnstageVolumeRequest{VolumeId: w.volume, StagingTargetPath: w.staging}
}

// expand has a volume of Pod a grow to 2 GiB.
func (r *rig) expand(w testVolume) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	answer, err := r.server.NodeExpandVolume(ctx, w.expandRequest())
	return answer.GetCapacityBytes(), err
}

func (w testVolume) expandRequest() *csi.NodeExpandVolumeRequest {
	return &csi.NodeExpandVolumeRequest{VolumeId: w.volume, VolumePath: w.target("a"), StagingTargetPath: w.staging, CapacityRange: &csi.CapacityRange{RequiredBytes: 2 << 30}}
}

// expands wants a volume of Pod a to grow to 2 GiB.
func (r *rig) expands(w testVolume) {
	r.t.Helper()
	if size, err := r.expand(w); err != nil || size != 2<<30 {
		r.t.Fatalf("%d, %v", size, err)
	}
	r.holdsBytes(w, 15<<27)
}

// ok ends the test at an error.
func (r *rig) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// refused wants an error of a Kind that has some words.
func (r *rig) refused(err error, kind disk.Kind, text string) {
	r.t.Helper()
	if err == nil || disk.KindOf(err) != kind || !strings.Contains(err.Error(), text) {
		r.t.Errorf("got %v (%v), want %v with %q", err, disk.KindOf(err), kind, text)
	}
}

func (r *rig) put(path, content string) {
	r.t.Helper()
	r.ok(os.WriteFile(path, []byte(content), 0o600))
}

func (r *rig) holds(path, content string) {
	r.t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != content {
		r.t.Errorf("%s holds %q, %v; want %q", path, got, err, content)
	}
}

// isReadOnly wants that nothing can be written at a path.
func (r *rig) isReadOnly(path string) {
	r.t.Helper()
	if err := os.WriteFile(path, make([]byte, 4<<10), 0o600); err == nil {
		r.t.Errorf("%s was written to", path)
	}
}

func (r *rig) stats(w testVolume, path string) (*csi.NodeGetVolumeStatsResponse, error) {
	return r.server.NodeGetVolumeStats(context.Background(), &csi.NodeGetVolumeStatsRequest{VolumeId: w.volume, VolumePath: path})
}

// holdsBytes wants a volume to have at least so many bytes in all.
func (r *rig) holdsBytes(w testVolume, atLeast int64) {
	r.t.Helper()
	answer, err := r.stats(w, w.target("a"))
	if r.ok(err); answer.Usage[0].Total < atLeast {
		r.t.Errorf("%d bytes in all; want %d", answer.Usage[0].Total, atLeast)
	}
}

// isEmpty wants nothing to be left in a directory.
func (r *rig) isEmpty(path string) {
	r.t.Helper()
	if left, err := os.ReadDir(path); err != nil || len(left) > 0 {
		r.t.Errorf("left in %s are %v, %v", path, left, err)
	}
}
