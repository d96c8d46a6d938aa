package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/topodisk/topodisk/test/golden"
)

// raced tells whether the program has the race detector in it.
var raced bool

var long = flag.Bool("long", false, "make 100 000 lifecycles instead of 10 000")

// started starts the program on a free port and returns where it listens.
func started(t *testing.T, args ...string) (cmd *exec.Cmd, at string) {
	t.Helper()
	cmd = golden.Command(t, nil, append(append([]string{"--listen=127.0.0.1:0"}, place...), args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Wait() // by a signal, or killed before
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	at, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		t.Fatalf("first line %q %v", line, err)
	}
	return cmd, at
}

// callAt makes an unsigned call and returns the body of its reply.
func callAt(client *http.Client, at, action string, pairs ...string) (string, error) {
	v := url.Values{"Action": {action}, "Version": {"2014-05-26"}, "Format": {"JSON"}, "RegionId": {"cn-hangzhou"}}
	for i := 0; i < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	reply, err := client.Post(at+"/?"+v.Encode(), "application/x-www-form-urlencoded", nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = reply.Body.Close() }()
	text, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode != 200 {
		return "", fmt.Errorf("%s: %d %s (%w)", action, reply.StatusCode, text, err)
	}
	return string(text), nil
}

var diskID = regexp.MustCompile(`"DiskId":"([^"]+)"`)

// residentMiB is how much memory a process has, pages of its program not counted.
func residentMiB(t *testing.T, pid int) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skipf("no /proc on this machine: %v", err)
	}
	match := regexp.MustCompile(`RssAnon:\s+(\d+) kB`).FindSubmatch(text)
	if match == nil {
		t.Fatalf("no RssAnon in %s", text)
	}
	kib, err := strconv.ParseFloat(string(match[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib / 1024
}

func TestMemoryComesBackAfterALoad(t *testing.T) {
	const clients, most = 64, 20 // MiB
	args := []string{"--latency=zero"}
	for i := range clients {
		args = append(args, fmt.Sprintf("--instance=i-%d=cn-hangzhou-h/ecs.g7.large", i))
	}
	cmd, at := started(t, args...)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	if _, err := callAt(client, at, "DescribeDisks"); err != nil {
		t.Fatal(err)
	}
	before := residentMiB(t, cmd.Process.Pid)
	// A ClientToken is remembered for as long as it is valid, so what may be left depends on the number of disks.
	lifecycles := 10_000
	if *long {
		lifecycles = 100_000
	}
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for n := range lifecycles / clients {
				if err := cycle(client, at, fmt.Sprintf("i-%d", i), fmt.Sprintf("n:%d-%d", i, n)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	loaded := residentMiB(t, cmd.Process.Pid)
	client.CloseIdleConnections()
	after := loaded
	for deadline := time.Now().Add(15 * time.Second); !raced && after > before+most && time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		after = residentMiB(t, cmd.Process.Pid)
	}
	t.Logf("%d lifecycles: %.1f MiB before, %.1f MiB at the end of the load, %.1f MiB after it", lifecycles, before, loaded, after)
	if after > before+most && !raced {
		t.Errorf("%.1f MiB before and %.1f MiB after the load, want at most %d more", before, after, most)
	}
}

// cycle makes a disk, attaches, reads, detaches and deletes it.
func cycle(client *http.Client, at, instance, token string) error {
	text, err := callAt(client, at, "CreateDisk", "ZoneId", "cn-hangzhou-h", "DiskCategory", "cloud_essd", "Size", "20", "ClientToken", token)
	if err != nil {
		return err
	}
	id := diskID.FindStringSubmatch(text)[1]
	for _, call := range [][]string{
		{"AttachDisk", "DiskId", id, "InstanceId", instance}, {"DescribeDisks", "DiskIds", `["` + id + `"]`},
		{"DetachDisk", "DiskId", id, "InstanceId", instance}, {"DeleteDisk", "DiskId", id},
	} {
		if _, err := callAt(client, at, call[0], call[1:]...); err != nil {
			return err
		}
	}
	return nil
}
