package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/topodisk/topodisk/test/lab/process"
	"github.com/topodisk/topodisk/test/lab/sandbox"
	"github.com/topodisk/topodisk/test/need"
)

func TestMain(m *testing.M) {
	if sandbox.Inside() {
		if err := liveInSandbox(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// liveInSandbox makes what a lab makes and may leave behind, and waits to be ended.
func liveInSandbox() error {
	box := sandbox.Sandbox{Dir: os.Getenv(sandbox.Mark)}
	if _, _, err := box.Enter(nil); err != nil {
		return err
	}
	body := filepath.Join(box.Dir, "body")
	if err := os.WriteFile(body, make([]byte, 1<<20), 0o600); err != nil {
		return err
	}
	out, err := exec.Command("losetup", "--find", "--show", body).Output()
	if err != nil {
		return err
	}
	loop := strings.TrimSpace(string(out))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l := &Lab{Dir: box.Dir, Group: process.NewGroup(box.Dir, false), opts: Options{}}
	l.opts.Programs.NodeInit = os.Getenv("NODEINIT")
	n := &RealNode{Node: ManyNodes(1)[0], lab: l, number: 1, run: map[string]*process.Process{}}
	for _, step := range []func(context.Context) error{func(context.Context) error { return box.HoldLinksMount() }, n.startInit, n.connect, n.makeCgroup} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := n.start("sleep", "/bin/sleep", "3000"); err != nil {
		return err
	}
	// As a kubelet does with a block volume.
	if _, err := n.Exec(ctx, "sh", "-ec", "touch /var/device; mount --bind "+loop+" /var/device; losetup --find /var/device"); err != nil {
		return err
	}
	said, err := n.Exec(ctx, "sh", "-ec", "hostname; cat /proc/sys/vm/overcommit_memory /proc/sys/kernel/panic; echo 9 > /proc/sys/kernel/panic; ls /var; ip -brief addr show eth0; ps -o comm | wc -l")
	if err != nil {
		return err
	}
	fmt.Println(strings.ReplaceAll(said, "\n", "|"))
	return box.ReportReady(ctx)
}

func TestNothingIsLeftOfASandbox(t *testing.T) {
	t.Setenv("TMPDIR", "/tmp") // nodes have a /var of their own, so a sandbox can't be there
	need.Has(t, append(need.Programs("ip", "losetup", "mount", "mkfs.ext4"), need.Namespaces, need.Mounts, need.LoopDevices, need.Cgroups)...)
	nodeInit := filepath.Join(t.TempDir(), "nodeinit")
	if out, err := exec.Command("go", "build", "-o", nodeInit, "./nodeinit").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Setenv("NODEINIT", nodeInit)
	for name, end := range map[string]func(*testing.T, process.Identity){
		"it is told to end": func(*testing.T, process.Identity) {},
		"it is killed": func(t *testing.T, id process.Identity) {
			if err := syscall.Kill(id.Pid, syscall.SIGKILL); err != nil || !id.AwaitEnd(5*time.Second) {
				t.Errorf("kill: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			panics := read(t, "/proc/sys/kernel/panic")
			body, at := filepath.Join(t.TempDir(), "body"), t.TempDir()
			sh(t, "truncate -s 16M $0 && mkfs.ext4 -q $0 && mount -o loop $0 $1", body, at)
			box := sandbox.Sandbox{Dir: filepath.Join(t.TempDir(), "sandbox")}
			var said bytes.Buffer
			if err := box.Detach(t.Context(), &said); err != nil {
				t.Fatal(err)
			}
			if got := said.String(); !strings.HasPrefix(got, "node-h1|1|10|device|lib|log|tmp|eth0") || !strings.Contains(got, "10.88.0.11/24") {
				t.Errorf("a node sees %q", got)
			}
			if read(t, "/proc/sys/kernel/panic") != panics {
				t.Error("a node has changed kernel.panic of the host")
			}
			sh(t, "umount $0", at)
			if loops := sh(t, "losetup --associated $0", body); loops != "" {
				t.Errorf("what others had mounted is in use by the sandbox: %s", loops)
			}
			id, err := box.Init()
			if err != nil || !box.Running() {
				t.Fatalf("it doesn't run: %v", err)
			}
			if err := box.Detach(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "make lab DOWN=1") {
				t.Errorf("a second lab in the directory: %v", err)
			}
			if _, err := (sandbox.Sandbox{Dir: filepath.Join(t.TempDir(), "other")}).Sweep(); err != nil {
				t.Errorf("another lab ends: %v", err)
			}
			if _, err := os.Stat(sandbox.LinksMount); err != nil {
				t.Errorf("another lab's end took away what the nodes' links are mounted on: %v", err)
			}
			end(t, id)
			found, err := box.Sweep()
			if err != nil {
				t.Fatal(err)
			}
			if all := strings.Join(found, " "); strings.Count(all, "/dev/loop") != 2 || !strings.Contains(all, "/sys/fs/cgroup/") {
				t.Errorf("found to be swept up were %v", found)
			}
			if found, err := box.Sweep(); err != nil || len(found) > 0 {
				t.Errorf("the second time it found %v, %v", found, err)
			}
			leftOf(t, box)
		})
	}
}

func sh(t *testing.T, script string, args ...string) string {
	t.Helper()
	out, err := exec.Command("sh", append([]string{"-ec", script}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", script, args, err, out)
	}
	return string(out)
}

// leftOf checks that nothing is left of a sandbox.
func leftOf(t *testing.T, box sandbox.Sandbox) {
	t.Helper()
	if _, err := os.Stat(box.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory: %v", err)
	}
	if loops, err := exec.Command("losetup", "--list", "--noheadings").Output(); err != nil || bytes.Contains(loops, []byte(box.Dir)) || bytes.Contains(loops, []byte("/var/device")) {
		t.Errorf("loop devices: %s %v", loops, err)
	}
	for _, at := range []string{"", "*"} {
		if groups, _ := filepath.Glob(filepath.Join(sandbox.CgroupMounts, at, box.Name())); len(groups) > 0 {
			t.Errorf("cgroups: %v", groups)
		}
	}
	if _, err := os.Stat(filepath.Join(sandbox.LinksMount, box.Name())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its mark in %s: %v", sandbox.LinksMount, err)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		if environment, err := os.ReadFile(p); err == nil && bytes.Contains(environment, []byte(sandbox.Mark+"="+box.Dir)) {
			t.Errorf("process: %s", p)
		}
	}
	if mounts := read(t, "/proc/self/mountinfo"); strings.Contains(mounts, box.Dir) {
		t.Error("mounts")
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
