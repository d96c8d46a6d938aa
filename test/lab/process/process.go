// Package process starts the programs of a lab, keeps their output in log files, waits until they are ready, and ends them.
package process

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

	cmd        *exec.Cmd
	viaNsenter bool          // the program is its only child, on a node
	mayEnd     bool          // by itself
	done       chan struct{} // closed when the program has ended and err is set
	err        error
}

// Group are the programs that are started for one lab, and end with it.
type Group struct {
	Logs string // directory of the log files
	list string // file that names the processes for StopKept; empty unless they outlive us
	mu   sync.Mutex
	all  []*Process // running or ended, in order of start
	// ports are those that programs serve HTTP on, by their names: the same each time that a program is started.
	ports map[string]int
}

// NewGroup returns a group whose programs run in dir and log to dir/logs. If keep is set, they outlive this process, and are listed
// in dir for StopKept.
func NewGroup(dir string, keep bool) *Group {
	g := &Group{Logs: filepath.Join(dir, "logs"), ports: map[string]int{}}
	if keep {
		g.list = filepath.Join(dir, keptFile)
	}
	return g
}

// Command describes a program to start.
type Command struct {
	Name string // of the log file too
	Path string
	Args []string
	Env  []string // beyond what every program gets
	Node int      // process ID of the init process of the node that it runs on; 0: on none
	// Namespaces are those that it gets of its own, flags of clone(2).
	Namespaces uintptr
}

// Frugal is the environment of Kubernetes' own programs in a lab with kubelets: they are a dozen and more on two processors, which they
// would wake for each other, and have memory to spare. A lab whose nodes are idle takes a third less of a processor.
var Frugal = []string{"GOMAXPROCS=1", "GOGC=400"}

// exec is what is to be executed: the program, in the namespaces of its node.
func (c Command) exec() *exec.Cmd {
	if c.Node == 0 {
		return exec.Command(c.Path, c.Args...)
	}
	return exec.Command("nsenter", append(EnterNode(c.Node), append([]string{c.Path}, c.Args...)...)...)
}

// EnterNode are nsenter's arguments before the program to run on a node, whose init process has that ID.
func EnterNode(pid int) []string {
	return []string{fmt.Sprintf("--target=%d", pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--"}
}

// Start runs a program. Unless the group is kept, the kernel kills it when this process dies, however it dies.
func (g *Group) Start(c Command) (*Process, error) {
	if err := os.MkdirAll(g.Logs, 0o700); err != nil {
		return nil, err
	}
	p := &Process{Name: c.Name, Log: filepath.Join(g.Logs, c.Name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	fmt.Fprintf(log, "--- %s: %s %q\n", time.Now().Format(time.RFC3339), c.Path, c.Args)
	p.cmd, p.viaNsenter = c.exec(), c.Node != 0
	p.cmd.Dir = filepath.Dir(g.Logs)
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Dir(g.Logs)}, c.Env...)
	p.cmd.Stderr, p.cmd.Stdout = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: c.Namespaces}
	if user := os.Getuid(); user != 0 && c.Namespaces != 0 { // who may make namespaces is root in one of users
		p.cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		p.cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: user, Size: 1}}
	}
	if g.list == "" {
		p.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if err := OnParentThread(p.cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = append(g.all, p)
	return p, g.record(p)
}

// record notes a process that is to be kept, so that it can be stopped by another process later.
func (g *Group) record(p *Process) error {
	if g.list == "" {
		return nil
	}
	id, gone := Identify(p.Pid())
	if gone != nil { // it has ended already; whoever awaits its readiness says so
		return nil //nolint:nilerr // for that reason
	}
	id.Name = p.Name
	return appendIdentity(g.list, id)
}

// StopProgram forgets a process and ends it, with SIGTERM and after a grace with SIGKILL, or with that at once if kill is set, and
// returns when the process is gone.
func (g *Group) StopProgram(p *Process, kill bool) {
	g.Forget(p)
	if kill {
		p.stop(syscall.SIGKILL)
	} else {
		p.stop(syscall.SIGTERM)
	}
}

// Drain sends the signal to one process after the other, waits for the end of each, and forgets it. It kills one that still runs
// after the limit, which is for all together, and returns an error.
func (g *Group) Drain(sig syscall.Signal, limit time.Duration, processes ...*Process) error {
	over := time.After(limit)
	for _, p := range processes {
		g.MayEnd(p)
		if err := p.Signal(sig); err != nil {
			return err
		}
		select {
		case <-p.done:
			g.Forget(p)
		case <-over:
			g.StopProgram(p, true)
			return fmt.Errorf("%s runs %s after %s", p.Name, limit, sig)
		}
	}
	return nil
}

// MayEnd says of a process that it is no failure if it ends by itself.
func (g *Group) MayEnd(p *Process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.mayEnd = true
}

// Forget takes a process off the list of those that have no business to end, and that StopAll ends.
func (g *Group) Forget(p *Process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = slices.DeleteFunc(g.all, func(q *Process) bool { return q == p })
}

// StopAll ends every process, the last one started first, and waits for it.
func (g *Group) StopAll() error {
	g.mu.Lock()
	all := slices.Clone(g.all)
	g.all = nil
	g.mu.Unlock()
	for _, p := range slices.Backward(all) {
		p.stop(syscall.SIGTERM)
	}
	if g.list != "" {
		if err := os.Remove(g.list); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Failure names the first process that has ended by itself, with the end of its log; nil while all run.
func (g *Group) Failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.all {
		if p.Ended() && !p.mayEnd {
			return p.failure()
		}
	}
	return nil
}

// Find returns the program of that name that has not been stopped; nil if there is none.
func (g *Group) Find(name string) *Process {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.all {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// Pid is the process ID, valid until the process is stopped.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how the process has ended; nil for exit code 0. It is known once Done is closed.
func (p *Process) Err() error { return p.err }

func (p *Process) stop(sig syscall.Signal) {
	p.Signal(sig) //nolint:errcheck // it may have ended already, which is what we want
	select {
	case <-p.done:
	case <-time.After(stopGrace):
		p.Signal(syscall.SIGKILL) //nolint:errcheck // as above
		<-p.done
	}
}

// Signal sends a signal to the program, unless it has ended: its process ID may be another's then.
func (p *Process) Signal(sig syscall.Signal) error {
	if p.Ended() {
		return os.ErrProcessDone
	}
	if pid := p.program(); pid != p.Pid() {
		return syscall.Kill(pid, sig)
	}
	return p.cmd.Process.Signal(sig)
}

// program is the process ID of the program. On a node it is the child of what was started, once that has one.
func (p *Process) program() int {
	pid := p.Pid()
	if !p.viaNsenter {
		return pid
	}
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)) // of one that has ended there are none
	if child, err := strconv.Atoi(strings.TrimSpace(string(children))); err == nil {
		return child
	}
	return pid
}

// Ended says whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// failure says how the process has ended, with the end of its log.
func (p *Process) failure() error {
	how := "with exit code 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("%s ended: %s\n%s", p.Name, how, LogTail(p.Log))
}

// OnParentThread runs f on the one thread that all programs are started from and that lives as long as this process:
// the kernel sends a child its parent-death signal when the thread that forked it ends.
func OnParentThread(f func() error) error {
	result := make(chan error, 1)
	parentThread() <- func() { result <- f() }
	return <-result
}

var parentThread = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})
