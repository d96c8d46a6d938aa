//go:build e2e

package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

// quickSeeds is how many schedules the short run has.
const quickSeeds = 2

func TestNothingIsLostUnderARandomSchedule(t *testing.T) {
	first, last := uint64(1), uint64(*seeds)
	switch {
	case *oneSeed != 0:
		first, last = *oneSeed, *oneSeed
	case testing.Short():
		last = quickSeeds
	}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprintf("seed_%d", seed), func(t *testing.T) {
			begin := time.Now()
			shared.passed()
			p := newPlay(shared, seed)
			if err := p.run(t.Context()); err != nil {
				t.Errorf("%v\nit went like this:\n  %s\nthe calls were:\n  %s", err, strings.Join(p.told, "\n  "), strings.Join(shared.passed(), "\n  "))
				shared.recover(t)
			}
			t.Logf("%.1f s, %d crashes", time.Since(begin).Seconds(), p.crashes)
		})
	}
}

// play is one random schedule: claims come and go, the cloud misbehaves, nodes vanish, and the programs are killed at
// moments chosen by lot. One seed always chooses the same; what the programs make of it depends on the machine.
type play struct {
	*stage
	*rand.Rand
	seed    uint64
	moments []moment // to be killed at
	claims  []string // that are there
	made    int
	late    []*held // calls of dead programs that arrive when others are at work already
	told    []string
	crashes int
}

func newPlay(s *stage, seed uint64) *play {
	moments := slices.Concat(making, deleting, rescheduling, []moment{{call: readJournal}})
	if *which == upstreams {
		moments = slices.Concat(calls("CreateVolume", "CreateDisk", "DescribeDisks", "POST persistentvolumes"),
			calls("DeleteVolume", "DeleteDisk", "DELETE persistentvolumes", "PATCH persistentvolumes", "PUT persistentvolumeclaims"))
	}
	return &play{stage: s, Rand: rand.New(rand.NewPCG(seed, 2026)), seed: seed, moments: moments}
}

func calls(names ...string) (all []moment) {
	for _, name := range names {
		all = append(all, moment{call: name})
	}
	return all
}

func (p *play) say(format string, args ...any) { p.told = append(p.told, fmt.Sprintf(format, args...)) }

func (p *play) run(ctx context.Context) error {
	for range 2 + p.IntN(3) {
		if err := p.act(ctx); err != nil {
			return err
		}
	}
	for range 1 + p.IntN(3) {
		if err := p.crash(ctx); err != nil {
			return err
		}
	}
	if err := p.quiet(ctx); err != nil {
		return err
	}
	p.say("everything is deleted")
	if err := errors.Join(p.deleteAll(ctx), p.settle(ctx)); err != nil {
		return err
	}
	return p.nothingTwice(ctx)
}

// quiet ends all trouble, and holds what is left against what must be.
func (p *play) quiet(ctx context.Context) error {
	for _, h := range p.late {
		h.release(pass)
	}
	p.say("all trouble ends")
	if err := p.calm(ctx); err != nil {
		return err
	}
	return p.settle(ctx)
}

// act is something that a user, an operator or the cloud does.
func (p *play) act(ctx context.Context) error {
	switch n := p.IntN(10); {
	case n < 4 || len(p.claims) == 0:
		return p.makeClaim(ctx)
	case n < 6:
		return p.loseClaim(ctx)
	case n < 7:
		return p.loseNode(ctx)
	case n < 8:
		zone := p.Zones()[p.IntN(len(p.Zones()))]
		p.say("%s sells out", zone)
		return p.Simulator.SellOut(ctx, zone)
	default:
		return p.spoil(ctx)
	}
}

func (p *play) makeClaim(ctx context.Context) error {
	p.made++
	name := fmt.Sprintf("s%d-%d", p.seed, p.made)
	class := []string{atOnce, waits, waits}[p.IntN(3)]
	p.claims = append(p.claims, name)
	p.say("claim %s of class %s is made", name, class)
	return p.claim(ctx, name, class)
}

func (p *play) loseClaim(ctx context.Context) error {
	i := p.IntN(len(p.claims))
	name := p.claims[i]
	p.claims = slices.Delete(p.claims, i, i+1)
	p.say("claim %s is deleted", name)
	return p.deleteClaim(ctx, name)
}

// loseNode deletes the node that a claim is to go to, or any.
func (p *play) loseNode(ctx context.Context) error {
	node := p.Nodes[p.IntN(len(p.Nodes))].Name
	if selected, err := p.selectedNode(ctx, p.claims[p.IntN(len(p.claims))]); err == nil && selected != "" {
		node = selected
	}
	p.say("node %s is deleted", node)
	return p.removeNode(ctx, node)
}

// spoils are what the cloud does wrong, a few times each.
var spoils = []string{ecssim.FaultLostReply, ecssim.FaultLostReply, ecssim.FaultLostRequest, ecssim.FaultThrottle, ecssim.FaultErrorAfter,
	ecssim.FaultTruncated, ecssim.FaultEmpty, ecssim.FaultHTML, ecssim.FaultReset, ecssim.FaultDuplicate, ecssim.FaultBrownOut}

func (p *play) spoil(ctx context.Context) error {
	f := ecssim.Fault{
		Action: []string{"CreateDisk", "CreateDisk", "DescribeDisks", "DeleteDisk"}[p.IntN(4)],
		Do:     spoils[p.IntN(len(spoils))], Count: 1 + p.IntN(2), Skip: p.IntN(2),
	}
	p.say("%s: %s, %d times after %d", f.Action, f.Do, f.Count, f.Skip)
	return p.Simulator.AddFault(ctx, f)
}

// crash waits for a moment chosen by lot, for a second or two, kills, lets something happen, and starts again.
func (p *play) crash(ctx context.Context) error {
	m := p.moments[p.IntN(len(p.moments))]
	m.after, m.nth = p.IntN(2) == 0, 1+p.IntN(2)
	v := everyVictim[p.IntN(len(everyVictim))]
	h := p.stopAt(m)
	if err := p.act(ctx); err != nil {
		return err
	}
	p.wait(ctx, h)
	p.kill(v)
	p.crashes++
	for range p.IntN(3) {
		if err := p.act(ctx); err != nil {
			return err
		}
	}
	switch end := p.IntN(3); {
	case end == 0:
		p.say("%s goes on", m.call)
		h.release(pass)
	case end == 1 && v != (victims{}):
		p.say("%s is late", m.call)
		p.late = append(p.late, h)
	default:
		p.say("%s is lost", m.call)
		h.release(lose)
	}
	return p.restart(ctx, v)
}

// wait gives the moment a second or two to come.
func (p *play) wait(ctx context.Context, h *held) {
	select {
	case <-h.reached:
		p.say("%s: killed", h.at)
	case <-time.After(time.Duration(500+p.IntN(1500)) * time.Millisecond):
		p.forget(h)
		p.say("%s has not come: killed all the same", h.at)
	case <-ctx.Done():
	}
}
