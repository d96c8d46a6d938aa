package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopGrace is how long a program may take to end after SIGTERM before it is killed. What it holds is thrown away anyway.
const stopGrace = 3 * time.Second

// Process is one program that runs, in a session of its own, with its output in a log file.
type Process struct {
	Name string
	Log  string // path
	cmd  *exec.Cmd
	in   bool          // a node: the program is the only child of an nsenter
	ends bool          // by itself, at times
	done chan struct{} // closed when the program has ended and err is set
	err  error
}

// Processes are the programs of one lab.
type Processes struct {
	logs string
	list string // file that names the processes for StopKept; empty unless they outlive us
	mu   sync.Mutex
	all  []*Process // running or ended, in order of start
}

func newProcesses(dir string, keep bool) *Processes {
	p := &Processes{logs: filepath.Join(dir, "logs")}
	if keep {
		p.list = filepath.Join(dir, keptFile)
	}
	return p
}

// command describes a program to start.
type command struct {
	name string // of the log file too
	path string
	args []string
	env  []string // beyond what every program gets
	node int      // process ID of the first process of the node that it runs on; 0: on none
	// namespaces are those that it gets of its own, flags of clone(2).
	namespaces uintptr
}

// exec is what is to be executed: the program, in the namespaces of its node.
func (c command) exec() *exec.Cmd {
	if c.node == 0 {
		return exec.Command(c.path, c.args...)
	}
	return exec.Command("nsenter", append(enterNode(c.node), append([]string{c.path}, c.args...)...)...)
}

// enterNode are nsenter's arguments before the program to run on a node.
func enterNode(pid int) []string {
	return []string{fmt.Sprintf("--target=%d", pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--"}
}

// start runs a program. Unless the lab is kept, the kernel kills it when this process dies, however it dies.
func (p *Processes) start(c command) (*Process, error) {
	if err := os.MkdirAll(p.logs, 0o700); err != nil {
		return nil, err
	}
	proc := &Process{Name: c.name, Log: filepath.Join(p.logs, c.name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(proc.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	fmt.Fprintf(log, "--- %s: %s %q\n", time.Now().Format(time.RFC3339), c.path, c.args)
	proc.cmd, proc.in = c.exec(), c.node != 0
	proc.cmd.Dir = filepath.Dir(p.logs)
	proc.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Dir(p.logs)}, c.env...)
	proc.cmd.Stderr, proc.cmd.Stdout = log, log
	proc.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: c.namespaces}
	if user := os.Getuid(); user != 0 && c.namespaces != 0 { // who may make namespaces is root in one of users
		proc.cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		proc.cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: user, Size: 1}}
	}
	if p.list == "" {
		proc.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if err := onParentThread(proc.cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.path, err)
	}
	go func() {
		proc.err = proc.cmd.Wait()
		close(proc.done)
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, proc)
	return proc, p.record(proc)
}

// record notes a process that is to be kept, so that it can be stopped by another process later.
func (p *Processes) record(proc *Process) error {
	if p.list == "" {
		return nil
	}
	id, gone := identify(proc.cmd.Process.Pid)
	if gone != nil { // it has ended already; whoever awaits its readiness says so
		return nil //nolint:nilerr // for that reason
	}
	id.Name = proc.Name
	return appendIdentity(p.list, id)
}

// stop ends one process and forgets it.
func (p *Processes) stop(proc *Process, sig syscall.Signal) {
	proc.end(sig)
	p.forget(proc)
}

// mayEnd says of a process that it may end by itself.
func (p *Processes) mayEnd(proc *Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	proc.ends = true
}

// forget takes a process off the list of those that have no business to end.
func (p *Processes) forget(proc *Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = slices.DeleteFunc(p.all, func(q *Process) bool { return q == proc })
}

// stopAll ends every process, the last one started first, and waits for it.
func (p *Processes) stopAll() error {
	p.mu.Lock()
	all := slices.Clone(p.all)
	p.all = nil
	p.mu.Unlock()
	for _, proc := range slices.Backward(all) {
		proc.end(syscall.SIGTERM)
	}
	if p.list != "" {
		if err := os.Remove(p.list); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// ended names the first process that has ended by itself, with the end of its log; nil while all run.
func (p *Processes) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, proc := range p.all {
		if err := proc.exited(); err != nil && !proc.ends {
			return err
		}
	}
	return nil
}

// running are the processes that have not been stopped.
func (p *Processes) running() []*Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

// Pid is the process ID, valid until the process is stopped.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// end sends the signal, then SIGKILL after a grace, and returns when the process is gone.
func (p *Process) end(sig syscall.Signal) {
	p.signal(sig) //nolint:errcheck // it may have ended already, which is what we want
	select {
	case <-p.done:
	case <-time.After(stopGrace):
		p.signal(syscall.SIGKILL) //nolint:errcheck // as above
		<-p.done
	}
}

// signal sends a signal to the program. On a node that is the child of what was started.
func (p *Process) signal(sig syscall.Signal) error {
	if !p.in {
		return p.cmd.Process.Signal(sig)
	}
	pid := p.Pid()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return err
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(children)))
	if err != nil {
		return p.cmd.Process.Signal(sig) // it has no child yet, or no more
	}
	return syscall.Kill(child, sig)
}

// Ended says whether the process has ended.
func (p *Process) Ended() bool { return p.exited() != nil }

// exited is an error with the end of the log if the process has ended.
func (p *Process) exited() error {
	select {
	case <-p.done:
		how := "with exit code 0"
		if p.err != nil {
			how = p.err.Error()
		}
		return fmt.Errorf("%s ended: %s\n%s", p.Name, how, logTail(p.Log))
	default:
		return nil
	}
}

// onParentThread runs f on the one thread that all programs are started from and that lives as long as this process:
// the kernel sends a child its parent-death signal when the thread that forked it ends.
func onParentThread(f func() error) error {
	parentThread.once.Do(func() {
		parentThread.work = make(chan func())
		go func() {
			runtime.LockOSThread()
			for f := range parentThread.work {
				f()
			}
		}()
	})
	result := make(chan error, 1)
	parentThread.work <- func() { result <- f() }
	return <-result
}

var parentThread struct {
	once sync.Once
	work chan func()
}
