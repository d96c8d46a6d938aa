package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/topodisk/topodisk/test/need"
)

// liveInCell makes what a lab makes and may leave behind, and waits to be ended.
func liveInCell() error {
	cell := Cell{Dir: os.Getenv(cellMark)}
	if _, _, err := cell.Enter(); err != nil {
		return err
	}
	body := filepath.Join(cell.Dir, "body")
	if err := os.WriteFile(body, make([]byte, 1<<20), 0o600); err != nil {
		return err
	}
	loop, err := runTool("losetup", "--find", "--show", body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l := &Lab{Dir: cell.Dir, processes: newProcesses(cell.Dir, false), opts: Options{}}
	l.opts.Programs.NodeInit = os.Getenv("NODEINIT")
	n := &RealNode{Node: ManyNodes(1)[0], lab: l, number: 1, dir: filepath.Join(cell.Dir, "nodes", "one"), run: map[string]*Process{}}
	for _, step := range []func(context.Context) error{func(context.Context) error { return cell.holdLinksMount() }, n.settle, n.connect, n.makeCgroup} {
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
	out, err := n.Exec(ctx, "sh", "-ec", "hostname; cat /proc/sys/vm/overcommit_memory /proc/sys/kernel/panic; echo 9 > /proc/sys/kernel/panic; ls /var; ip -brief addr show eth0; ps -o comm | wc -l")
	if err != nil {
		return err
	}
	fmt.Println(strings.ReplaceAll(out, "\n", "|"))
	return cell.Settled(ctx)
}

func TestNothingIsLeftOfACell(t *testing.T) {
	t.Setenv("TMPDIR", "/tmp") // nodes have a /var of their own, so a cell can't be there
	need.Has(t, append(need.Programs("ip", "losetup", "mount"), need.Namespaces, need.Mounts, need.LoopDevices, need.Cgroups)...)
	nodeInit := filepath.Join(t.TempDir(), "nodeinit")
	if out, err := exec.Command("go", "build", "-o", nodeInit, "./nodeinit").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Setenv("NODEINIT", nodeInit)
	for name, end := range map[string]func(*testing.T, identity){
		"it is told to end": func(*testing.T, identity) {},
		"it is killed": func(t *testing.T, id identity) {
			if err := syscall.Kill(id.Pid, syscall.SIGKILL); err != nil || !id.awaitEnd(5*time.Second) {
				t.Errorf("kill: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			panics := read(t, "/proc/sys/kernel/panic")
			cell := Cell{Dir: filepath.Join(t.TempDir(), "cell")}
			var said bytes.Buffer
			if err := cell.Detach(&said); err != nil {
				t.Fatal(err)
			}
			if got := said.String(); !strings.HasPrefix(got, "node-h1|1|10|device|lib|log|tmp|eth0") || !strings.Contains(got, "10.88.0.11/24") {
				t.Errorf("a node sees %q", got)
			}
			if read(t, "/proc/sys/kernel/panic") != panics {
				t.Error("a node has changed kernel.panic of the host")
			}
			id, err := cell.first()
			if err != nil || !cell.Running() {
				t.Fatalf("it doesn't run: %v", err)
			}
			if err := cell.prepare(); err == nil || !strings.Contains(err.Error(), "make lab-down") {
				t.Errorf("a second lab in the directory: %v", err)
			}
			if _, err := (Cell{Dir: filepath.Join(t.TempDir(), "other")}).Sweep(); err != nil {
				t.Errorf("another lab ends: %v", err)
			}
			if _, err := os.Stat(linksMount); err != nil {
				t.Errorf("another lab's end took away what the nodes' links are mounted on: %v", err)
			}
			end(t, id)
			found, err := cell.Sweep()
			if err != nil {
				t.Fatal(err)
			}
			if all := strings.Join(found, " "); strings.Count(all, "/dev/loop") != 2 || !strings.Contains(all, "/sys/fs/cgroup/") {
				t.Errorf("found to be swept up were %v", found)
			}
			if found, err := cell.Sweep(); err != nil || len(found) > 0 {
				t.Errorf("the second time it found %v, %v", found, err)
			}
			leftOf(t, cell)
		})
	}
}

// leftOf checks that nothing is left of a cell.
func leftOf(t *testing.T, cell Cell) {
	t.Helper()
	if _, err := os.Stat(cell.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory: %v", err)
	}
	if loops, err := runTool("losetup", "--list", "--noheadings"); err != nil || strings.Contains(loops, cell.Dir) || strings.Contains(loops, "/var/device") {
		t.Errorf("loop devices: %s %v", loops, err)
	}
	for _, at := range []string{"", "*"} {
		if groups, _ := filepath.Glob(filepath.Join(cgroupMounts, at, cell.name())); len(groups) > 0 {
			t.Errorf("cgroups: %v", groups)
		}
	}
	if _, err := os.Stat(cell.linksMark()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its mark in %s: %v", linksMount, err)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		if environment, err := os.ReadFile(p); err == nil && bytes.Contains(environment, []byte(cellMark+"="+cell.Dir)) {
			t.Errorf("process: %s", p)
		}
	}
	if mounts := read(t, "/proc/self/mountinfo"); strings.Contains(mounts, cell.Dir) {
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
