// Package sandbox gives a lab with real nodes namespaces of its own, and takes everything away that it leaves.
package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"

	"github.com/topodisk/topodisk/test/lab/process"
)

// Sandbox is where a lab with real nodes lives: in namespaces of its own for processes, mounts, network, host name and IPC.
// Its init process is the lab itself. When that ends, however it ends, the kernel ends all others, and takes mounts and
// network away. What is left then lies in the directory, or is found by its name: loop devices and cgroups.
type Sandbox struct {
	// Dir holds the lab's state. There is one sandbox in a directory at a time.
	Dir string
}

// names are the sandboxes of a checkout: make lab DOWN=1 ends all.
var names = []string{"lab", "e2e-nodes", "e2e-explain", "e2e-install", "e2e-storage", "test-foreign", "soak-lab", "bench-pods"}

// In is the sandbox of that name, one of All, in a checkout.
func In(root, name string) Sandbox {
	if !slices.Contains(names, name) {
		panic("no sandbox is called " + name)
	}
	return Sandbox{Dir: filepath.Join(root, ".build", name)}
}

// All are the sandboxes of a checkout, whether or not there are labs in them.
func All(root string) (all []Sandbox) {
	for _, name := range names {
		all = append(all, In(root, name))
	}
	return all
}

// Mark is set in the environment of the init process of a sandbox.
const Mark = "TOPODISK_LAB_SANDBOX"

// stateFile names the init process of a sandbox in its directory.
const stateFile = "sandbox.json"

// Inside says whether this process is the first of a sandbox.
func Inside() bool { return os.Getenv(Mark) != "" && os.Getpid() == 1 }

// Enter builds what is needed, unless build is nil, runs this program once more, with the same arguments, as the init process of
// the sandbox, clears up after it, and returns its exit code. There it returns false at once: the caller is inside.
func (s Sandbox) Enter(build func() error) (code int, outside bool, err error) {
	if Inside() {
		return 0, false, setUp()
	}
	if build != nil {
		if err := build(); err != nil {
			return 1, true, err
		}
	}
	if err := s.prepare(); err != nil {
		return 1, true, err
	}
	cmd := s.command(os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := s.start(cmd); err != nil {
		return 1, true, err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for range signals {
			cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
		}
	}()
	err = cmd.Wait()
	signal.Stop(signals)
	close(signals)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code, err = max(exit.ExitCode(), 1), nil
	}
	if code != 0 { // the logs stay
		fmt.Fprintf(os.Stderr, "the logs are in %s\n", s.Dir)
		_, left := s.clear()
		return code, true, errors.Join(err, left)
	}
	_, left := s.Sweep()
	return code, true, errors.Join(err, left)
}

// Detach runs this program once more, with other arguments, as the init process of the sandbox, which goes on after this
// process has ended. It copies to out what that says on its standard output, until it closes it or ends; if ctx ends before, it is
// told to end. Inside Detach is never called: Enter says so.
func (s Sandbox) Detach(ctx context.Context, out io.Writer, args ...string) error {
	if err := s.prepare(); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(s.Dir, "lab.log"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := s.command(args...)
	cmd.SysProcAttr.Setsid = true
	cmd.Stderr = log
	said, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.start(cmd); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { cmd.Process.Signal(syscall.SIGTERM) })() //nolint:errcheck // it may have ended
	_, err = io.Copy(out, said)
	if _, notReady := os.Stat(filepath.Join(s.Dir, readyFile)); err != nil || notReady != nil {
		_, left := s.clear()
		return errors.Join(fmt.Errorf("the lab did not come up; its logs are in %s\n%s", s.Dir, process.LogTail(log.Name())), err, left)
	}
	return cmd.Process.Release()
}

// readyFile is there once a detached lab is up.
const readyFile = "ready"

// ReportReady is called by the init process of a detached sandbox when the lab is up, and returns when it is to end.
func (s Sandbox) ReportReady(ctx context.Context) error {
	if err := os.WriteFile(filepath.Join(s.Dir, readyFile), nil, 0o600); err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if err := syscall.Dup3(int(null.Fd()), 1, 0); err != nil {
		return fmt.Errorf("close the standard output: %w", err)
	}
	<-ctx.Done()
	return nil
}

// prepare makes room for a sandbox: an earlier one that has died is cleared away, one that lives is an error.
func (s Sandbox) prepare() error {
	if os.Geteuid() != 0 {
		return errors.New("real nodes need root: run it with sudo")
	}
	if strings.HasPrefix(s.Dir, "/var/") || strings.HasPrefix(s.Dir, "/run/") {
		return fmt.Errorf("the lab's directory is %s: nodes have a /var and a /run of their own, so it can't be there", s.Dir)
	}
	if id, err := s.Init(); err == nil && id.Running() {
		return fmt.Errorf("a lab lives in %s already (process %d): make lab DOWN=1 ends it", s.Dir, id.Pid)
	}
	if _, err := s.Sweep(); err != nil {
		return err
	}
	return os.MkdirAll(s.Dir, 0o755)
}

func (s Sandbox) command(args ...string) *exec.Cmd {
	cmd := exec.Command(selfProgram, args...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), Mark+"="+s.Dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: Namespaces}
	return cmd
}

const selfProgram = "/proc/self/exe"

// Namespaces are those that a sandbox, and each node in it, has of its own: flags of clone(2).
const Namespaces = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC

// start starts the init process, and writes down which it is.
func (s Sandbox) start(cmd *exec.Cmd) error {
	if err := process.OnParentThread(cmd.Start); err != nil {
		return fmt.Errorf("start a process in namespaces of its own: %w", err)
	}
	id, err := process.Identify(cmd.Process.Pid)
	if err != nil {
		return nil //nolint:nilerr // it has ended already, and whoever waits for it says so
	}
	id.Name = "lab"
	text, err := json.Marshal(id)
	if err == nil {
		err = os.WriteFile(filepath.Join(s.Dir, stateFile), text, 0o600)
	}
	if err != nil {
		cmd.Process.Kill() //nolint:errcheck // it may have ended
	}
	return err
}

// Init reads which process is the first of the sandbox.
func (s Sandbox) Init() (id process.Identity, err error) {
	text, err := os.ReadFile(filepath.Join(s.Dir, stateFile))
	if err != nil {
		return id, err
	}
	return id, json.Unmarshal(text, &id)
}

// Running says whether a lab lives in the sandbox.
func (s Sandbox) Running() bool {
	id, err := s.Init()
	return err == nil && id.Running()
}

// setUp gives the init process of a sandbox mounts of its own, processes of its own and a loopback device that is up.
func setUp() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := leaveLoopDevices(); err != nil {
		return err
	}
	return bringUp()
}

// leaveLoopDevices unmounts here what others have mounted of loop devices: they could neither detach nor format those before the sandbox ends.
func leaveLoopDevices() error {
	const loopDevices = 7 // their major number (Linux, Documentation/admin-guide/devices.txt)
	all, err := mount.ParseMountInfo("/proc/self/mountinfo")
	for _, m := range slices.Backward(all) {
		if m.Major == loopDevices {
			err = errors.Join(err, syscall.Unmount(m.MountPoint, syscall.MNT_DETACH))
		}
	}
	return err
}

// GatewayAddress is the control plane's on the sandbox's network: the nodes are beside it, the Pods of each node behind it.
var GatewayAddress = net.IPv4(10, 88, 0, 1).To4()

// ServiceAddress is that of the Service kubernetes in the namespace default, by which Pods reach the API server. The gateway has
// it, and the API server listens on the Service's port there, so that no proxy is needed on the nodes.
var ServiceAddress = net.IPv4(10, 96, 0, 1).To4()

// Bridge is the interface that the nodes are connected to.
const Bridge = "lab0"

// bringUp makes the sandbox's network: loopback, and a bridge that the nodes are on.
func bringUp() error {
	bridge := net.IPNet{IP: GatewayAddress, Mask: net.CIDRMask(24, 32)}
	if err := IP("link", "set", "lo", "up"); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"link", "add", Bridge, "type", "bridge"},
		{"addr", "add", bridge.String(), "dev", Bridge},
		{"addr", "add", ServiceAddress.String() + "/32", "dev", Bridge},
		{"link", "set", Bridge, "up"},
	} {
		if err := IP(args...); err != nil {
			return err
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}

// Name is that of what the sandbox has outside of its directory, such as its cgroup in every hierarchy. It follows from the
// directory, so that it is found after any crash.
func (s Sandbox) Name() string {
	return fmt.Sprintf("topodisk-lab-%x", sha256.Sum256([]byte(s.Dir)))[:len("topodisk-lab-")+8]
}

// Sweep ends the lab that lives in the sandbox, and takes away everything that it or one that has died has left: loop
// devices, cgroups, the places that links to devices are mounted on, and the directory. It returns what it has found.
func (s Sandbox) Sweep() (found []string, err error) {
	found, err = s.clear()
	return found, errors.Join(err, os.RemoveAll(s.Dir))
}

// clear is Sweep but for the directory.
func (s Sandbox) clear() (found []string, err error) {
	if id, err := s.Init(); err == nil && id.Running() {
		found = append(found, "a lab")
		if err := id.EndWithin(sweepGrace); err != nil {
			return found, fmt.Errorf("stop the lab (process %d): %w", id.Pid, err)
		}
	}
	for _, step := range []func() ([]string, error){s.sweepLoops, func() ([]string, error) { return SweepCgroups(s.Name()) }} {
		names, failed := step()
		found, err = append(found, names...), errors.Join(err, failed)
	}
	return found, errors.Join(err, s.freeLinksMount())
}

// LinksMount is where nodes look for the links to their disks.
const LinksMount = "/dev/disk/by-id"

// HoldLinksMount makes the place that the nodes' links are mounted on, and a mark in it. /dev is one for all labs, and a
// directory that is empty can be removed from under another namespace's mount.
func (s Sandbox) HoldLinksMount() error {
	for {
		if err := os.MkdirAll(LinksMount, 0o755); err != nil {
			return err
		}
		err := os.WriteFile(s.linksMark(), nil, 0o600)
		if !errors.Is(err, os.ErrNotExist) { // else another lab has just removed it
			return err
		}
	}
}

// MountLinks has a directory stand for /dev/disk/by-id in the sandbox. The init process of the sandbox calls it.
func (s Sandbox) MountLinks(dir string) error {
	if err := errors.Join(os.MkdirAll(dir, 0o755), s.HoldLinksMount()); err != nil {
		return err
	}
	if err := syscall.Mount(dir, LinksMount, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", dir, LinksMount, err)
	}
	return nil
}

// freeLinksMount takes the mark away, and the place if neither another lab nor udev has it.
func (s Sandbox) freeLinksMount() error {
	if err := os.Remove(s.linksMark()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	os.Remove(LinksMount)               //nolint:errcheck // it isn't empty while somebody has it
	os.Remove(filepath.Dir(LinksMount)) //nolint:errcheck // likewise
	return nil
}

func (s Sandbox) linksMark() string { return filepath.Join(LinksMount, s.Name()) }

const (
	sweepGrace = 20 * time.Second
	sweepLimit = 10 * time.Second
)

// sweepLoops detaches the loop devices of files below the directory, and those that kubelets have put on top of them.
func (s Sandbox) sweepLoops() (found []string, err error) {
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		loops, err := s.Loops()
		if err != nil || len(loops) == 0 {
			return found, err
		}
		if time.Since(begin) > sweepLimit {
			return found, fmt.Errorf("loop devices %v of files in %s don't go away", loops, s.Dir)
		}
		for _, loop := range slices.Backward(loops) {
			runTool("losetup", "--detach", loop) //nolint:errcheck // it is looked for again
			if !slices.Contains(found, loop) {
				found = append(found, loop)
			}
		}
	}
}

// Loops returns the sandbox's loop devices, each before those that are on top of it.
func (s Sandbox) Loops() (ours []string, err error) {
	list, err := runTool("losetup", "--list", "--noheadings", "--raw", "--output=NAME,BACK-MAJ:MIN,BACK-INO,BACK-FILE")
	if err != nil {
		return nil, err
	}
	list = strings.ReplaceAll(list, `\x20`, "") // it pads columns
	nodes := map[string]bool{}                  // of our devices, by file system and inode
	for grown := true; grown; {
		grown = false
		for line := range strings.Lines(list) {
			fields := strings.Fields(line)
			if len(fields) < 4 || slices.Contains(ours, fields[0]) {
				continue
			}
			if node := fields[1] + " " + fields[2]; nodes[node] || strings.HasPrefix(fields[3], s.Dir+"/") {
				var stat syscall.Stat_t
				if err := syscall.Stat(fields[0], &stat); err != nil {
					return nil, fmt.Errorf("look at %s: %w", fields[0], err)
				}
				ours, grown = append(ours, fields[0]), true
				nodes[fmt.Sprintf("%d:%d %d", unix.Major(stat.Dev), unix.Minor(stat.Dev), stat.Ino)] = true
			}
		}
	}
	return ours, nil
}

// CgroupMounts is where cgroups are mounted.
const CgroupMounts = "/sys/fs/cgroup"

// CgroupRoots are the mount points of the cgroups: the one of version 2, or those of version 1.
func CgroupRoots() ([]string, error) {
	if _, err := os.Stat(filepath.Join(CgroupMounts, "cgroup.controllers")); err == nil {
		return []string{CgroupMounts}, nil
	}
	roots, err := filepath.Glob(filepath.Join(CgroupMounts, "*", "cgroup.procs"))
	for i := range roots {
		roots[i] = filepath.Dir(roots[i])
	}
	return roots, err
}

// SweepCgroups removes the cgroups of a name in every hierarchy, with those in them. Nothing runs in them any more.
func SweepCgroups(name string) (found []string, err error) {
	roots, err := CgroupRoots()
	if err != nil {
		return nil, err
	}
	for _, root := range roots {
		group := filepath.Join(root, name)
		if _, err := os.Stat(group); errors.Is(err, os.ErrNotExist) {
			continue
		}
		found = append(found, group)
		begin := time.Now()
		for err = removeCgroup(group); err != nil && time.Since(begin) < sweepLimit; err = removeCgroup(group) {
			time.Sleep(50 * time.Millisecond)
		}
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

// removeCgroup removes a cgroup and those in it, the innermost first.
func removeCgroup(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
	for _, dir := range slices.Backward(dirs) {
		err = errors.Join(err, os.Remove(dir))
	}
	return err
}

// IP changes the network.
func IP(args ...string) error {
	_, err := runTool("ip", args...)
	return err
}

// runTool runs a tool and returns its output; the error holds what it says.
func runTool(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}
