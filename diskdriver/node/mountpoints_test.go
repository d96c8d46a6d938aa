package node

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// The kubelet's own layout (Kubernetes, pkg/volume/csi), below its root directory.
const blockDir = "plugins/kubernetes.io/csi/volumeDevices"

// likeKubelet gives a volume the places that the kubelet gives it.
func likeKubelet(r *rig) func(*testVolume) {
	return func(w *testVolume) {
		w.staging = r.directory("plugins/kubernetes.io/csi/disk.example.com/" + w.volume + "/globalmount")
		w.target = func(pod string) string {
			return filepath.Join(r.directory("pods/"+pod+"/volumes/kubernetes.io~csi/"+w.volume), "mount")
		}
		if w.capability.GetBlock() != nil {
			w.staging = r.directory(blockDir + "/staging/" + w.volume)
			w.target = func(pod string) string {
				r.directory("pods/" + pod) // of a Pod that is there
				return filepath.Join(r.directory(blockDir+"/publish/"+w.volume), pod)
			}
		}
	}
}

// bind is a bind mount of a device or a directory.
func (r *rig) bind(from, to string) {
	r.t.Helper()
	r.ok(os.MkdirAll(filepath.Dir(to), 0o750))
	if _, device := blockAt(from); device {
		r.put(to, "")
	} else {
		r.ok(os.MkdirAll(to, 0o750))
	}
	r.ok(unix.Mount(from, to, "", unix.MS_BIND, ""))
}

// bound is where the kubelet binds a block volume for a Pod.
func (r *rig) bound(w testVolume, pod string) string {
	return filepath.Join(r.kubelet, blockDir, w.volume, "dev", pod)
}

// A kubelet that was restarted publishes all volumes again (D2).
func TestAPodsOwnMountsAreNoOtherPod(t *testing.T) {
	t.Run("subPath", func(t *testing.T) {
		r := newRig(t)
		v := r.published(r.attach("s1", 1), singlePod, likeKubelet(r))
		sub := filepath.Join(v.target("a"), "sub")
		r.ok(os.Mkdir(sub, 0o750))
		r.bind(sub, filepath.Join(r.kubelet, "pods/a/volume-subpaths/d-s1/app/0"))
		r.restart()
		r.ok(r.stage(v))
		r.ok(r.publish(v, "a"))
		r.refused(r.publish(v, "b"), disk.Blocked, "one Pod at a time")
		r.ok(r.unpublish(v, "a"))
		r.refused(r.publish(v, "b"), disk.Blocked, "volume-subpaths")
	})
	t.Run("block", func(t *testing.T) {
		r := newRig(t)
		v := r.published(r.attach("s1", 1), asBlock, singlePod, likeKubelet(r))
		r.bind(v.target("a"), r.bound(v, "a"))
		r.restart()
		r.ok(r.stage(v))
		r.ok(r.publish(v, "a"))
		r.refused(r.publish(v, "b"), disk.Blocked, "one Pod at a time")
	})
}

// foreignStage is the driver that was on the node before: it binds the device of a block volume below the staging path.
func (r *rig) foreignStage(m *testDisk, w testVolume) string {
	at := filepath.Join(w.staging, w.volume)
	r.bind(m.loop, at)
	return at
}

// A block volume that another driver staged and published is taken over (D3).
func TestABlockVolumeOfAnotherDriverIsTakenOver(t *testing.T) {
	for name, access := range map[string]func(*testVolume){"of many Pods": func(*testVolume) {}, "of one Pod": singlePod} {
		t.Run(name, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			v := r.volume(m, asBlock, access, likeKubelet(r))
			at := r.foreignStage(m, v)
			r.bind(at, v.target("a"))
			r.bind(m.loop, r.bound(v, "a"))
			m.write(1<<20, []byte("kept"))
			checkUnchanged := m.unchanged()

			r.ok(r.stage(v))
			r.ok(r.publish(v, "a"))
			r.refused(r.unstage(v), disk.InUse, "published still")
			r.ok(unix.Unmount(r.bound(v, "a"), 0))
			r.ok(os.Remove(r.bound(v, "a")))
			r.ok(r.unpublish(v, "a"))
			for range 2 {
				r.ok(r.unstage(v))
			}
			r.isEmpty(v.staging) // the kubelet removes an empty directory alone
			checkUnchanged()
			r.ok(r.stage(v))
			r.ok(r.publish(v, "b"))
		})
	}
}

// succeed detaches a disk whose device may be bound still, and returns the one that is attached next, under the same
// device number.
func (r *rig) succeed(m *testDisk, serial string) *testDisk {
	r.t.Helper()
	r.ok(os.Remove(filepath.Join(r.dev, "disk/by-id/virtio-"+m.serial)))
	r.ok(os.Symlink("../../"+filepath.Base(m.loop), filepath.Join(r.dev, "disk/by-id/virtio-"+serial)))
	r.sh("losetup", "--detach", m.loop)
	next := &testDisk{rig: r, serial: serial, file: filepath.Join(r.t.TempDir(), "body"), loop: m.loop, size: m.size}
	next.truncate(next.size)
	r.sh("losetup", m.loop, next.file)
	r.sh("blockdev", "--setrw", m.loop)
	return next
}

// A bind that was left of a disk says nothing of the one that has its device number next (D3).
func TestABindThatWasLeftIsNoUseOfTheNextDisk(t *testing.T) {
	for name, leave := range map[string]func(r *rig, m *testDisk, old testVolume){
		"staged by another driver": func(r *rig, m *testDisk, old testVolume) { r.foreignStage(m, old) },
		"published to a Pod that has gone": func(r *rig, m *testDisk, old testVolume) {
			r.bind(m.loop, old.target("gone"))
			r.ok(os.RemoveAll(filepath.Join(r.kubelet, "pods/gone")))
		},
		"bound by the kubelet for a Pod that has gone": func(r *rig, m *testDisk, old testVolume) { r.bind(m.loop, r.bound(old, "gone")) },
	} {
		t.Run(name, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			leave(r, m, r.volume(m, asBlock, likeKubelet(r)))
			next := r.succeed(m, "s2")

			v := r.published(next, singlePod, likeKubelet(r))
			r.put(filepath.Join(v.target("a"), "file"), "kept")
			r.ok(r.unpublish(v, "a"))
			r.ok(r.unstage(v))
			r.ok(r.stage(v))
			r.holds(filepath.Join(v.staging, "file"), "kept")
			r.ok(r.unstage(v))

			block := r.published(next, asBlock, singlePod, likeKubelet(r))
			r.ok(r.unpublish(block, "a"))
			r.ok(r.unstage(block))
		})
	}
}

// What a Pod has that is on the node still is neither formatted nor taken away, whatever it is called.
func TestADeviceThatAPodHasIsInUse(t *testing.T) {
	for name, pod := range map[string]string{"a Pod": "b", "nobody knows who": ""} {
		t.Run(name, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			block := r.volume(m, asBlock, likeKubelet(r))
			at := filepath.Join(r.directory("elsewhere"), "device")
			if pod != "" {
				at = block.target(pod)
			}
			r.bind(m.loop, at)
			m.refusesStage(r.volume(m, likeKubelet(r)), disk.InUse, at)
			r.ok(unix.Unmount(at, 0))
			r.ok(os.Remove(at))
			v := r.volume(m, likeKubelet(r))
			r.ok(r.stage(v))
			r.bind(m.loop, at)
			r.refused(r.unstage(v), disk.InUse, at)
			r.refused(r.publish(r.volume(m, singlePod, likeKubelet(r)), "c"), disk.Blocked, at)
		})
	}
}

// A Pod that writes to a device destroys the file system on it that another Pod has: two PersistentVolumes may name one disk.
func TestABlockVolumeIsRefusedWhileItsFileSystemIsMounted(t *testing.T) {
	for _, name := range []string{"staged only", "published", "published, the staging mount lost"} {
		t.Run(name, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			v := r.volume(m, likeKubelet(r))
			r.ok(r.stage(v))
			at := v.staging
			if name != "staged only" {
				r.ok(r.publish(v, "a"))
			}
			if name == "published, the staging mount lost" {
				r.ok(unix.Unmount(v.staging, 0))
				at = v.target("a")
			}
			block := r.volume(m, asBlock, likeKubelet(r))
			r.refused(r.stage(block), disk.InUse, "is mounted at "+at)
			r.refused(r.publish(block, "b"), disk.InUse, "is mounted at "+at)
			if exists(block.target("b")) {
				t.Error("the Pod has a target")
			}
			if name != "staged only" {
				r.ok(r.unpublish(v, "a"))
			}
			r.ok(r.unstage(v))
			r.ok(r.stage(block))
			r.ok(r.publish(block, "b"))
			r.refused(r.stage(v), disk.InUse, "is published as a block volume at ["+block.target("b"))
		})
	}
}

// Only what the other driver has bound at its own place goes.
func TestNothingElseBelowTheStagingPathGoes(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.volume(m, asBlock, likeKubelet(r))
	other := filepath.Join(v.staging, "d-other")
	r.bind(m.loop, other)
	files := filepath.Join(v.staging, v.volume)
	r.bind(t.TempDir(), files)
	r.ok(r.unstage(v))
	for _, path := range []string{other, files} {
		if _, mounted, err := r.server.mounts.at(path); err != nil || !mounted {
			t.Errorf("%s is gone, %v", path, err)
		}
	}
}

// A disk is unstaged although another one has its device number, and is in use.
func TestABlockVolumeIsUnstagedWhenItsDiskHasGone(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.volume(m, asBlock, likeKubelet(r))
	at := r.foreignStage(m, v)
	r.bind(m.loop, at) // a kubelet that was restarted has it staged again
	r.published(r.succeed(m, "s2"), asBlock, likeKubelet(r))
	r.ok(r.unstage(v))
	r.isEmpty(v.staging)
}

// A Pod ends although another disk has the device number of its block volume, which is taken away and of use to nobody; the other disk is
// not in use by it then.
func TestABlockVolumeIsUnpublishedWhenItsDiskHasGone(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.published(m, asBlock, likeKubelet(r))
	next := r.succeed(m, "s2")
	r.refused(r.stage(r.volume(next)), disk.InUse, v.target("a"))
	r.ok(r.unpublish(v, "a"))
	if exists(v.target("a")) {
		t.Error("the target is left")
	}
	r.ok(r.stage(r.volume(next)))
	elsewhere := r.volume(m, asBlock) // whose path names no PersistentVolume
	r.bind(m.loop, elsewhere.target("b"))
	r.refused(r.unpublish(elsewhere, "b"), disk.Invalid, "has another disk than d-s1")
}

// The mounts are gone after a boot, and the file that was bound to is there.
func TestWhatABootLeavesOfABlockVolumeGoes(t *testing.T) {
	r := newRig(t)
	v := r.volume(r.attach("s1", 1), asBlock, likeKubelet(r))
	at := filepath.Join(v.staging, v.volume)
	r.put(at, "")
	r.ok(r.unstage(v))
	r.isEmpty(v.staging)
	r.put(at, "of somebody")
	r.ok(r.unstage(v))
	r.holds(at, "of somebody")
}

// What is mounted over the directory of a path hides the mount at the path, though the table has it: a Pod would get what is seen there.
func TestAMountThatIsHiddenIsNotTheVolume(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.volume(m, likeKubelet(r))
	r.ok(r.stage(v))
	r.put(filepath.Join(v.staging, "file"), "kept")
	r.sh("mount", "-t", "tmpfs", "tmpfs", filepath.Dir(v.staging))
	r.ok(os.Mkdir(v.staging, 0o750))
	r.refused(r.publish(v, "a"), disk.InUse, "a mount at "+v.staging)
	r.isMounted(v.target("a"), 0)
	_, err := r.stats(v, v.staging)
	r.refused(err, disk.NotFound, "no volume is there")
	r.refused(r.unstage(v), disk.InUse, "a mount at "+v.staging)
	r.ok(unix.Unmount(filepath.Dir(v.staging), 0))
	r.ok(r.publish(v, "a"))
	r.holds(filepath.Join(v.target("a"), "file"), "kept")

	pod := filepath.Dir(v.target("a"))
	r.sh("mount", "-t", "tmpfs", "tmpfs", pod)
	r.ok(r.unpublish(v, "a"))
	r.refused(r.unstage(v), disk.InUse, "published still at ["+v.target("a"))
	r.ok(unix.Unmount(pod, 0))
	r.ok(r.unpublish(v, "a"))
	r.ok(r.unstage(v))
}

// A Pod's files may have device nodes of any number, and the kubelet binds what a subPath names: that is a use of the volume that the file
// is on, and none of the disk with the number.
func TestADeviceNodeAmongAPodsFilesIsNoUseOfItsDisk(t *testing.T) {
	for name, access := range map[string]func(*testVolume){"mount": singlePod, "block": func(w *testVolume) { asBlock(w); singlePod(w) }} {
		t.Run(name, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			own := r.published(r.attach("s2", 1), likeKubelet(r))
			number, _ := blockAt(m.loop)
			node := filepath.Join(own.target("a"), "node")
			r.ok(unix.Mknod(node, unix.S_IFBLK|0o600, int(number)))
			r.bind(node, filepath.Join(r.kubelet, "pods/a/volume-subpaths/d-s2/app/0"))

			v := r.published(m, access, likeKubelet(r))
			r.refused(r.publish(v, "b"), disk.Blocked, "one Pod at a time")
			r.ok(r.unpublish(v, "a"))
			r.ok(r.publish(v, "b"))
			r.ok(r.unpublish(v, "b"))
			r.ok(r.unstage(v))

			r.ok(r.unpublish(own, "a"))
			r.refused(r.unstage(own), disk.InUse, "volume-subpaths/d-s2/app/0")
		})
	}
}
