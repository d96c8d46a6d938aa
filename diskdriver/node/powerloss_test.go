package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// records is where the node records what has to outlive the plugin.
func (r *rig) records() string { return filepath.Join(r.kubelet, "plugins") }

// sync writes a file that is durable when it returns.
func (r *rig) sync(dir, name, content string) {
	r.t.Helper()
	f, err := os.Create(filepath.Join(dir, name))
	r.ok(err)
	_, err = f.WriteString(content)
	r.ok(errors.Join(err, f.Sync(), f.Close()))
	d, err := os.Open(dir)
	r.ok(err)
	r.ok(errors.Join(d.Sync(), d.Close()))
}

// recordLife records what is done to a disk from its format until it has grown and leaves the node.
func (r *rig) recordLife(fsType string) (*recording, testVolume) {
	r.t.Helper()
	m := r.attachBody("s1", 1)
	v := r.volume(m, asFileSystem(fsType))
	b := m.body
	b.record(m.size, r.records())
	write := func(name string) {
		for i := range 4 {
			path, content := fmt.Sprint(name, i), string(randomBytes(50_000*(i+1)))
			r.put(filepath.Join(r.target("a"), path+"-unsynced"), content)
			r.sync(r.target("a"), path, content)
			b.keeps(path, content)
		}
	}
	leave := func() {
		r.ok(r.unpublish(v, "a"))
		r.ok(r.unstage(v))
	}
	b.begins("format")
	r.ok(r.stage(v))
	b.begins("write")
	r.ok(r.publish(v, "a"))
	write("small")
	online := fsType == "xfs" // not every kernel lets a mounted ext4 grow
	b.begins("grow")
	if !online {
		leave()
	}
	m.grow(2)
	if !online {
		r.ok(r.stage(v))
		r.ok(r.publish(v, "a"))
	}
	r.expands(v)
	b.begins("write to what has grown")
	write("large")
	b.begins("unstage")
	leave()
	return b.recorded(), v
}

// A node that loses power at any time leaves a disk that can be used, there or elsewhere, with all that was durable.
func TestPowerLossKeepsWhatWasSynced(t *testing.T) {
	const lossesOfOneLife = 20
	losses := uint64(5)
	if *Long {
		losses = 100
	}
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			var w *recording
			var v testVolume
			phases := map[string]int{}
			for i := range losses {
				if i%lossesOfOneLife == 0 {
					w = nil
					t.Run(fmt.Sprint("life ", i/lossesOfOneLife+1), func(t *testing.T) { w, v = newRig(t).recordLife(fsType) })
				}
				if w == nil {
					return // there was no life, and why is said
				}
				l := w.powerLoss(*seed + i)
				phases[l.phase]++
				for _, node := range []string{"same node", "another node"} {
					t.Run(fmt.Sprintf("seed %d, %s", l.seed, node), func(t *testing.T) {
						r := newRig(t)
						m := r.attach("s1", l.size>>30)
						r.ok(l.write(m.file))
						r.sh("blockdev", "--flushbufs", m.loop)
						after := r.volume(m, asFileSystem(fsType), usedBefore)
						if node == "same node" {
							after.publish = v.publish
							r.ok(writeRecords(r.records(), l.records))
							r.restart()
						}
						r.comesBack(m, after, fsType, l, node == "another node")
					})
				}
			}
			t.Logf("the power was lost in %v", phases)
		})
	}
}

// comesBack wants a volume to be staged after a loss of power, and its files to be there.
func (r *rig) comesBack(m *testDisk, v testVolume, fsType string, l powerLoss, elsewhere bool) {
	r.t.Helper()
	defer func() {
		if r.t.Failed() {
			r.t.Logf("the power was lost in %v; for the like of it: %s", &l, again(r.t, l.seed))
		}
	}()
	err := r.stageAgain(v)
	if err != nil && elsewhere && fsType == "ext4" && strings.Contains(l.phase, "grow") && strings.Contains(err.Error(), "can't repair it by itself") {
		// Only the node that grew the file system while it wasn't mounted knows that it did, and that is what the error tells a person to do.
		if out, err := exec.Command("e2fsck", "-f", "-y", m.loop).CombinedOutput(); err != nil && err.Error() != "exit status 1" {
			r.t.Fatalf("e2fsck: %v: %s", err, out)
		}
		err = r.stageAgain(v)
	}
	if err != nil {
		r.t.Fatalf("stuck: %v", err)
	}
	for _, f := range l.files {
		r.holds(filepath.Join(v.staging, f.path), f.content)
	}
	r.ok(r.unstage(v))
	if fsType != "xfs" || !strings.Contains(l.phase, "grow") { // the copies of an xfs superblock are written later, and xfs_repair believes most of them
		r.isSound(m, fsType)
	}
}

// stageAgain stages a volume as the kubelet does: until it is OK, but not for ever.
func (r *rig) stageAgain(v testVolume) error {
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		err, limit := r.stage(v), 3*time.Second
		if disk.KindOf(err) == disk.Pending {
			limit = 2 * time.Minute // all of the disk may have to be read
		}
		if err == nil || time.Since(begin) > limit {
			return err
		}
	}
}

// isSound wants a file system that isn't mounted to need no repair.
func (r *rig) isSound(m *testDisk, fsType string) {
	r.t.Helper()
	if fsType == "xfs" {
		r.sh("xfs_repair", "-n", m.loop)
	} else {
		r.sh("e2fsck", "-f", "-n", m.loop)
	}
}
