package process

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// parentMode makes this test binary start a child in the directory that it names and wait to be killed.
const parentMode = "LAB_TEST_PARENT_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentMode); dir != "" {
		beParent(dir)
	}
	if address, ok := strings.CutPrefix(os.Args[len(os.Args)-1], "--http-endpoint="); ok { // as Serve starts it
		fmt.Println(http.ListenAndServe(address, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	}
	os.Exit(m.Run())
}

func beParent(dir string) {
	proc, err := NewGroup(dir, false).Start(sleeper("child"))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(proc.Pid())
	select {}
}

func sleeper(name string) Command {
	return Command{Name: name, Path: "/bin/sleep", Args: []string{"600"}}
}

func TestChildDiesWithAParentThatIsKilled(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentMode+"="+t.TempDir())
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the parent said %q", line)
	}
	child, err := Identify(pid)
	if err != nil {
		t.Fatal(err)
	}
	parent.Process.Kill()
	parent.Wait()
	if !child.AwaitEnd(10 * time.Second) {
		t.Errorf("process %d still runs", pid)
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

func TestStopAllEndsEveryProcess(t *testing.T) {
	p := NewGroup(t.TempDir(), false)
	var ids []Identity
	for _, name := range []string{"one", "two"} {
		proc, err := p.Start(sleeper(name))
		if err != nil {
			t.Fatal(err)
		}
		id, err := Identify(proc.Pid())
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := p.StopAll(); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if id.Running() {
			t.Errorf("process %d still runs", id.Pid)
		}
	}
}

func TestAwaitEndsWhenAProgramDoesAndShowsItsLog(t *testing.T) {
	p := NewGroup(t.TempDir(), false)
	proc, err := p.Start(Command{Name: "grumbler", Path: "/bin/sh", Args: []string{"-c", "echo port is taken >&2; exit 3"}})
	if err != nil {
		t.Fatal(err)
	}
	err = p.Await(t.Context(), "the impossible", time.Minute, func(context.Context) (bool, error) { return false, nil })
	if err == nil {
		t.Fatal("await ended without an error")
	}
	for _, want := range []string{"the impossible", "grumbler ended", "exit status 3", "| port is taken", proc.Log} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
}

func TestAwaitSaysTheLastReason(t *testing.T) {
	p := NewGroup(t.TempDir(), false)
	err := p.Await(t.Context(), "rain", 20*time.Millisecond, func(context.Context) (bool, error) { return false, fmt.Errorf("the sky is blue") })
	if err == nil || !strings.Contains(err.Error(), "rain") || !strings.Contains(err.Error(), "the sky is blue") {
		t.Errorf("error is %v", err)
	}
}

func TestStopKeptEndsWhatIsListedAndNothingElse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept")
	p := NewGroup(dir, true)
	proc, err := p.Start(sleeper("ours"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewGroup(t.TempDir(), false).Start(sleeper("other"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.stop(syscall.SIGKILL)
	id, err := Identify(other.Pid())
	if err != nil {
		t.Fatal(err)
	}
	id.Start-- // as if the listed process had ended and its number had been given to this one
	if err := appendIdentity(p.list, id); err != nil {
		t.Fatal(err)
	}

	names, err := Kept(dir)
	if err != nil || len(names) != 1 || names[0] != "ours" {
		t.Errorf("kept are %q, %v; want ours", names, err)
	}
	if names, err = StopKept(dir); err != nil || len(names) != 1 || names[0] != "ours" {
		t.Errorf("stopped were %q, %v; want ours", names, err)
	}
	<-proc.done
	if other.Ended() {
		t.Error("a process that has only the number of a listed one was ended")
	}
	if names, err = StopKept(dir); err != nil || len(names) != 0 {
		t.Errorf("stopping again: %q, %v", names, err)
	}
}

func TestAProgramServesOnItsPortAgain(t *testing.T) {
	g := NewGroup(t.TempDir(), false)
	var urls []string
	for range 2 {
		p, err := g.Serve(t.Context(), Command{Name: "server", Path: os.Args[0]}, "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		if g.Find("server") != p {
			t.Error("it is not found while it runs")
		}
		urls = append(urls, g.URL("server", "/"))
		g.StopProgram(p, true)
	}
	if urls[0] != urls[1] || g.Find("server") != nil {
		t.Errorf("it was served at %v; found when it is stopped: %v", urls, g.Find("server"))
	}
}

func TestStartTicks(t *testing.T) {
	const rest = " 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21"
	for _, c := range []struct {
		stat string
		want uint64
		fail bool
	}{
		{"42 (sleep) S" + rest, 4711, false},
		{"42 (a) b (c) R" + rest, 4711, false},
		{"42 (sleep) Z" + rest, 0, true},
		{"42 (sleep) S 1 2", 0, true},
		{"42 sleep S" + rest, 0, true},
	} {
		got, err := startTicks(c.stat)
		if got != c.want || (err != nil) != c.fail {
			t.Errorf("startTicks(%q) = %d, %v", c.stat, got, err)
		}
	}
}

func TestLastLines(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "    | "},
		{"a\n", "    | a"},
		{"a\nb\nc\n", "    | b\n    | c"},
	} {
		if got := lastLines(c.text, 2); got != c.want {
			t.Errorf("lastLines(%q, 2) = %q, want %q", c.text, got, c.want)
		}
	}
}

func TestFreePortsAreDifferentAndNotThoseOfConnections(t *testing.T) {
	var a, b, c int
	if err := FreePorts(&a, &b, &c); err != nil {
		t.Fatal(err)
	}
	if a == 0 || b == 0 || c == 0 || a == b || b == c || a == c {
		t.Errorf("ports are %d, %d, %d", a, b, c)
	}
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Fatal(err)
	}
	var first, last int
	if _, err := fmt.Sscan(string(text), &first, &last); err != nil {
		t.Fatal(err)
	}
	for _, port := range []int{a, b, c} {
		if port >= first && port <= last {
			t.Errorf("port %d is one of %d to %d, which connections get", port, first, last)
		}
	}
}
