//go:build e2e

package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The calls of a claim's way to its volume, of its deletion, and of its way back to the scheduler.
var (
	making   = []moment{{call: writeJournal}, {call: "CreateVolume"}, {call: "CreateDisk"}, {call: "DescribeDisks"}, {call: "POST persistentvolumes"}}
	deleting = []moment{{call: writeJournal}, // takes the order out that leaned on the volume
		{call: "GET persistentvolumes"}, {call: "DeleteVolume"}, {call: "DeleteDisk"}, {call: "DELETE persistentvolumes"}, {call: "PATCH persistentvolumes"}}
	rescheduling = []moment{{call: "PATCH persistentvolumeclaims"}}
)

// phase is a part of a claim's life, with what may happen to the claim in a crash at one of its moments.
type phase struct {
	name    string
	moments []moment
	twists  []twist
}

// phasesOf are those of a claim's life with the provisioner in front of the driver. csi-provisioner keeps no journal; with it
// there is a moment for every call to ECS that the driver makes.
func (s *stage) phasesOf(ctx context.Context) ([]phase, error) {
	all := []phase{
		{"making", making, []twist{stays, claimGone, nodeGone}},
		{"deleting", deleting, []twist{stays}},
		{"rescheduling", rescheduling, []twist{stays, claimGone}},
	}
	if *which == ours {
		return all, nil
	}
	made, deleted, err := s.driverCalls(ctx)
	all[0].moments = slices.Concat([]moment{{call: "CreateVolume"}, {call: "POST persistentvolumes"}}, made)
	all[1].moments = slices.Concat([]moment{{call: "DeleteVolume"}, {call: "DELETE persistentvolumes"}, {call: "PATCH persistentvolumes"}}, deleted)
	all[2].moments = []moment{{call: "PUT persistentvolumeclaims"}}
	return all, err
}

// driverCalls are the calls to ECS while a volume is made, and while it is deleted, as one claim has them.
func (s *stage) driverCalls(ctx context.Context) (made, deleted []moment, err error) {
	s.passed()
	if err := errors.Join(s.claim(ctx, "watched", atOnce), s.settle(ctx)); err != nil {
		return nil, nil, err
	}
	made = ofDriver(s.passed(), "CreateVolume")
	if err := errors.Join(s.deleteAll(ctx), s.settle(ctx)); err != nil {
		return nil, nil, err
	}
	deleted = ofDriver(s.passed(), "DeleteVolume")
	if len(made) == 0 || len(deleted) == 0 {
		err = fmt.Errorf("the driver made a disk with %d calls to ECS, and deleted it with %d", len(made), len(deleted))
	}
	return made, deleted, err
}

// ofDriver numbers the driver's own among calls that have passed, from when the provisioner first made a call until that
// was answered. What the driver asks at other times has to do with no volume.
func ofDriver(passed []string, call string) (all []moment) {
	begin := slices.Index(passed, moment{call: call}.String())
	end := slices.Index(passed, moment{call: call, after: true}.String())
	if begin < 0 || end < begin {
		return nil
	}
	count := map[string]int{}
	for _, text := range passed[begin:end] {
		var m moment
		if _, err := fmt.Sscanf(text, "before %s #", &m.call); err == nil && m.byDriver() {
			count[m.call]++
			m.nth = count[m.call]
			all = append(all, m)
		}
	}
	return all
}

// twist is what happens to the claim while its provisioner is dead.
type twist int

const (
	stays twist = iota
	claimGone
	nodeGone
)

func (w twist) String() string { return [...]string{"", ", claim deleted", ", node deleted"}[w] }

// boundary is one crash.
type boundary struct {
	phase   string // "making", "deleting" or "rescheduling"
	moment  moment
	victims victims
	verdict verdict
	twist   twist
	again   bool // the provisioner is killed once more while it takes up what was under way
}

func (b boundary) String() string {
	text := fmt.Sprintf("%s: %s, %s killed%s", b.phase, b.moment, b.victims, b.twist)
	if b.victims == (victims{}) {
		text = fmt.Sprintf("%s: %s, lost%s", b.phase, b.moment, b.twist)
	}
	if b.again {
		text += ", and again while taking up"
	}
	return strings.ReplaceAll(text, " ", "_")
}

var everyVictim = []victims{{provisioner: true}, {driver: true}, {provisioner: true, driver: true}, {}}

// byDriver says whether the call is the driver's own.
func (m moment) byDriver() bool {
	return strings.HasSuffix(m.call, "Disk") || strings.HasSuffix(m.call, "Disks")
}

// boundaries are all crashes at one moment each. What a dead caller has sent before is lost with it; a caller that
// lives gets its answer, unless nobody is killed: then the message is what is lost.
func boundaries(phases []phase) []boundary {
	var all []boundary
	for _, phase := range phases {
		for _, m := range phase.moments {
			for _, after := range []bool{false, true} {
				m.after = after
				for _, v := range everyVictim {
					for _, w := range phase.twists {
						if w == nodeGone && !v.provisioner {
							continue // the node's own tests are in test/e2e
						}
						if *which == upstreams && phase.name == "rescheduling" && (w != stays || !v.provisioner) {
							continue // each takes minutes: see reachLimit
						}
						b := boundary{phase: phase.name, moment: m, victims: v, twist: w, verdict: lose}
						if v != (victims{}) && (m.byDriver() && !v.driver || !m.byDriver() && !v.provisioner) {
							b.verdict = pass
						}
						all = append(all, b)
					}
				}
			}
		}
	}
	for _, w := range []twist{stays, claimGone} {
		if w == claimGone && *which != ours {
			continue // csi-provisioner takes nothing up whose claim is gone
		}
		all = append(all, boundary{phase: "making", moment: moment{call: "CreateDisk", after: true}, victims: victims{true, true}, verdict: lose, twist: w, again: true})
	}
	return all
}

// quick are the boundaries of the short run: where a disk is made, named, saved and deleted.
func (b boundary) quick() bool {
	switch {
	case b.moment.call == "CreateDisk" && b.moment.after && b.victims.provisioner && !b.victims.driver && b.twist == claimGone,
		b.moment.call == "POST persistentvolumes" && !b.moment.after && b.victims.provisioner && b.victims.driver && b.twist == claimGone,
		b.moment.call == "DeleteDisk" && b.moment.after && b.victims.driver && !b.victims.provisioner,
		b.moment.call == "DELETE persistentvolumes" && b.moment.after && b.victims.provisioner && !b.victims.driver:
		return true
	}
	return false
}

func TestNoDiskIsLostByACrashBetweenTwoCalls(t *testing.T) {
	phases, err := shared.phasesOf(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for n, b := range boundaries(phases) {
		if testing.Short() && !b.quick() {
			continue
		}
		t.Run(b.String(), func(t *testing.T) {
			begin := time.Now()
			shared.passed()
			if err := shared.crashAt(t.Context(), b, fmt.Sprintf("b%d", n)); err != nil {
				t.Errorf("%v\nthe calls were:\n  %s", err, strings.Join(shared.passed(), "\n  "))
				shared.recover(t)
			}
			t.Logf("%.1f s", time.Since(begin).Seconds())
		})
	}
}

// recover makes the next test independent of one that failed.
func (s *stage) recover(t *testing.T) {
	ctx := context.Background()
	s.kill(victims{true, true})
	err := errors.Join(s.calm(ctx), s.deleteAll(ctx), s.restart(ctx, victims{driver: true}))
	if err == nil {
		err = s.Await(ctx, "claims and disks without a volume are gone", limit, func(ctx context.Context) (bool, error) {
			err := s.deleteStrays(ctx)
			return err == nil, err
		})
	}
	if err = errors.Join(err, s.restart(ctx, victims{provisioner: true}), s.settle(ctx)); err != nil {
		t.Fatalf("the stage could not be cleared: %v", err)
	}
}

// crashAt lets one claim come to the moment, kills, and holds what is left against what must be.
func (s *stage) crashAt(ctx context.Context, b boundary, claim string) error {
	h, err := s.begin(ctx, b, claim)
	if err != nil {
		return err
	}
	if err := s.reach(ctx, h); err != nil {
		return err
	}
	s.kill(b.victims)
	if err := s.turn(ctx, b.twist, claim); err != nil {
		return err
	}
	h.release(b.verdict)
	if err := s.comeBack(ctx, b); err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	if err := errors.Join(s.calm(ctx), s.deleteAll(ctx), s.settle(ctx)); err != nil {
		return err
	}
	return s.nothingTwice(ctx)
}

// reachLimit is within how long the programs come to a call: a claim is rescheduled after a minute and a half, if only that
// proves that no earlier call of csi-provisioner has made a disk.
const reachLimit = 150 * time.Second

// reach waits for a call to come to its gate.
func (s *stage) reach(ctx context.Context, h *held) error {
	return s.await(ctx, "the programs come to "+h.at, reachLimit, func(context.Context) error {
		select {
		case <-h.reached:
			return nil
		default:
			return errors.New("not yet")
		}
	})
}

// begin sets a claim on its way to the moment.
func (s *stage) begin(ctx context.Context, b boundary, claim string) (*held, error) {
	class := atOnce
	if b.twist == nodeGone || b.phase == "rescheduling" {
		class = waits
	}
	switch b.phase {
	case "deleting":
		if err := s.claim(ctx, claim, class); err != nil {
			return nil, err
		}
		if err := s.settle(ctx); err != nil {
			return nil, err
		}
		h := s.stopAt(b.moment)
		return h, s.deleteClaim(ctx, claim)
	case "rescheduling":
		return s.beginReschedule(ctx, b, claim)
	}
	h := s.stopAt(b.moment)
	return h, s.claim(ctx, claim, class)
}

// beginReschedule sells out the zone of the node that the scheduler has chosen.
func (s *stage) beginReschedule(ctx context.Context, b boundary, claim string) (*held, error) {
	first := s.stopAt(moment{call: s.firstStep()})
	if err := s.claim(ctx, claim, waits); err != nil {
		return nil, err
	}
	if err := s.reach(ctx, first); err != nil {
		return nil, err
	}
	h := s.stopAt(b.moment) // not sooner: the claim may have gone back before its first step, for the zone that was sold out last
	defer first.release(pass)
	node, err := s.selectedNode(ctx, claim)
	if err != nil {
		return nil, err
	}
	return h, s.Simulator.SellOut(ctx, s.ZoneOf(node))
}

// firstStep is the provisioner's first call for a claim.
func (s *stage) firstStep() string {
	if *which == ours {
		return writeJournal
	}
	return "CreateVolume"
}

func (s *stage) turn(ctx context.Context, w twist, claim string) error {
	switch w {
	case claimGone:
		return s.deleteClaim(ctx, claim)
	case nodeGone:
		node, err := s.selectedNode(ctx, claim)
		if err != nil {
			return err
		}
		return s.removeNode(ctx, node)
	}
	return nil
}

// comeBack starts the victims again, and kills the provisioner a second time if that is what the boundary is about.
func (s *stage) comeBack(ctx context.Context, b boundary) error {
	if !b.again {
		return s.restart(ctx, b.victims)
	}
	h := s.stopAt(moment{call: "CreateVolume"})
	if err := s.restart(ctx, b.victims); err != nil {
		return err
	}
	if err := s.reach(ctx, h); err != nil {
		return err
	}
	s.kill(victims{provisioner: true})
	h.release(lose)
	return s.restart(ctx, victims{provisioner: true})
}

// deleteAll deletes every claim and Pod.
func (s *stage) deleteAll(ctx context.Context) error {
	now := int64(0)
	return errors.Join(
		s.Client.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}),
		s.Client.CoreV1().PersistentVolumeClaims(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
}
