//go:build foreign

package foreign

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Where the simulated ECS is, and the access key that it knows. It opens nothing else.
const (
	region   = "cn-hangzhou"
	zone     = "cn-hangzhou-h"
	nodeName = "node-h1"
	keyID    = "LTAI5tTopodiskForeign"
	secret   = "foreigners-may-know-it"
)

// instanceOf is the ID of the nth instance.
func instanceOf(n int) string { return fmt.Sprintf("i-bp1foreign%03d", n) }

// stopGrace is how long a program may take to end after SIGTERM.
const stopGrace = 40 * time.Second

// command is a client, or a program of topodisk's. It gets SIGTERM when the test is interrupted, and the kernel kills it
// if this process dies. What it says on standard error goes to a log in the directory.
func command(t *testing.T, path string, args ...string) *exec.Cmd {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "-")+"-"+filepath.Base(path)+".log"),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	cmd := exec.CommandContext(interrupted, path, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	cmd.Dir, cmd.Stderr = dir, log
	// Go ends a thread only with a goroutine that is locked to it, so the signal comes when the process dies.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// start starts a program, which is stopped at the end of the test and is to end well then.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("%s has ended before the test: %v", cmd.Path, err)
		}
		if err := cmd.Wait(); err != nil && interrupted.Err() == nil {
			t.Errorf("%s does not end well: %v; its log is in %s", cmd.Path, err, dir)
		}
	})
}

// cloud is an ecs-simulator with its default flags.
type cloud struct {
	address string // HOST:PORT
	pid     int
}

// startCloud starts the simulator with the flags that say where it is, and more.
func startCloud(t *testing.T, instances int, args ...string) cloud {
	t.Helper()
	args = append([]string{"--listen=127.0.0.1:0", "--region=" + region, "--zone=" + zone, "--access-key=" + keyID + "=" + secret}, args...)
	for n := range instances {
		args = append(args, fmt.Sprintf("--instance=%s=%s/ecs.g7.large", instanceOf(n), zone))
	}
	cmd := command(t, shipped("ecs-simulator"), args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	start(t, cmd)
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	address, is := strings.CutPrefix(strings.TrimSpace(line), "listening on http://")
	if err != nil || !is {
		t.Fatalf("the simulator says %q (%v), not where it listens", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }() // until the program ends
	return cloud{address: address, pid: cmd.Process.Pid}
}

// environment tells a client of the cloud.
func (c cloud) environment(instances ...string) []string {
	return append(os.Environ(), "ECS_ADDRESS="+c.address, "ECS_REGION="+region, "ECS_ZONE="+zone,
		"ECS_INSTANCE="+strings.Join(instances, ","), "ECS_KEY_ID="+keyID, "ECS_KEY_SECRET="+secret)
}
