//go:build foreign

package foreign

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/topodisk/topodisk/test/lab/simulator"
)

const (
	loadClients = 64
	loadTime    = 20 * time.Second
	warmUp      = 3 * time.Second
	// loadGrowth is what the simulator may keep after the load, in KiB, once all disks are deleted and every client token
	// is forgotten, and restTime is within which time it is to have given back the rest.
	loadGrowth = 20 << 10
	restTime   = 30 * time.Second
)

// TestLoad has 64 clients lead disks through their lives at the same time. No call may fail, and the simulator's memory is
// to come back.
func TestLoad(t *testing.T) {
	c := startCloud(t, loadClients)
	var instances []string
	for n := range loadClients {
		instances = append(instances, instanceOf(n))
	}
	load := func(d time.Duration, fewest int) {
		client := command(t, filepath.Join(built, "gosdk"), "load", fmt.Sprint(loadClients), d.String())
		client.Env = c.environment(instances...)
		check(t, client, fewest)
	}
	load(warmUp, loadClients) // fills what is of a fixed size, such as the list of calls
	before := c.memory(t)
	load(loadTime, 20*loadClients)
	full := c.memory(t)
	c.forget(t)
	after := c.memory(t)
	for end := time.Now().Add(restTime); after > before+loadGrowth && time.Now().Before(end) && interrupted.Err() == nil; after = c.memory(t) {
		time.Sleep(time.Second)
	}
	t.Logf("resident memory of ecs-simulator: %d MiB before, %d MiB at the end of the load, %d MiB after it", before>>10, full>>10, after>>10)
	if after > before+loadGrowth {
		t.Errorf("after the load the simulator has %d KiB more than before, allowed are %d KiB", after-before, loadGrowth)
	}
}

var resident = regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`)

// memory is the simulator's resident memory in KiB.
func (c cloud) memory(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.pid))
	if err != nil {
		t.Fatal(err)
	}
	match := resident.FindSubmatch(text)
	if match == nil {
		t.Fatalf("/proc/%d/status has no VmRSS", c.pid)
	}
	size, err := strconv.Atoi(string(match[1]))
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// forget moves the simulator's clock past the life of client tokens.
func (c cloud) forget(t *testing.T) {
	t.Helper()
	if err := simulator.New("http://"+c.address).Advance(t.Context(), 25*time.Hour); err != nil {
		t.Fatal(err)
	}
}
