package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/ecssim/admin"
	"github.com/topodisk/topodisk/test/lab/simulator"
)

// The program starts itself again in these roles; the settings are JSON in the
// second variable.
const (
	roleVariable     = "TOPODISK_BENCH_ROLE"
	settingsVariable = "TOPODISK_BENCH_SETTINGS"

	roleSimulator  = "simulator"
	roleLifecycles = "lifecycles"
	roleMemory     = "memory"
	roleInstant    = "instant"
)

type simulatorSettings struct{ Latency, Throttle, Stuck string }

type clientSettings struct {
	Role     string
	Endpoint string
	N        int
	Profile  string
}

// result is what a client's process prints.
type result struct {
	Took, CPU    time.Duration
	Later        int64
	Failed       int64
	Errors       []string
	RSS, PeakRSS int64 // bytes
	Profile      string
}

// play is the main of a process with a role.
func play(role string) int {
	var err error
	switch settings := []byte(os.Getenv(settingsVariable)); role {
	case roleSimulator:
		err = playSimulator(settings)
	case roleLifecycles, roleMemory:
		err = playClient(settings)
	case roleInstant:
		err = playInstant(settings)
	default:
		err = fmt.Errorf("%s=%q: allowed are %s, %s, %s and %s", roleVariable, role, roleSimulator, roleLifecycles, roleMemory, roleInstant)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

// playSimulator serves until standard input ends.
func playSimulator(settings []byte) error {
	var s simulatorSettings
	if err := json.Unmarshal(settings, &s); err != nil {
		return err
	}
	latency, err := ecssim.Profile(s.Latency)
	if err != nil {
		return err
	}
	latency.Spread = 0 // so that runs can be compared
	throttle, err := ecssim.ThrottleProfile(s.Throttle)
	if err != nil {
		return err
	}
	sim, err := newSimulator(func(c *ecssim.Config) {
		c.Latency, c.Throttle, c.Queues, c.LedgerSize = latency, throttle, ecssim.Parallel, 10
	})
	if err != nil {
		return err
	}
	if s.Stuck != "" {
		if err := sim.AddFault(ecssim.Fault{Action: s.Stuck, Do: ecssim.FaultStuck}); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: admin.Handler(sim), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	fmt.Println("http://" + listener.Addr().String())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// simulatorProcess is a simulator in a process of its own.
type simulatorProcess struct {
	command *exec.Cmd
	stdin   io.Closer
	address string
}

// self returns the command that runs this program in a role.
func self(t *testing.T, role string, settings any) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(path)
	command.Env = append(os.Environ(), roleVariable+"="+role, settingsVariable+"="+string(text))
	command.Stderr = os.Stderr
	return command
}

func startSimulator(t *testing.T, s simulatorSettings) *simulatorProcess {
	t.Helper()
	command := self(t, roleSimulator, s)
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the simulator doesn't start: %v", err)
	}
	return &simulatorProcess{command: command, stdin: stdin, address: strings.TrimSpace(line)}
}

func (p *simulatorProcess) stop() {
	_ = p.stdin.Close()
	_ = p.command.Wait()
}

// state asks the simulator what it counted.
func (p *simulatorProcess) state(t *testing.T) ecssim.State {
	t.Helper()
	state, err := simulator.New(p.address).State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// runClient runs a client's process to its end.
func runClient(t *testing.T, s clientSettings) result {
	t.Helper()
	s.Profile = t.TempDir() + "/cpu.pprof"
	out, err := self(t, s.Role, s).Output()
	if err != nil {
		t.Fatalf("the client's process: %v: %s", err, out)
	}
	got := result{Profile: s.Profile}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("the client's process said %q: %v", out, err)
	}
	got.Profile = s.Profile
	return got
}

func playClient(settings []byte) error {
	var s clientSettings
	if err := json.Unmarshal(settings, &s); err != nil {
		return err
	}
	client, err := newClient(s.Endpoint, nil)
	if err != nil {
		return err
	}
	profile, err := os.Create(s.Profile)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(profile); err != nil {
		return err
	}
	w := &workload{client: client}
	var got result
	if s.Role == roleMemory {
		got.RSS, err = w.fill(s.N)
	} else {
		got.Took = w.lifecycles(s.N)
	}
	pprof.StopCPUProfile()
	if err != nil {
		return err
	}
	got.Later, got.Failed, got.CPU = w.later.Load(), w.failed.Load(), usedCPU()
	w.errors.Range(func(text, _ any) bool { got.Errors = append(got.Errors, fmt.Sprint(text)); return true })
	if got.PeakRSS, err = statusBytes("VmHWM"); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(got)
}

// fill makes n disks, begins to attach a tenth of them, which never ends, and
// returns the RSS with all of these in flight.
func (w *workload) fill(n int) (int64, error) {
	ids := make([]disk.ID, n)
	var makers errgroup.Group
	makers.SetLimit(n / 10)
	for i := range ids {
		makers.Go(func() error {
			w.rpc(createTime, func(ctx context.Context) error {
				made, err := create(ctx, w.client, fmt.Sprintf("vol-%d", i))
				ids[i] = made.ID
				return err
			})
			return nil
		})
	}
	_ = makers.Wait() // rpc notes what failed

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var attaches sync.WaitGroup
	for i := range n / 10 {
		attaches.Go(func() { _ = w.attach(ctx, instance(i), ids[i]) })
	}
	time.Sleep(15 * time.Second)
	rss, err := statusBytes("VmRSS")
	cancel()
	attaches.Wait()
	return rss, err
}

// usedCPU is the CPU time of this process.
func usedCPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// statusBytes returns a size that the kernel knows of this process.
func statusBytes(name string) (int64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	return sizeIn(string(text), name)
}

// sizeIn finds a size in the text of /proc/PID/status, in bytes.
func sizeIn(text, name string) (int64, error) {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("the status of the process has no %s", name)
}
