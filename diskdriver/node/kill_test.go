package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/topodisk/topodisk/test/need"
)

// bePlugin serves the Node service on a socket until its standard input ends.
func bePlugin(args []string) error {
	socket, kubelet, dev := args[0], args[1], args[2]
	server, err := New(rigConfig(kubelet, dev))
	if err != nil {
		return err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Println("ready")
	plugin := grpc.NewServer()
	csi.RegisterNodeServer(plugin, server)
	return plugin.Serve(listener)
}

// killer calls a plugin that it kills now and then.
type killer struct {
	*rig
	fsType string
	random *rand.Rand
	past   *kills
	socket string
	log    *os.File
	plugin *pluginProcess // nil: none runs
	groups []int          // of plugins that were started, of which a process may run
}

// kills is what all killers have seen.
type kills struct {
	usual map[string]time.Duration // how long a call takes that isn't disturbed
	count map[string]int           // of kills, by call
}

// pluginProcess is the node plugin as a process of its own.
type pluginProcess struct {
	cmd        *exec.Cmd
	connection *grpc.ClientConn
}

// newKiller returns a killer whose plugin runs.
func (r *rig) newKiller(fsType string, seed uint64, past *kills) *killer {
	r.t.Helper()
	dir, err := os.MkdirTemp("", "plugin") // the path of a socket is short
	r.ok(err)
	log, err := os.Create(filepath.Join(dir, "log"))
	r.ok(err)
	k := &killer{rig: r, fsType: fsType, random: rand.New(rand.NewPCG(seed, 0)), past: past, socket: filepath.Join(dir, "csi.sock"), log: log}
	r.t.Cleanup(func() {
		k.end()
		if text, err := os.ReadFile(log.Name()); r.t.Failed() && err == nil {
			lines := strings.Split(string(text), "\n")
			r.t.Logf("the plugin said last:\n%s", strings.Join(lines[max(0, len(lines)-40):], "\n"))
		}
		_ = log.Close()
		_ = os.RemoveAll(dir)
	})
	k.start()
	return k
}

// start starts the plugin, and returns when it serves.
func (k *killer) start() {
	k.t.Helper()
	cmd, err := helper("plugin", k.socket, k.kubelet, k.dev)
	k.ok(err)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = k.log
	_, err = cmd.StdinPipe() // ends with the test
	k.ok(err)
	out, err := cmd.StdoutPipe()
	k.ok(err)
	k.ok(cmd.Start())
	k.groups = append(k.groups, cmd.Process.Pid)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		k.t.Fatalf("the plugin says %q, %v", line, err)
	}
	connection, err := grpc.NewClient("unix://"+k.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	k.ok(err)
	k.plugin = &pluginProcess{cmd, connection}
}

// kill kills the plugin, alone or with the programs that it runs.
func (k *killer) kill(alone bool) {
	target := -k.plugin.cmd.Process.Pid
	if alone {
		target = -target
	}
	_ = unix.Kill(target, unix.SIGKILL)
	_ = k.plugin.cmd.Wait()
	_ = k.plugin.connection.Close()
	k.plugin = nil
	_ = k.nothingRuns()
}

// end kills whatever is left.
func (k *killer) end() {
	if k.plugin != nil {
		k.kill(false)
	}
	for _, group := range k.groups {
		_ = unix.Kill(-group, unix.SIGKILL)
	}
}

// nothingRuns says whether a program runs still that a plugin has left.
func (k *killer) nothingRuns() error {
	k.groups = slices.DeleteFunc(k.groups, func(group int) bool { return errors.Is(unix.Kill(-group, 0), unix.ESRCH) })
	if len(k.groups) > 0 {
		return fmt.Errorf("programs of the plugins %v run still", k.groups)
	}
	return nil
}

// nodeCall is a call of the Node service.
type nodeCall func(context.Context, csi.NodeClient) error

// until makes a call during which the plugin is killed up to so many times, and repeats it until it is OK.
func (k *killer) until(name string, most int, call nodeCall) {
	k.t.Helper()
	name = k.fsType + " " + name
	usual, known := k.past.usual[name]
	for range k.random.IntN(most + 1) {
		if known && k.disturb(name, time.Duration(k.random.Float64()*1.5*float64(usual)), call) {
			return
		}
	}
	begin := time.Now()
	err := eventually(20*time.Second, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return call(ctx, csi.NewNodeClient(k.plugin.connection))
	})
	if err != nil {
		k.t.Fatalf("%s is stuck: %v", name, err)
	}
	if !known {
		k.past.usual[name] = time.Since(begin)
	}
}

// disturb makes a call, and kills the plugin and starts it again after some time, unless the call is done by then.
func (k *killer) disturb(name string, after time.Duration, call nodeCall) (done bool) {
	k.t.Helper()
	ended := make(chan error, 1)
	client := csi.NewNodeClient(k.plugin.connection)
	go func() { ended <- call(context.Background(), client) }()
	select {
	case err := <-ended:
		return err == nil
	case <-time.After(after):
	}
	k.kill(k.random.IntN(2) == 0)
	k.past.count[name]++
	<-ended
	k.start()
	return false
}

// A plugin that is killed at any time, alone or with the programs that it runs, is called again and goes on.
func TestKilledPluginGoesOn(t *testing.T) {
	want := 20
	if *Long {
		want = 500
	}
	newRig(t) // skips the test where there can be none
	need.Has(t, need.FileSystem("xfs"), need.Program("xfs_growfs"))
	begin, past := time.Now(), &kills{map[string]time.Duration{}, map[string]int{}}
	live := func(name, fsType string, seed uint64) {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("for the like of it: %s", again(t, seed))
				}
			}()
			r, m := newRigWithDisk(t)
			r.newKiller(fsType, seed, past).live(m)
		})
	}
	fsTypes := []string{"ext4", "xfs"}
	for _, fsType := range fsTypes {
		live(fsType+" undisturbed", fsType, *seed)
	}
	total := 0
	for n := *seed; total < want && !t.Failed(); n++ {
		fsType := fsTypes[n%2]
		live(fmt.Sprintf("%s seed %d", fsType, n), fsType, n)
		total = 0
		for _, one := range past.count {
			total += one
		}
	}
	t.Logf("%d kills in %s: %v", total, time.Since(begin).Round(time.Second), past.count)
}

// An mkfs that a plugin has left, and that has not opened the device yet, would write to it while the next plugin formats it.
func TestAnMkfsThatAPluginHasLeftIsAwaited(t *testing.T) {
	r, m := newRigWithDisk(t)
	v := r.volume(m, asFileSystem("xfs"))
	begun, goOn := filepath.Join(r.dev, "begun"), filepath.Join(r.dev, "go-on")
	r.instead("mkfs.xfs", "for path; do :; done; touch "+begun+"; while [ -b $path -a ! -e "+goOn+" ]; do sleep 0.01; done; exec $REAL \"$@\"")
	k := r.newKiller("xfs", 0, nil)
	stage := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := csi.NewNodeClient(k.plugin.connection).NodeStageVolume(ctx, v.stageRequest())
		return err
	}
	is := func(path string) error { _, err := os.Lstat(path); return err }
	ended := make(chan error, 1)
	go func() { ended <- stage() }()
	k.ok(eventually(5*time.Second, func() error { return is(begun) }))
	k.kill(true)
	<-ended
	k.start()
	if err := stage(); err == nil || !strings.Contains(err.Error(), "is locked by another program") {
		t.Errorf("while an mkfs that was left may begin, the next plugin says %v", err)
	}
	k.ok(os.WriteFile(goOn, nil, 0o600))
	k.ok(eventually(20*time.Second, stage))
	k.isMounted(v.staging, 1)
}

// live makes every call for a disk, and looks after each whether all is as it should be.
func (k *killer) live(m *testDisk) {
	k.t.Helper()
	const few, many = 2, 6 // kills
	v := k.volume(m, asFileSystem(k.fsType))
	files := map[string]string{}
	is := func(path string, mounts int) { // how often something is mounted there, with every file
		k.t.Helper()
		k.isMounted(path, mounts)
		for name, content := range files {
			if mounts > 0 {
				k.holds(filepath.Join(path, name), content)
			}
		}
	}
	isUsable := func(path string) {
		k.t.Helper()
		is(path, 1)
		name := fmt.Sprint(len(files))
		files[name] = string(randomBytes(100_000))
		k.sync(path, name, files[name])
	}
	stage := func(name string, most int) {
		k.until(name, most, func(ctx context.Context, c csi.NodeClient) error {
			_, err := c.NodeStageVolume(ctx, v.stageRequest())
			return err
		})
		isUsable(v.staging)
	}
	publish := func() {
		k.until("publish", few, func(ctx context.Context, c csi.NodeClient) error {
			_, err := c.NodePublishVolume(ctx, v.publishRequest("a"))
			return err
		})
		isUsable(v.target("a"))
	}
	leave := func() {
		k.until("unpublish", few, func(ctx context.Context, c csi.NodeClient) error {
			_, err := c.NodeUnpublishVolume(ctx, v.unpublishRequest("a"))
			return err
		})
		is(v.target("a"), 0)
		k.isEmpty(filepath.Join(k.kubelet, "pods"))
		k.until("unstage", few, func(ctx context.Context, c csi.NodeClient) error {
			_, err := c.NodeUnstageVolume(ctx, v.unstageRequest())
			return err
		})
		is(v.staging, 0)
		k.isEmpty(v.staging)
		d, err := open(m.loop)
		k.ok(err)
		k.ok(k.server.checkUnused(d))
	}
	stage("format", many)
	publish()
	if k.fsType == "xfs" { // not every kernel lets a mounted ext4 grow
		m.grow(2)
	} else {
		leave()
		m.grow(2)
		stage("stage and grow", many)
		publish()
	}
	k.until("expand", many, func(ctx context.Context, c csi.NodeClient) error {
		_, err := c.NodeExpandVolume(ctx, v.expandRequest())
		return err
	})
	k.holdsBytes(v, 15<<27)
	is(v.target("a"), 1)
	leave()
	stage("stage", few)
	publish()
	leave()
	k.isSound(m, k.fsType)
	k.kill(true)
	k.ok(eventually(5*time.Second, k.nothingRuns))
}

// isMounted wants something to be mounted at a path so many times.
func (r *rig) isMounted(path string, times int) {
	r.t.Helper()
	mounts, err := r.server.mounts.table()
	r.ok(err)
	n := 0
	for _, m := range mounts {
		if m.MountPoint == path {
			n++
		}
	}
	if n != times {
		r.t.Errorf("%d mounts at %s, want %d", n, path, times)
	}
}
