package facts

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

// runIn asks facts of a simulator as of any endpoint, and checks that it
// leaves nothing.
func runIn(t *testing.T, ctx context.Context, sim *ecssim.Server, c *Client, all []Fact, limits Limits) Report {
	t.Helper()
	report, err := Run(ctx, c, all, limits, func(Result) {})
	if err != nil {
		t.Error(err)
	}
	for _, d := range sim.Disks() {
		if d.Tags[RunTag] != "" {
			t.Errorf("disk %+v is left", d)
		}
	}
	if n := len(sim.Snapshots()); n > 0 {
		t.Errorf("%d snapshots are left", n)
	}
	if report.GiBMinutes > report.BoundGiBMinutes {
		t.Errorf("%.1f GiB-minutes of %.1f", report.GiBMinutes, report.BoundGiBMinutes)
	}
	return report
}

// count counts the facts of an outcome, and fails for each that differs.
func count(t *testing.T, r Report, outcome Outcome) (n int) {
	t.Helper()
	for _, f := range r.Facts {
		if f.Outcome == Differs {
			t.Errorf("%+v", f)
		}
		if f.Outcome == outcome {
			n++
		}
	}
	return n
}

func TestARunWithLatenciesOfECSFitsItsLimits(t *testing.T) {
	for name, change := range map[string]func(*ecssim.Config) error{
		"real": nil,
		"throttled": func(c *ecssim.Config) (err error) {
			c.Throttle, err = ecssim.ThrottleProfile("tight")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, c := newSimulator(t, change)
				r := runIn(t, t.Context(), sim, c, Facts(), DefaultLimits())
				for _, f := range r.Facts {
					if f.Outcome == NotAsked && !strings.HasPrefix(f.Why, "only a simulator") {
						t.Errorf("%+v", f)
					}
				}
				count(t, r, Agrees)
				t.Logf("%d disks, %.1f GiB-minutes, %.0f s", r.Disks, r.GiBMinutes, r.Seconds)
				if r.GiBMinutes > r.BoundGiBMinutes/10 {
					t.Errorf("%.1f GiB-minutes: the documentation says far below a tenth of %.0f", r.GiBMinutes, r.BoundGiBMinutes)
				}
			})
		})
	}
}

func TestLostRepliesLeaveNothing(t *testing.T) {
	for do, actions := range map[string][]string{
		ecssim.FaultLostReply: {"CreateDisk", "CreateSnapshot", "DeleteDisk", ""}, ecssim.FaultErrorAfter: {"CreateDisk"}, ecssim.FaultEmpty: {"CreateDisk"}, ecssim.FaultHTML: {""},
	} {
		for _, action := range actions {
			t.Run(do+" "+action, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sim, c := newSimulator(t, nil)
					fault := ecssim.Fault{Action: action, Do: do, Percent: 30}
					if do == ecssim.FaultErrorAfter {
						fault.Status, fault.Code = 500, "InternalError"
					}
					if err := sim.AddFault(fault); err != nil {
						t.Fatal(err)
					}
					if count(t, runIn(t, t.Context(), sim, c, Facts(), DefaultLimits()), NotAsked) == 0 {
						t.Error("every fact was asked")
					}
				})
			})
		}
	}
}

func TestARunEndsWithItsContextAndItsTime(t *testing.T) {
	for name, limit := range map[string]time.Duration{"context": 0, "time": 40 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, c := newSimulator(t, nil)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				limits := DefaultLimits()
				if limit > 0 {
					limits.Total = limit
				} else {
					time.AfterFunc(40*time.Second, cancel)
				}
				began := time.Now()
				r := runIn(t, ctx, sim, c, Facts(), limits)
				if last := r.Facts[len(r.Facts)-1]; last.Why != "interrupted" && !strings.Contains(last.Why, "40s") {
					t.Errorf("the last fact: %+v", last)
				}
				if took := time.Since(began); took > 2*time.Minute {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

func TestTheBudgetIsKept(t *testing.T) {
	making := slices.DeleteFunc(Facts(), func(f Fact) bool { return f.quick || makes[f.Action] == "" && f.Name() != attachAnotherName })
	for name, limits := range map[string]*Budget{
		"disks":       {Disks: 3, AtATime: 4, Snapshots: 20, GiBMinutes: 6000},
		"snapshots":   {Disks: 100, AtATime: 4, Snapshots: 2, GiBMinutes: 6000},
		"GiB-minutes": {Disks: 100, AtATime: 4, Snapshots: 20, GiBMinutes: 250},
		"at a time":   {Disks: 100, AtATime: 1, Snapshots: 20, GiBMinutes: 6000},
		"nothing":     {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, c := newSimulator(t, nil)
				l := DefaultLimits()
				l.Budget = limits
				r := runIn(t, t.Context(), sim, c, making, l)
				if r.Disks > limits.Disks || sim.State().DisksMade > limits.Disks+4 || r.Snapshots > limits.Snapshots {
					t.Errorf("%d disks and %d snapshots", r.Disks, r.Snapshots)
				}
				limited := 0
				for _, f := range r.Facts {
					if strings.Contains(f.Why, "limit of") || strings.Contains(f.Why, "does not fit") {
						limited++
					}
				}
				if count(t, r, NotAsked); limited == 0 {
					t.Error("no fact was refused for it")
				}
			})
		})
	}
}

// attachAnotherName is the fact that has two disks at a time.
const attachAnotherName = "AttachDisk: a second disk while the first is Attaching"

// A disk that a lost reply may have made counts for as long as it can live.
func TestALostReplyStaysInTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Budget{Disks: 10, AtATime: 10, GiBMinutes: 200}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // with CleanUp 5 minutes: 21 GiB are 105 GiB-minutes
		defer cancel()
		if err := b.reserve(ctx, "CreateDisk", []string{"Size", "20"}); err != nil {
			t.Fatal(err)
		}
		if err := b.reserve(ctx, "CreateDisk", []string{"Size", "20"}); err == nil || !b.Lost() {
			t.Errorf("a second disk: %v, lost %v", err, b.Lost())
		}
		if err := b.reserve(t.Context(), "CreateDisk", nil); err == nil {
			t.Error("a disk without an end was let pass")
		}
	})
}

func TestAProbeChangesNothingThatItHasNotMade(t *testing.T) {
	for _, pairs := range [][]string{{"DiskId", "d-1"}, {"SnapshotId", "s-1"}, {"ResourceType", "disk", "ResourceId.3", "d-1"}, {"DiskIds.2", "d-1"}} {
		p := &Probe{Client: &Client{}, Made: []string{"d-2"}, ctx: t.Context()}
		func() {
			defer func() {
				if s, ok := recover().(stopped); !ok || !strings.Contains(s.why, pairs[len(pairs)-1]) {
					t.Errorf("%v: %v", pairs, s)
				}
			}()
			p.guard("ModifyAnything", pairs)
			t.Errorf("%v is let pass", pairs)
		}()
		p.guard("DescribeDisks", pairs)
	}
}

func TestSecretsStayOutOfResults(t *testing.T) {
	c := &Client{KeyID: "LTAIkey", Secret: "very+secret/", Token: "token=="}
	text := c.redact("key LTAIkey, secret very+secret/, " + percentEncode("very+secret/") + ", token " + percentEncode(percentEncode("token==")))
	for _, secret := range []string{"LTAIkey", "very", "token=", "token%"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q has %q", text, secret)
		}
	}
	if !strings.Contains(text, "***") {
		t.Error(text)
	}
}

func TestAPanicOfACheckIsNotSwallowed(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it is swallowed")
		}
	}()
	_, _ = Ask(t.Context(), one("A", "b", page, Nothing, func(*Probe) { panic("a mistake") }), &Client{}, nil)
}
