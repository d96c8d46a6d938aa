// Nodeinit is the init process of a node of a lab, and of a Pod on one. Without arguments it waits for SIGTERM and
// collects the processes that have lost their parents. With a node's settings as its argument, a JSON object, it makes
// itself at home first: it has to be in namespaces of its own for processes, mounts, network, host name and IPC.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// settings are what a node sees otherwise than its host does.
type settings struct {
	Hostname string            `json:"hostname"`
	Var      string            `json:"var"`      // directory that stands for /var
	Links    string            `json:"links"`    // directory that stands for /dev/disk/by-id
	Tunables map[string]string `json:"tunables"` // by file below /proc/sys, what it shows; the kernel never sees what is written there
}

func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	child := make(chan os.Signal, 1)
	signal.Notify(child, syscall.SIGCHLD)
	if len(os.Args) > 1 {
		if err := settle(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, "nodeinit:", err)
			os.Exit(1)
		}
		fmt.Println("settled")
	}
	for {
		select {
		case <-ended:
			return
		case <-child:
			reap()
		}
	}
}

// reap collects every process that has ended.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}

func settle(text string) error {
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	if os.Getpid() != 1 {
		return errors.New("this is no namespace of its own: the process ID isn't 1")
	}
	if err := syscall.Sethostname([]byte(s.Hostname)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"", "/", "", syscall.MS_REC | syscall.MS_PRIVATE}, // from here on the host sees none of it
		{"proc", "/proc", "proc", 0},
		{"tmpfs", "/run", "tmpfs", 0},
		{s.Var, "/var", "", syscall.MS_BIND},
		{s.Links, "/dev/disk/by-id", "", syscall.MS_BIND},
	} {
		if err := syscall.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s%s on %s: %w", m.source, m.kind, m.target, err)
		}
	}
	for name, value := range s.Tunables {
		if err := pretend(name, value); err != nil {
			return err
		}
	}
	// What a Pod mounts the node sees, and the other way round.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share the mounts of the node with its Pods: %w", err)
	}
	return nil
}

// pretend lets a kernel parameter, which is one for all nodes and the host, seem to have a value of its own here.
func pretend(name, value string) error {
	file := filepath.Join("/run/tunables", name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
		return err
	}
	if err := syscall.Mount(file, filepath.Join("/proc/sys", name), "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount a file on /proc/sys/%s: %w", name, err)
	}
	return nil
}
