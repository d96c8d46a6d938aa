package process

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// keptFile lists the processes of a kept lab in its state directory, one JSON object a line, in order of start.
const keptFile = "processes.json"

// Identity tells one process from a later one that got the same number: numbers are reused, start times are not.
type Identity struct {
	Name  string `json:"name"`
	Pid   int    `json:"pid"`
	Start uint64 `json:"startTicks"` // since boot, field 22 of proc_pid_stat(5)
	Boot  string `json:"boot"`       // the kernel's boot_id
}

// Identify reads the identity of a running process. A zombie counts as gone.
func Identify(pid int) (Identity, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Identity{}, err
	}
	start, err := startTicks(string(stat))
	if err != nil {
		return Identity{}, fmt.Errorf("process %d: %w", pid, err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Identity{}, err
	}
	return Identity{Pid: pid, Start: start, Boot: strings.TrimSpace(string(boot))}, nil
}

// startTicks parses proc_pid_stat(5). The command name in parentheses may hold spaces and parentheses itself.
func startTicks(stat string) (uint64, error) {
	end := strings.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, errors.New("stat holds no command name")
	}
	fields := strings.Fields(stat[end+1:]) // from field 3, the state
	if len(fields) < 20 {
		return 0, fmt.Errorf("stat holds %d fields after the command name, want at least 20", len(fields))
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return 0, os.ErrProcessDone
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

func appendIdentity(path string, id Identity) error {
	line, err := json.Marshal(id)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// Kept returns the names of the programs that a kept lab in dir still runs.
func Kept(dir string) ([]string, error) {
	ids, err := keptProcesses(dir)
	var names []string
	for _, id := range ids {
		names = append(names, id.Name)
	}
	return names, err
}

// keptProcesses reads the list and leaves out what no longer runs, and what is another process by now.
func keptProcesses(dir string) ([]Identity, error) {
	f, err := os.Open(filepath.Join(dir, keptFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	var running []Identity
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var id Identity
		if err := json.Unmarshal(lines.Bytes(), &id); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		if id.Running() {
			running = append(running, id)
		}
	}
	return running, lines.Err()
}

// Running says whether the process still runs.
func (id Identity) Running() bool {
	now, err := Identify(id.Pid)
	return err == nil && now.Start == id.Start && now.Boot == id.Boot
}

// StopKept ends the programs of the lab kept in dir, the last one started first, and only those: a process that merely
// has the number of one is left alone. It returns the names of what it ended.
func StopKept(dir string) ([]string, error) {
	ids, err := keptProcesses(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, id := range slices.Backward(ids) {
		if err := id.EndWithin(stopGrace); err != nil {
			return names, fmt.Errorf("stop %s (process %d): %w", id.Name, id.Pid, err)
		}
		names = append(names, id.Name)
	}
	return names, os.RemoveAll(dir)
}

// EndWithin ends the process with SIGTERM or, if it runs on for the grace, with SIGKILL, and waits as long again. It takes hold of
// the process first and checks the identity then, so that the signal can't reach another one.
func (id Identity) EndWithin(grace time.Duration) error {
	p, err := os.FindProcess(id.Pid)
	if err != nil {
		return err
	}
	defer p.Release() //nolint:errcheck // nothing hangs on it
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if !id.Running() {
			return nil
		}
		if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		if id.AwaitEnd(grace) {
			return nil
		}
	}
	return errors.New("it does not end")
}

// AwaitEnd says whether the process has ended within the limit. It polls, for only a parent can wait for a process.
func (id Identity) AwaitEnd(limit time.Duration) bool {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if !id.Running() {
			return true
		}
	}
	return !id.Running()
}
