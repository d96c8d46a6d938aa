package main

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// memory and calls are rules as those of two hours with a round of 8 minutes.
var (
	memory = Rule{Kind: Level, WarmUp: 16 * time.Minute, Window: 8 * time.Minute, Absolute: 4, Relative: 0.1}
	calls  = Rule{Kind: Counter, WarmUp: 16 * time.Minute, Window: 8 * time.Minute, Absolute: 20, Relative: 0.1}
)

// series is two hours of a value every 20 s.
func series(life string, from time.Duration, value func(at time.Duration) float64) (samples []Sample) {
	for at := time.Duration(0); at <= 2*time.Hour; at += 20 * time.Second {
		samples = append(samples, Sample{At: from + at, Series: "memory", Life: life, Value: value(at)})
	}
	return samples
}

func TestLevel(t *testing.T) {
	for name, c := range map[string]struct {
		more func(at time.Duration) float64
		want string
	}{
		"leak of 8 MiB an hour": {func(at time.Duration) float64 { return 8 * at.Hours() }, `"a" rises by`},
		"step that stays":       {func(at time.Duration) float64 { return math.Floor(at.Hours()) * 12 }, `"a" rises by`},
		"fall":                  {func(at time.Duration) float64 { return 30 - 12*at.Hours() }, ""},
		"one peak":              {func(at time.Duration) float64 { return 200 * math.Floor(math.Exp(-math.Abs(at.Minutes()-90))+0.5) }, ""},
		"large at the start":    {func(at time.Duration) float64 { return 100 * math.Exp(-at.Minutes()) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(50) {
				random := rand.New(rand.NewPCG(seed, 2))
				wants(t, memory, series("a", 0, func(at time.Duration) float64 {
					return 40 + 6*math.Sin(2*math.Pi*at.Minutes()/8) + 2*random.NormFloat64() + c.more(at)
				}), c.want)
			}
		})
	}
}

func TestLevelWithNoise(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 3))
		wants(t, memory, series("a", 0, func(time.Duration) float64 { return 40 + 5*random.NormFloat64() }), "")
	}
}

// Objects that come and go are more the slower the machine is; what is left over is there at each moment.
func TestFloor(t *testing.T) {
	objects := Rule{Kind: Floor, WarmUp: 8 * time.Minute, Window: 8 * time.Minute, Absolute: 2, Relative: 0.15}
	slower := func(at time.Duration) float64 {
		return 5 + math.Round((4+6*at.Hours())*(1+math.Sin(2*math.Pi*at.Minutes()/8)))
	}
	wants(t, objects, series("", 0, slower), "")
	wants(t, objects, series("", 0, func(at time.Duration) float64 { return slower(at) + math.Floor(3*at.Hours()) }), `"" rises by`)
	wants(t, Rule{Kind: Level, WarmUp: objects.WarmUp, Window: objects.Window, Absolute: 2, Relative: 0.15}, series("", 0, slower), `"" rises by`)
}

func TestEachLifeIsJudged(t *testing.T) {
	flat := func(time.Duration) float64 { return 40 }
	leak := func(at time.Duration) float64 { return 40 + 10*at.Hours() }
	wants(t, memory, slices.Concat(series("a", 0, flat), series("b", 2*time.Hour, leak)), `"b" rises by`)
	wants(t, memory, slices.Concat(series("a", 0, flat), series("b", 2*time.Hour, func(time.Duration) float64 { return 90 })), "")

	v := wants(t, memory, slices.Concat(series("a", 0, flat), series("b", 2*time.Hour, leak)[:60]), "")
	if v.Short != 1 || len(v.Lives) != 1 {
		t.Errorf("%d lives are too short and %d judged, want 1 and 1", v.Short, len(v.Lives))
	}
	wants(t, memory, series("a", 0, flat)[:60], "no process lived for 16m0s and 6 windows of 8m0s")
	wants(t, memory, nil, "no process lived")
}

func TestCounter(t *testing.T) {
	hourly := func(at time.Duration) float64 { return math.Floor(3000 * at.Hours()) }
	faster := func(at time.Duration) float64 { return math.Floor(3000*at.Hours() + 600*at.Hours()*at.Hours()) }
	slower := func(at time.Duration) float64 { return math.Floor(3000*at.Hours() - 600*at.Hours()*at.Hours()) }
	wants(t, calls, series("a", 0, hourly), "")
	wants(t, calls, series("a", 0, faster), `"a" rises by`)
	wants(t, calls, series("a", 0, slower), "")
}

func TestJudgeRefusesInput(t *testing.T) {
	falling := func(at time.Duration) float64 { return 9000 - at.Seconds() }
	gap := slices.DeleteFunc(series("a", 0, falling), func(s Sample) bool { return s.At > 30*time.Minute && s.At < time.Hour })
	for want, judge := range map[string]func() (Verdict, error){
		"the counter falls from": func() (Verdict, error) { return calls.Judge(series("a", 0, falling)) },
		"there is no sample":     func() (Verdict, error) { return memory.Judge(gap) },
		"Window must be above 0": func() (Verdict, error) { return Rule{}.Judge(nil) },
	} {
		if _, err := judge(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestSamplesAreReadAsWritten(t *testing.T) {
	want := series("a", 0, func(at time.Duration) float64 { return at.Seconds() / 3 })
	var file bytes.Buffer
	if err := WriteSamples(&file, want); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadSamples(&file); err != nil || !slices.Equal(got, want) {
		t.Errorf("read %d samples, error %v, want the %d written", len(got), err, len(want))
	}
	for line, want := range map[string]string{
		`{"at":1,"value":2}`:                "sample 2: series is \"\"",
		`{"at":-1,"series":"a","value":2}`:  "sample 2: at is -1ns",
		`{"at":1,"series":"a","value":-2}`:  "sample 2: value is -2",
		`{"at":1,"series":"a","value":"x"}`: "sample 2: json:",
	} {
		_, err := ReadSamples(strings.NewReader(`{"at":0,"series":"a","value":0}` + "\n" + line))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", line, err, want)
		}
	}
	if err := WriteSamples(&file, []Sample{{Series: "a", Value: math.NaN()}}); err == nil {
		t.Error("NaN is written")
	}
}

func wants(t *testing.T, r Rule, samples []Sample, reason string) Verdict {
	t.Helper()
	v, err := r.Judge(samples)
	if err != nil {
		t.Fatal(err)
	}
	if v.Flat() != (reason == "") || !strings.Contains(v.Reason, reason) {
		t.Errorf("reason %q, want %q; lives %+v", v.Reason, reason, v.Lives)
	}
	return v
}
