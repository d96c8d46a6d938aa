package node

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/topodisk/topodisk/test/need"
)

// body is the bytes of a disk as a file system in user space shows them to a loop device. Requests can fail or hang, and are
// counted and noted.
type body struct {
	path    string    // of the file system, whose root is its only file
	file    *os.File  // has the bytes
	fuse    int       // file descriptor of the connection to the kernel
	sweeper *exec.Cmd // nil: none was started

	mu      sync.Mutex
	changed *sync.Cond // of faults
	faults  []*fault
	asked   map[operation]int
	waiting int
	log     *recording // nil: nothing is noted
}

// operation is a kind of request, or several.
type operation int

const (
	reads operation = 1 << iota
	writes
	discards // whatever makes zeros without sending them
	flushes
	all = reads | writes | discards | flushes
)

// fault is what becomes of requests for a range.
type fault struct {
	of       operation
	from, to int64
	hangs    bool // until the fault ends; else they fail with EIO
}

// attachBody is attach, of a disk whose body can fail. The options are losetup's.
func (r *rig) attachBody(serial string, gib int64, options ...string) *testDisk {
	r.t.Helper()
	need.Has(r.t, need.FUSE)
	m := &testDisk{rig: r, serial: serial, file: filepath.Join(r.t.TempDir(), "body"), size: gib << 30}
	m.truncate(m.size)
	m.body = r.show(m.file)
	host := m.connect(m.body.path, options...)
	r.t.Cleanup(m.body.end) // what hangs can't be unmounted
	m.body.sweepLater(r, host)
	return m
}

// show mounts a file system whose root is a file with the bytes of another.
func (r *rig) show(file string) *body {
	r.t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	r.ok(err)
	b := &body{path: filepath.Join(r.t.TempDir(), "disk"), file: f, asked: map[operation]int{}}
	b.changed = sync.NewCond(&b.mu)
	r.put(b.path, "")
	b.fuse, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	r.ok(err)
	r.ok(unix.Mount("body", b.path, "fuse", unix.MS_NODEV|unix.MS_NOSUID, fmt.Sprintf("fd=%d,rootmode=%o,user_id=0,group_id=0", b.fuse, unix.S_IFREG|0o600)))
	ended := make(chan struct{})
	r.t.Cleanup(func() {
		b.end()
		abort(b.path)
		<-ended
		_ = unix.Close(b.fuse)
		_ = b.file.Close()
		if b.sweeper != nil {
			_ = b.sweeper.Process.Kill()
			_ = b.sweeper.Wait()
		}
	})
	go func() {
		b.serve()
		close(ended)
	}()
	return b
}

// abort takes a file system in user space away. Whoever waits for an answer is told that there will be none.
func abort(path string) {
	_ = unix.Unmount(path, unix.MNT_FORCE)
	_ = unix.Unmount(path, unix.MNT_DETACH)
}

// sweepLater lets a process of its own take the file system and the loop device away if this one is killed: one with a thread that
// waits for an answer which nobody gives any more would never end.
func (b *body) sweepLater(r *rig, loop string) {
	r.t.Helper()
	sweeper, err := helper("sweeper", b.path, loop)
	r.ok(err)
	sweeper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what is sent to all processes of the test is not for it
	beats, err := sweeper.StdinPipe()
	r.ok(err)
	r.ok(sweeper.Start())
	b.sweeper = sweeper
	go func() {
		for {
			if _, err := beats.Write([]byte{0}); err != nil {
				return // it was told to end
			}
			time.Sleep(time.Second)
		}
	}()
}

// sweep waits until it is told no more that the test runs: the pipe stays open for as long as a thread of the test does.
func sweep(args []string) error {
	path, loop := args[0], args[1]
	beats := make(chan struct{})
	go func() {
		for beat := make([]byte, 1); ; beats <- struct{}{} {
			if _, err := os.Stdin.Read(beat); err != nil {
				close(beats)
				return
			}
		}
	}()
	for runs := true; runs; {
		select {
		case _, runs = <-beats:
		case <-time.After(10 * time.Second):
			runs = false
		}
	}
	shown, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(loop), "loop/backing_file"))
	abort(path)
	if err != nil || strings.TrimSpace(string(shown)) != path {
		return err // the test has taken it away
	}
	return exec.Command("losetup", "--detach", loop).Run()
}

// fails has requests for a range fail until it is ended.
func (b *body) fails(of operation, from, to int64) (end func()) {
	return b.begin(&fault{of: of, from: from, to: to})
}

// hangs has requests for a range wait until it is ended.
func (b *body) hangs(of operation, from, to int64) (end func()) {
	return b.begin(&fault{of: of, from: from, to: to, hangs: true})
}

func (b *body) begin(f *fault) (end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, f)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.faults = slices.DeleteFunc(b.faults, func(other *fault) bool { return other == f })
		b.changed.Broadcast()
	}
}

// end ends all faults.
func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = nil
	b.changed.Broadcast()
}

// count returns how many requests there were so far.
func (b *body) count(of operation) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for one, asked := range b.asked {
		if one&of != 0 {
			n += asked
		}
	}
	return n
}

// isHanging is an error if no request waits.
func (b *body) isHanging() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == 0 {
		return errors.New("no request waits")
	}
	return nil
}

// admit counts a request, waits for as long as it is to hang, and says whether it is to fail. The body is locked.
func (b *body) admit(of operation, at, length int64) error {
	b.asked[of]++
	for {
		i := slices.IndexFunc(b.faults, func(f *fault) bool { return f.of&of != 0 && at < f.to && f.from < at+length })
		if i < 0 {
			return nil
		}
		if !b.faults[i].hangs {
			return unix.EIO
		}
		b.waiting++
		b.changed.Wait()
		b.waiting--
	}
}

// mostBytes is how many a request to write has at most.
const mostBytes = 1 << 20

// serve answers the kernel's requests until the file system is unmounted or aborted.
func (b *body) serve() {
	const headers = 4 << 10
	request := make([]byte, mostBytes+headers)
	for {
		n, err := unix.Read(b.fuse, request)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOENT): // ENOENT: whoever asked was killed
		case err != nil:
			return
		default:
			go b.answer(bytes.Clone(request[:n]))
		}
	}
}

// The protocol (Linux, include/uapi/linux/fuse.h), version 7.31.
const (
	opForget, opGetAttr, opSetAttr                 = 2, 3, 4
	opOpen, opRead, opWrite, opStatFS, opRelease   = 14, 15, 16, 17, 18
	opFsync, opInit, opBatchForget, opFallocate    = 20, 26, 42, 43
	asyncRead, bigWrites, asyncDirectIO, manyPages = 1 << 0, 1 << 5, 1 << 15, 1 << 22 // flags of opInit
	directIO                                       = 1                                // flag of opOpen: nothing is cached
	headerSize                                     = 40
)

var native = binary.NativeEndian

// answer answers a request.
func (b *body) answer(request []byte) {
	operation, unique, in := native.Uint32(request[4:]), native.Uint64(request[8:]), request[headerSize:]
	if operation == opForget || operation == opBatchForget {
		return
	}
	body, err := b.reply(operation, in)
	var number unix.Errno
	if err != nil && !errors.As(err, &number) {
		number = unix.EIO
	}
	reply := native.AppendUint32(nil, uint32(16+len(body)))
	reply = native.AppendUint32(reply, uint32(-int32(number)))
	reply = native.AppendUint64(reply, unique)
	_, _ = unix.Write(b.fuse, append(reply, body...)) // fails if whoever asked was killed
}

// reply returns what answers a request.
func (b *body) reply(operation uint32, in []byte) ([]byte, error) {
	switch operation {
	case opInit:
		return initReply(), nil
	case opGetAttr:
		return b.attributes()
	case opSetAttr: // of which only the size is ever changed
		if err := b.resize(int64(native.Uint64(in[16:]))); err != nil {
			return nil, err
		}
		return b.attributes()
	case opOpen:
		return native.AppendUint64(make([]byte, 8), directIO), nil
	case opRelease:
		return nil, nil
	case opStatFS:
		const blockSize = 4 << 10
		reply := make([]byte, 80)
		native.PutUint32(reply[40:], blockSize)
		native.PutUint32(reply[44:], 255)
		native.PutUint32(reply[48:], blockSize)
		return reply, nil
	case opRead:
		return b.read(int64(native.Uint64(in[8:])), int64(native.Uint32(in[16:])))
	case opWrite:
		const writeHeader = 40
		size := native.Uint32(in[16:])
		return native.AppendUint64(nil, uint64(size)), b.write(int64(native.Uint64(in[8:])), in[writeHeader:writeHeader+size])
	case opFallocate:
		return nil, b.discard(int64(native.Uint64(in[8:])), int64(native.Uint64(in[16:])), native.Uint32(in[24:]))
	case opFsync:
		return nil, b.flush()
	}
	return nil, unix.ENOSYS
}

func initReply() []byte {
	reply := make([]byte, 64)
	native.PutUint32(reply, 7)
	native.PutUint32(reply[4:], 31)
	native.PutUint32(reply[12:], asyncRead|bigWrites|asyncDirectIO|manyPages)
	native.PutUint16(reply[16:], 64) // requests in the background
	native.PutUint16(reply[18:], 48)
	native.PutUint32(reply[20:], mostBytes)
	native.PutUint32(reply[24:], 1)
	native.PutUint16(reply[28:], mostBytes/(4<<10))
	return reply
}

// attributes are never cached: the size changes.
func (b *body) attributes() ([]byte, error) {
	info, err := b.file.Stat()
	if err != nil {
		return nil, err
	}
	reply := make([]byte, 16+88)
	attr := reply[16:]
	native.PutUint64(attr, 1)
	native.PutUint64(attr[8:], uint64(info.Size()))
	native.PutUint32(attr[60:], unix.S_IFREG|0o600)
	native.PutUint32(attr[64:], 1)
	native.PutUint32(attr[80:], 4<<10)
	return reply, nil
}

func (b *body) read(at, length int64) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.admit(reads, at, length); err != nil {
		return nil, err
	}
	content := make([]byte, length)
	n, err := b.file.ReadAt(content, at)
	if n > 0 || int64(n) == length {
		err = nil
	}
	return content[:n], err
}

func (b *body) write(at int64, content []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.admit(writes, at, int64(len(content))); err != nil {
		return err
	}
	b.log.note(change{kind: written, at: at, length: int64(len(content)), content: content})
	_, err := b.file.WriteAt(content, at)
	return err
}

// discard makes zeros. The kernel asks for no other kind of fallocate that a loop device has use for.
func (b *body) discard(at, length int64, mode uint32) error {
	if mode&(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_ZERO_RANGE) == 0 {
		return unix.EOPNOTSUPP
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.admit(discards, at, length); err != nil {
		return err
	}
	b.log.note(change{kind: written, at: at, length: length})
	return punch(b.file, at, length)
}

// punch makes zeros of a range of a file.
func punch(f *os.File, at, length int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, length)
}

// flush has nothing to do: of what the log has before it a loss of power takes nothing away.
func (b *body) flush() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.admit(flushes, 0, 1<<62); err != nil {
		return err
	}
	b.log.note(change{kind: flushed})
	return nil
}

func (b *body) resize(size int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log.note(change{kind: resized, length: size})
	return b.file.Truncate(size)
}

// eventually does something again while it fails, but not for ever.
func eventually(limit time.Duration, try func() error) error {
	for end := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		if err := try(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// readAt reads from the device, past what the kernel remembers.
func (m *testDisk) readAt(at int64) ([]byte, error) {
	m.rig.sh("blockdev", "--flushbufs", m.loop)
	f, err := os.Open(m.loop)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	content := make([]byte, piece)
	_, err = f.ReadAt(content, at)
	return content, err
}

func TestBodyFailsHangsAndIsRecorded(t *testing.T) {
	for _, direct := range []string{"on", "off"} {
		t.Run("direct I/O "+direct, func(t *testing.T) {
			r := newRig(t)
			m := r.attachBody("s1", 1, "--direct-io="+direct)
			content, at := randomBytes(piece), int64(600<<20)
			m.body.record(m.size, r.kubelet)
			m.write(at, content)
			r.sh("blkdiscard", "--offset", fmt.Sprint(at), "--length", fmt.Sprint(piece), m.loop)
			m.grow(2)
			w := m.body.recorded()
			var said []string
			for _, c := range w.changes {
				switch {
				case c.kind == flushed:
					said = append(said, "flushed")
				case c.kind == resized:
					said = append(said, fmt.Sprint("resized to ", c.length))
				case c.at == at && c.length == piece:
					said = append(said, fmt.Sprint("written ", bytes.Equal(c.content, content), " zeros ", c.content == nil))
				}
			}
			if got := strings.Join(slices.Compact(said), ", "); !strings.Contains(got, "written true zeros false, flushed") ||
				!strings.Contains(got, "written false zeros true") || !strings.Contains(got, "resized to 2147483648") {
				t.Errorf("recorded is: %s", got)
			}
			m.write(at, content)
			for _, of := range []operation{reads, writes} {
				end := m.body.fails(of, at, at+1)
				_, err := m.readAt(at)
				if failed := errors.Is(err, unix.EIO); failed != (of == reads) {
					t.Errorf("operation %b fails, and to read is %v", of, err)
				}
				end()
			}
			end := m.body.hangs(reads, at, at+1)
			answer := make(chan error)
			go func() {
				got, err := m.readAt(at)
				if err == nil && !bytes.Equal(got, content) {
					err = errors.New("other bytes were read")
				}
				answer <- err
			}()
			r.ok(eventually(5*time.Second, m.body.isHanging))
			select {
			case err := <-answer:
				t.Errorf("it doesn't hang: %v", err)
			default:
			}
			end()
			r.ok(<-answer)
			before := m.body.count(all)
			if _, err := m.readAt(0); err != nil || m.body.count(reads) == 0 || m.body.count(all) <= before {
				t.Errorf("%d requests before, %d after one more; %v", before, m.body.count(all), err)
			}
		})
	}
}

// A test whose process is killed while a thread of it waits for a body takes file system and loop device with it.
func TestKilledTestLeavesNoBody(t *testing.T) {
	const key = "TOPODISK_NODE_TEST_KILLED"
	r := newRig(t)
	if how := os.Getenv(key); how != "" {
		m := r.attachBody("s1", 1)
		m.body.hangs(all, 0, m.size)
		go func() {
			if how == "written" {
				m.write(0, randomBytes(piece))
			} else {
				_, _ = m.readAt(0)
			}
		}()
		r.ok(eventually(5*time.Second, m.body.isHanging))
		fmt.Println("hangs:", m.loop, m.body.path)
		time.Sleep(time.Minute)
	}
	need.Has(t, need.FUSE)
	how := "read"
	if *Long {
		how = "written" // which not even a kill interrupts, and all that is written on the machine may wait for it
	}
	self, err := os.Executable()
	r.ok(err)
	killed := exec.Command(self, "-test.run", "^"+t.Name()+"$")
	killed.Env = append(os.Environ(), key+"="+how)
	out, err := killed.StdoutPipe()
	r.ok(err)
	r.ok(killed.Start())
	var loop, path string
	for lines := bufio.NewScanner(out); loop == "" && lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "hangs: %s %s", &loop, &path)
	}
	r.ok(killed.Process.Kill())
	_ = killed.Wait()
	if path == "" {
		t.Fatal("the test that is to be killed doesn't say that it hangs")
	}
	defer func() { _ = os.RemoveAll(filepath.Dir(filepath.Dir(path))) }() // all that it has made
	r.ok(eventually(20*time.Second, func() error {
		_, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(loop), "loop/backing_file"))
		mounts, failed := os.ReadFile("/proc/self/mounts")
		if !errors.Is(err, os.ErrNotExist) || failed != nil || strings.Contains(string(mounts), path) {
			return fmt.Errorf("left is loop device %q (%v) or the mount at %s (%v)", loop, err, path, failed) //nolint:errorlint // they may be nil
		}
		return nil
	}))
}
