package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/ecssim/facts"
	"github.com/topodisk/topodisk/test/golden"
)

func TestMain(m *testing.M) { golden.Main(m, main) }

const (
	region = "cn-hangzhou"
	zone   = "cn-hangzhou-h"
	keyID  = "cloud-check-key"
	secret = "cloud-check-secret"
)

// simulator is a simulator of its own process, as it is shipped.
type simulator struct {
	t   *testing.T
	url string
}

// build builds ecs-simulator, once.
var build = sync.OnceValues(func() (string, error) {
	program, err := filepath.Abs(filepath.Join("..", "..", ".build", "run", "cloudcheck-ecs-simulator"))
	if err != nil {
		return "", err
	}
	if out, err := exec.Command("go", "build", "-o", program, "../../cmd/ecs-simulator").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return program, nil
})

func startSimulator(t *testing.T, flags ...string) *simulator {
	t.Helper()
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	flags = append([]string{
		"--listen=127.0.0.1:0", "--region=" + region, "--zone=" + zone, "--access-key=" + keyID + "=" + secret,
		"--instance=i-1=" + zone + "/ecs.g7se.large", "--instance=i-2=" + zone + "/ecs.g7.large",
	}, flags...)
	cmd := exec.CommandContext(t.Context(), program, flags...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	match := regexp.MustCompile(`http://\S+`).FindString(line)
	if err != nil || match == "" {
		t.Fatalf("first line %q: %v", line, err)
	}
	s := &simulator{t, match}
	// What passes lasts long enough to be seen on a machine that is busy.
	s.post("latency", `{"spans":{"Available":"50ms","Attach":"60ms","Detach":"90ms","Initializing":"10ms","AttachShown":"5ms"},"spread":0}`)
	return s
}

func (s *simulator) post(route, body string) {
	s.t.Helper()
	answer, err := http.Post(s.url+"/_sim/"+route, "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s", route, answer.Status)
	}
}

func get[T any](s *simulator, route string) T {
	s.t.Helper()
	var v T
	answer, err := http.Get(s.url + "/_sim/" + route)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&v); err != nil {
		s.t.Fatal(err)
	}
	return v
}

// usePolicy gives the key the permissions of deploy/cloud-check-policy.json.
func (s *simulator) usePolicy() {
	s.t.Helper()
	policy, err := os.ReadFile("../../deploy/cloud-check-policy.json")
	if err != nil {
		s.t.Fatal(err)
	}
	policy = bytes.ReplaceAll(policy, []byte("REPLACE-WITH-THE-INSTANCE-ID"), []byte("i-1"))
	s.post("policies", `{"who":"`+keyID+`","policy":`+string(policy)+`}`)
}

// client is an SDK client of the account.
func (s *simulator) client() *ecs.Client {
	s.t.Helper()
	c, err := ecs.NewClientWithOptions(region, sdk.NewConfig().WithTimeout(15*time.Second), credentials.NewStaticAKCredentialsProvider(keyID, secret))
	if err != nil {
		s.t.Fatal(err)
	}
	c.Domain = strings.TrimPrefix(s.url, "http://")
	return c
}

// foreign makes a disk as somebody else does, and attaches it if there is an
// instance.
func (s *simulator) foreign(instance string, tags ...ecs.CreateDiskTag) string {
	s.t.Helper()
	c := s.client()
	r := ecs.CreateCreateDiskRequest()
	r.ZoneId, r.DiskCategory, r.Size, r.Tag = zone, "cloud_essd", requests.NewInteger(20), &tags
	made, err := c.CreateDisk(r)
	if err != nil {
		s.t.Fatal(err)
	}
	if instance == "" {
		return made.DiskId
	}
	s.await(made.DiskId+" is Available", func(state ecssim.State) bool { return hasStatus(state, made.DiskId, "Available") })
	a := ecs.CreateAttachDiskRequest()
	a.DiskId, a.InstanceId = made.DiskId, instance
	if _, err := c.AttachDisk(a); err != nil {
		s.t.Fatal(err)
	}
	s.await(made.DiskId+" is In_use", func(state ecssim.State) bool { return hasStatus(state, made.DiskId, "In_use") })
	return made.DiskId
}

func hasStatus(state ecssim.State, id, status string) bool {
	return slices.ContainsFunc(state.Disks, func(d ecssim.DiskState) bool { return d.ID == id && d.Status == status })
}

// await waits for a minute until the simulator is as it should be.
func (s *simulator) await(what string, is func(ecssim.State) bool) {
	s.t.Helper()
	for ends := time.Now().Add(time.Minute); !is(get[ecssim.State](s, "state")); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(ends) {
			s.t.Fatalf("it is not so in a minute: %s", what)
		}
	}
}

// check is the program with its environment.
func (s *simulator) check(args ...string) *exec.Cmd {
	return golden.Command(s.t, []string{
		keyVariable + "=" + keyID, secretVariable + "=" + secret, regionVariable + "=" + region, zoneVariable + "=" + zone,
		instanceVariable + "=i-1", endpointVariable + "=" + s.url,
	}, args...)
}

// run runs the program to its end and returns its report.
func (s *simulator) run(file string) facts.Report {
	s.t.Helper()
	out, err := s.check("-yes", "-report="+file).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
	for _, hidden := range []string{keyID, secret} {
		if bytes.Contains(out, []byte(hidden)) {
			s.t.Errorf("the output has %q", hidden)
		}
	}
	return s.report(file)
}

func (s *simulator) report(file string) facts.Report {
	s.t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := facts.ReadReport(text)
	if err != nil {
		s.t.Fatal(err)
	}
	if bytes.Contains(text, []byte(keyID)) || bytes.Contains(text, []byte(secret)) {
		s.t.Error("the report has a key")
	}
	return r
}

// left returns the disks and snapshots that carry the tag of any run.
func (s *simulator) left() []string {
	s.t.Helper()
	state := get[ecssim.State](s, "state")
	var ids []string
	for _, d := range state.Disks {
		if d.Tags[facts.RunTag] != "" {
			ids = append(ids, d.ID)
		}
	}
	for _, n := range state.Snapshots {
		if n.Tags[facts.RunTag] != "" {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// used is what the run's disks came to in GiB-minutes by the simulator's own
// ledger; a disk that exists counts until now.
func (s *simulator) used() float64 {
	s.t.Helper()
	state, sum := get[ecssim.State](s, "state"), 0.0
	sizes, made := map[string]int{}, map[string]time.Time{}
	for _, c := range get[[]ecssim.Call](s, "calls") {
		switch {
		case c.Code != "":
		case c.Action == "CreateDisk" && made[c.Disk].IsZero() && slices.Contains(slices.Collect(maps.Values(c.Params)), facts.RunTag):
			var size int
			if _, err := fmt.Sscan(c.Params["Size"], &size); err != nil || c.Disk == "" {
				s.t.Fatalf("call %+v: %v", c, err)
			}
			sizes[c.Disk], made[c.Disk] = size, c.Time
		case c.Action == "ResizeDisk" && !made[c.Disk].IsZero():
			sizes[c.Disk]++ // facts grow disks by one GiB
		case c.Action == "DeleteDisk" && !made[c.Disk].IsZero():
			sum += float64(sizes[c.Disk]) * c.Time.Sub(made[c.Disk]).Minutes()
			delete(sizes, c.Disk)
		}
	}
	for id, size := range sizes {
		sum += float64(size) * state.Now.Sub(made[id]).Minutes()
	}
	return sum
}

// plant chooses a way for each fact that has some and can be asked, and
// returns the flags that make the simulator behave so.
func plant(t *testing.T, random *rand.Rand) (want map[string]string, flags []string) {
	t.Helper()
	var config ecssim.Config
	want = map[string]string{}
	for _, f := range facts.Facts() {
		if len(f.Ways) == 0 || f.Needs == facts.Simulator {
			continue
		}
		way := f.Ways[random.IntN(len(f.Ways))]
		if err := way.Apply(&config); err != nil {
			t.Fatal(err)
		}
		want[f.Name()] = way.Says
	}
	// A refusal for another reason hides whether Creating is one.
	const creating = "CreateSnapshot: a disk that is Creating"
	if want[creating] == "accepted" && !slices.Contains(config.Doubts.SnapshotUnattached, "cloud_essd") {
		want[creating] = hidden
	}
	for _, s := range ecssim.Settings() {
		if value := s.Get(config); value != s.Default {
			flags = append(flags, "--"+s.Name+"="+value)
		}
	}
	return want, flags
}

// hidden stands for a way that another one hides.
const hidden = "hidden"

// wantReport checks that what was planted was found, and nothing else differs.
func wantReport(t *testing.T, r facts.Report, want map[string]string) {
	t.Helper()
	byName := map[string]facts.Result{}
	for _, result := range r.Facts {
		byName[result.Fact] = result
	}
	for _, f := range facts.Facts() {
		got := byName[f.Name()]
		outcome, observed := facts.Agrees, ""
		switch {
		case f.Needs == facts.Simulator:
			outcome = facts.NotAsked
		case want[f.Name()] == hidden:
			outcome = facts.NotAsked
		case len(f.Ways) > 0:
			if observed = want[f.Name()]; observed != f.Ways[0].Says {
				outcome = facts.Differs
			}
		}
		if got.Outcome != outcome || got.Observed != observed {
			t.Errorf("%s: %+v, want %s %q", f.Name(), got, outcome, observed)
		}
	}
}

var seeds = flag.Int("seeds", 1, "how often differences are planted")

func TestPlantedDifferencesAreFound(t *testing.T) {
	for range *seeds {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			want, flags := plant(t, rand.New(rand.NewPCG(seed, 0)))
			t.Logf("flags %q", flags)
			s := startSimulator(t, flags...)
			other := s.foreign("")
			file := filepath.Join(t.TempDir(), "report.json")
			report := s.run(file)
			wantReport(t, report, want)
			if left := s.left(); len(left) > 0 {
				t.Errorf("left are %v", left)
			}
			state := get[ecssim.State](s, "state")
			if !slices.ContainsFunc(state.Disks, func(d ecssim.DiskState) bool { return d.ID == other }) {
				t.Error("it deleted a disk of somebody else")
			}
			if used := s.used(); used > report.BoundGiBMinutes || used > report.GiBMinutes || report.Disks != state.DisksMade-1 {
				t.Errorf("%.2f GiB-minutes and %d disks, the report says %.2f of %.0f and %d", used, state.DisksMade-1, report.GiBMinutes, report.BoundGiBMinutes, report.Disks)
			}

			// The second time the key has the permissions of the documentation only.
			s = startSimulator(t, "--facts="+file)
			s.usePolicy()
			again, forbidden := s.run(filepath.Join(t.TempDir(), "report.json")), 0
			for i, result := range again.Facts {
				switch {
				case result == report.Facts[i]:
				case result.Outcome == facts.NotAsked && strings.Contains(result.Why, "Forbidden.RAM"):
					forbidden++
				default:
					t.Errorf("with --facts: %+v, before: %+v", result, report.Facts[i])
				}
			}
			if left := s.left(); forbidden > 10 || len(left) > 0 {
				t.Errorf("%d facts are forbidden, %v is left", forbidden, left)
			}
		})
	}
}

// startAndWait starts the program and waits until it has made some disks.
func (s *simulator) startAndWait(random *rand.Rand, args ...string) *exec.Cmd {
	s.t.Helper()
	cmd := s.check(args...)
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	before, wait := get[ecssim.State](s, "state").DisksMade, 1+random.IntN(25)
	s.await(fmt.Sprintf("%d disks are made", wait), func(state ecssim.State) bool { return state.DisksMade >= before+wait })
	time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
	return cmd
}

func TestAnInterruptedRunLeavesNothing(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := startSimulator(t)
	file := filepath.Join(t.TempDir(), "report.json")
	cmd := s.startAndWait(rand.New(rand.NewPCG(seed, 0)), "-yes", "-report="+file)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it was interrupted and says that all went well")
	}
	if left := s.left(); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	report := s.report(file)
	if last := report.Facts[len(report.Facts)-1]; last.Outcome != facts.NotAsked || s.used() > report.BoundGiBMinutes ||
		len(report.Facts) != len(facts.Facts()) {
		t.Errorf("%d facts, the last %+v; %.2f GiB-minutes", len(report.Facts), last, s.used())
	}
}

func TestCleanRemovesWhatAKilledRunLeft(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s, random := startSimulator(t), rand.New(rand.NewPCG(seed, 0))
	run := func(value, instance string) []ecs.CreateDiskTag {
		return []ecs.CreateDiskTag{{Key: facts.RunTag, Value: value}, {Key: facts.InstanceTag, Value: instance}}
	}
	kept := []string{s.foreign(""), s.foreign("i-2", run("earlier", "i-1")...)} // the second was moved to another instance
	s.foreign("i-1", run("earlier", "i-1")...)
	for leftovers := false; !leftovers; {
		cmd := s.startAndWait(random, "-yes", "-report="+filepath.Join(t.TempDir(), "report.json"))
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		leftovers = len(s.left()) > 2
	}
	time.Sleep(100 * time.Millisecond) // calls that were under way take effect
	out, err := s.check("-clean").CombinedOutput()
	if err == nil || !strings.Contains(string(out), kept[1]+" is left: it is attached to i-2") {
		t.Errorf("%v\n%s", err, out)
	}
	if left := s.left(); !slices.Equal(left, kept[1:]) {
		t.Errorf("left are %v, want %v alone\n%s", left, kept[1:], out)
	}
	state := get[ecssim.State](s, "state")
	for _, id := range kept {
		if !slices.ContainsFunc(state.Disks, func(d ecssim.DiskState) bool { return d.ID == id }) {
			t.Errorf("it deleted %s", id)
		}
	}
	if len(state.Snapshots) > 0 {
		t.Errorf("snapshots %v are left", state.Snapshots)
	}
}

func TestNothingIsMadeWithoutYes(t *testing.T) {
	s := startSimulator(t)
	out, err := s.check().CombinedOutput()
	if err != nil || !strings.Contains(string(out), "GiB-minutes") || !strings.Contains(string(out), "YES=1") {
		t.Errorf("%v\n%s", err, out)
	}
	if calls := get[ecssim.State](s, "state").Calls; len(calls) > 0 {
		t.Errorf("calls %v", calls)
	}
}

func TestTheEnvironmentIsChecked(t *testing.T) {
	whole := map[string]string{keyVariable: "k", secretVariable: "the-secret", regionVariable: region, zoneVariable: zone}
	for _, tt := range []struct {
		name     string
		change   map[string]string
		mentions []string
	}{
		{"nothing", map[string]string{keyVariable: "", secretVariable: "", regionVariable: "", zoneVariable: ""}, []string{keyVariable, secretVariable, regionVariable, zoneVariable, instanceVariable}},
		{"no zone", map[string]string{zoneVariable: ""}, []string{zoneVariable}},
		{"a zone of another region", map[string]string{zoneVariable: "cn-beijing-a"}, []string{zoneVariable, "cn-beijing-a", region}},
		{"an endpoint without TLS", map[string]string{endpointVariable: "http://ecs.cn-hangzhou.aliyuncs.com"}, []string{endpointVariable, "https://HOST"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := maps.Clone(whole)
			maps.Copy(env, tt.change)
			_, err := fromEnvironment(func(name string) string { return env[name] })
			if err == nil || strings.Contains(err.Error(), "the-secret") {
				t.Fatalf("error %v", err)
			}
			for _, word := range tt.mentions {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("error %v does not mention %q", err, word)
				}
			}
		})
	}
}

func TestAKeyThatIsRefusedIsSaid(t *testing.T) {
	s := startSimulator(t)
	cmd := s.check("-yes", "-report="+filepath.Join(t.TempDir(), "report.json"))
	cmd.Env = append(cmd.Env, secretVariable+"=another-secret")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "SignatureDoesNotMatch") || strings.Contains(string(out), "another-secret") {
		t.Errorf("%v\n%s", err, out)
	}
}
