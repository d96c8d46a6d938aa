package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// made is what a run of two hours without a fault would have written, with noise and a wave in each round. leak is what is added to
// a series in the life that goes on through the middle.
func made(t *testing.T, seed uint64, leak func(series string, at time.Duration) float64) result {
	t.Helper()
	plan, err := parseHours("2")
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(seed, 7))
	r := result{About: About{Plan: plan, Commit: "abc", Machine: "a machine"}}
	base := map[string]float64{residentMemory: 60 << 20, heap: 12 << 20, goroutines: 150, openFiles: 25}
	for _, s := range plan.judged() {
		level := 12.0
		for name, value := range base {
			if strings.HasSuffix(s.name, name) {
				level = value
			}
		}
		count := map[string]float64{}
		for at := time.Duration(0); at < plan.Length(); at += sampleEvery {
			life := plan.PartAt(at) // rollouts end each life where a part ends
			if strings.Contains(s.name, "journal") || s.rule.WarmUp == 0 {
				life = ""
			}
			wave := level * (1 + 0.1*math.Sin(2*math.Pi*at.Minutes()/plan.Round.Minutes()) + 0.03*random.NormFloat64())
			if s.rule.Kind == Counter {
				count[life] += math.Round(max(wave, 0) + leak(s.name, at)*sampleEvery.Hours())
				r.samples = append(r.samples, Sample{At: at, Series: s.name, Life: life, Value: count[life]})
				continue
			}
			r.samples = append(r.samples, Sample{At: at, Series: s.name, Life: life, Value: wave + leak(s.name, at)})
		}
	}
	for n := range 50 {
		r.turns = append(r.turns, Turn{Name: fmt.Sprintf("pod-%d", n), Waits: map[string]time.Duration{claimBound: time.Duration(n) * time.Second}})
	}
	r.events = []Event{{At: time.Hour, Round: 7, Name: faults[0].name, Took: time.Second}, {At: plan.Length(), Name: loadEnded}}
	r.inventory = []Inventory{{"disks": nil}, {"disks": nil}}
	return r
}

func wrongs(t *testing.T, r result) []string {
	t.Helper()
	judgements, err := r.judge()
	if err != nil {
		t.Fatal(err)
	}
	return r.faults(judgements)
}

func TestPlantedLeakIsFound(t *testing.T) {
	for name, hourly := range map[string]float64{
		"":                             0,
		"disk-provisioner: goroutines": 20,
		"disk-provisioner: Go heap":    12 << 20,
		"disk-driver: open files":      8,
		"node plugin: resident memory": 12 << 20,
		"disk-driver: API requests":    2000,
		"ECS calls":                    2000,
		"PersistentVolumes":            6,
		"mounts of volumes":            6,
		"journal bytes":                5000,
		"objects in the API server":    30,
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				wrong := wrongs(t, made(t, seed, func(series string, at time.Duration) float64 {
					if series != name {
						return 0
					}
					return hourly * at.Hours()
				}))
				switch {
				case name == "" && len(wrong) > 0:
					t.Errorf("seed %d: %q", seed, wrong)
				case name != "" && (len(wrong) != 1 || !strings.HasPrefix(wrong[0], name+" is not flat: ")):
					t.Errorf("seed %d: %q, want that it is not flat and no more", seed, wrong)
				}
			}
		})
	}
}

func none(string, time.Duration) float64 { return 0 }

func TestWhatElseIsWrong(t *testing.T) {
	for want, change := range map[string]func(*result){
		"pod-1 failed: why": func(r *result) { r.turns[1].Failed = "why" },
		"claim bound: the longest took 10m0s, 6m0s is allowed": func(r *result) {
			r.turns[1].Waits[claimBound] = 10 * time.Minute
		},
		"in round 8, " + faults[0].name + ": why":      func(r *result) { r.events[0].Failed = "why" },
		"the run was killed before the load had ended": func(r *result) { r.events = r.events[:1] },
		"the run was killed before the load was gone":  func(r *result) { r.inventory = r.inventory[:1] },
		"not as before the load:\ndisks: left over [\"d-1\"], missing []": func(r *result) {
			r.inventory[1] = Inventory{"disks": {"d-1"}}
		},
	} {
		r := made(t, 1, none)
		change(&r)
		if got := wrongs(t, r); len(got) != 1 || got[0] != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestPageAndPicture(t *testing.T) {
	r, docs := made(t, 1, none), t.TempDir()
	judgements, err := r.judge()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.publish(docs, judgements); err != nil {
		t.Fatal(err)
	}
	picture, err := os.Open(filepath.Join(docs, "soak.svg"))
	if err != nil {
		t.Fatal(err)
	}
	defer picture.Close()
	titles := map[string]bool{}
	for decoder := xml.NewDecoder(picture); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := token.(xml.CharData); ok {
			titles[strings.TrimSpace(string(text))] = true
		}
	}
	text, err := os.ReadFile(filepath.Join(docs, "soak.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.panels() {
		if !titles[p.title] || len(p.lives) == 0 {
			t.Errorf("the picture has no lines for %s", p.title)
		}
	}
	for _, j := range judgements {
		if !strings.Contains(string(text), "\n| "+j.name) {
			t.Errorf("the page has no row for %s", j.name)
		}
	}
}

func TestKilledRunIsReadUpToItsLastWholeLine(t *testing.T) {
	dir := t.TempDir()
	out, err := openRecords(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := made(t, 1, none)
	if err := errors.Join(out.begins(About{Plan: want.Plan, Begin: time.Now()}), out.samples(want.samples[:100]), out.add(eventsFile, want.events[0])); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{samplesFile, eventsFile, turnsFile} {
		if _, err := out.files[name].WriteString(`{"at":12`); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readResult(dir)
	if err != nil || len(got.samples) != 100 || len(got.events) != 1 || len(got.turns) != 0 || got.Plan != want.Plan {
		t.Errorf("read %d samples, %d events, %d turns, plan %+v, error %v", len(got.samples), len(got.events), len(got.turns), got.Plan, err)
	}
}

func TestSums(t *testing.T) {
	page := "# HELP a b\na{x=\"y z\"} 1\na{x=\"{\"} 2.5\nb 1e+06\n"
	got, err := sums(strings.NewReader(page))
	if err != nil || got["a"] != 3.5 || got["b"] != 1e6 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := sums(strings.NewReader("a x\n")); err == nil {
		t.Error("a value that is no number is read")
	}
}
