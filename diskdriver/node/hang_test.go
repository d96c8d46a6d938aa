package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/test/need"
)

// hang mounts a file system that says what its root is, unless it is silent, and answers nothing else, as one whose disk
// or server hangs does
// (Linux, Documentation/filesystems/fuse.rst).
// When the test is over, ended returns once nobody waits for an answer any more. It returns how many threads wait.
func (r *rig) hang(at string, silent bool, ended func()) *atomic.Int64 {
	r.t.Helper()
	need.Has(r.t, need.FUSE)
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	r.ok(err)
	r.ok(unix.Mount("hang", at, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse)))
	r.t.Cleanup(func() {
		_ = unix.Unmount(at, unix.MNT_FORCE) // busy, but whoever waits for an answer is told that there will be none
		_ = unix.Close(fuse)
		ended()
	})
	var waiting atomic.Int64
	go func() {
		const getattr, statfs, initialize, opendir = 3, 17, 26, 27
		request := make([]byte, 1<<17)
		for {
			n, err := unix.Read(fuse, request)
			if err != nil || n < 16 {
				return
			}
			var body []byte
			operation := binary.LittleEndian.Uint32(request[4:])
			if silent && operation != initialize {
				waiting.Add(1)
				continue
			}
			switch operation {
			case initialize: // version 7.12, whose reply is the shortest
				body = binary.LittleEndian.AppendUint32(nil, 7)
				body = binary.LittleEndian.AppendUint32(body, 12)
				body = append(body, make([]byte, 16)...)
			case getattr: // a directory, for as long as there are clocks
				body = binary.LittleEndian.AppendUint64(nil, 1<<40)
				body = append(body, make([]byte, 8+60)...)
				body = binary.LittleEndian.AppendUint32(body, unix.S_IFDIR|0o755)
				body = binary.LittleEndian.AppendUint32(body, 2)
				body = append(body, make([]byte, 20)...)
			case statfs, opendir:
				waiting.Add(1)
				continue
			default:
				continue
			}
			reply := binary.LittleEndian.AppendUint32(nil, uint32(16+len(body)))
			reply = append(append(reply, 0, 0, 0, 0), request[8:16]...)
			if _, err := unix.Write(fuse, append(reply, body...)); err != nil {
				return
			}
		}
	}()
	return &waiting
}

// The kubelet asks for statistics once a minute, and the kernel keeps each thread that waits for a disk that hangs (D9).
func TestAFileSystemThatHangsCostsOneThread(t *testing.T) {
	r := newRig(t)
	m := r.attach("s1", 1)
	v, name := r.volume(m), filepath.Base(m.loop)
	r.ok(os.MkdirAll(r.target("a"), 0o750))
	stats := func() error {
		_, err := r.stats(v, r.target("a"))
		return err
	}
	waiting := r.hang(v.staging, false, func() { _ = stats() })
	r.ok(unix.Mount(v.staging, r.target("a"), "", unix.MS_BIND, ""))
	hung, _, err := r.server.mounts.at(v.staging)
	r.ok(err)
	r.server.devices.sys = t.TempDir() // shows that the device is there
	r.ok(os.MkdirAll(filepath.Join(r.server.devices.sys, "devices/block", name), 0o755))
	r.ok(os.MkdirAll(filepath.Join(r.server.devices.sys, "dev/block"), 0o755))
	r.ok(os.Symlink("../../devices/block/"+name, filepath.Join(r.server.devices.sys, "dev/block", fmt.Sprintf("%d:%d", hung.Major, hung.Minor))))

	const calls = 20
	ended := make(chan error, 2*calls)
	for range calls {
		go func() {
			err := stats()
			if disk.KindOf(err) == disk.Unreachable {
				err = nil
			} else {
				err = fmt.Errorf("statistics: %w", errors.Join(errors.New("want an error that it doesn't answer"), err))
			}
			ended <- err
		}()
		go func() {
			answer, err := r.server.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: v.volume, StagingTargetPath: v.staging, VolumePublishPath: r.target("a")})
			if ill := answer.GetVolumeHealth().GetHealthStatuses(); err == nil && (len(ill) != 1 || ill[0].Reason != unreadable || !strings.Contains(ill[0].Message, "doesn't answer")) {
				err = fmt.Errorf("health: %v", ill)
			}
			ended <- err
		}()
	}
	limit := time.After(20 * time.Second)
	for range 2 * calls {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-limit:
			t.Fatalf("calls go on, and %d threads wait", waiting.Load())
		}
	}
	if n := waiting.Load(); n != 1 {
		t.Errorf("%d threads wait for the file system, want 1", n)
	}
}

// A disk that hangs while it is read, to see whether it is blank, holds up no call beyond its deadline, and is in use until it answers.
func TestACallEndsThoughTheDiskHangsThatIsRead(t *testing.T) {
	r := newRig(t)
	m := r.attachBody("s1", 1)
	v := r.volume(m, usedBefore)
	end := m.body.hangs(reads, 64<<20, 64<<20+piece)
	check := r.checkIsRunning(v)
	r.ok(eventually(20*time.Second, m.body.isHanging))
	block := v
	asBlock(&block)
	blank := func(ctx context.Context, attached string) error { // which a stage asks for once it has read a little
		return r.server.blanks.isBlank(ctx, volumeUse{volume: "d-s1", serial: "s1", attached: attached}, check.device)
	}
	for _, call := range []func(ctx context.Context) error{
		func(ctx context.Context) error { return blank(ctx, "2026-11-24T18:00:00Z") },
		func(ctx context.Context) error { return blank(ctx, check.attached) }, // whose end was asked for
		func(ctx context.Context) error {
			_, err := r.server.NodeUnstageVolume(ctx, v.unstageRequest())
			return err
		},
		func(ctx context.Context) error {
			_, err := r.server.NodeStageVolume(ctx, block.stageRequest())
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), margin+500*time.Millisecond)
		r.refused(call(ctx), disk.InUse, "is being read, to see whether it is blank, and doesn't answer")
		cancel()
	}
	end()
	<-check.ended
	r.ok(r.unstage(v))
	if n := len(r.server.blanks.running); n > 0 {
		t.Errorf("%d disks are read", n)
	}
}

// The kubelet's directory has volumes of other drivers, too, whose servers may hang.
func TestAnotherDriversVolumeThatHangsIsNotAsked(t *testing.T) {
	r := newRig(t)
	v := r.volume(r.attach("s1", 1), likeKubelet(r))
	other := r.directory("pods/b/volumes/kubernetes.io~csi/nfs/mount")
	waiting := r.hang(other, true, func() {})
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(r.stage(v), r.publish(v, "a"), r.unpublish(v, "a"), r.unstage(v)) }()
	select {
	case err := <-ended:
		r.ok(err)
	case <-time.After(20 * time.Second):
		t.Error("the volume waits for the other one")
	}
	if n := waiting.Load(); n > 0 {
		t.Errorf("the other volume was asked %d times", n)
	}
}
