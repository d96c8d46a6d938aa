package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/topology"
)

const (
	namespace = "demo"
	// patience is how long anything may take that takes a second or two.
	patience = 30 * time.Second
	// reschedulePatience is for the scheduler's random choices and its back-off between them, up to 10 s each.
	reschedulePatience = 90 * time.Second
)

// story is what has happened so far.
type story struct {
	lab        *lab.Lab
	selections *lab.Selections
	number     int       // of the step
	begin      time.Time // of the step
	asked      []string  // claims made
	bound      []lab.Bound
	deleted    int
}

// tell tells the story and returns its last line.
func tell(ctx context.Context, l *lab.Lab) (string, error) {
	if err := l.MakeNamespace(ctx, namespace); err != nil {
		return "", err
	}
	selections, err := l.FollowSelections(ctx, namespace)
	if err != nil {
		return "", err
	}
	s := &story{lab: l, selections: selections}
	begin := time.Now()
	for _, step := range []func(context.Context) error{
		s.firstConsumer, s.oneDiskPerZone, s.immediate, s.nextCategory, s.anotherZone, s.deletion,
	} {
		if err := step(ctx); err != nil {
			selections.Stop() //nolint:errcheck // the step's error says more
			return "", fmt.Errorf("step %d: %w", s.number, err)
		}
	}
	if err := selections.Stop(); err != nil {
		return "", err
	}
	fmt.Printf("\nThe story took %.1f s.\n", time.Since(begin).Seconds())
	return s.settle(ctx)
}

// settle holds the books against each other: claims, volumes, the simulator's ledger.
func (s *story) settle(ctx context.Context) (string, error) {
	state, err := s.lab.Simulator.State(ctx)
	if err != nil {
		return "", err
	}
	volumes, err := s.volumes(ctx)
	if err != nil {
		return "", err
	}
	leaked := slices.DeleteFunc(state.Disks, func(d ecssim.DiskState) bool {
		return slices.ContainsFunc(volumes, func(pv corev1.PersistentVolume) bool { return pv.Spec.CSI.VolumeHandle == d.ID })
	})
	made := state.Calls["CreateDisk"][""]
	refused := 0
	for code, n := range state.Calls["CreateDisk"] {
		if code != "" {
			refused += n
		}
	}
	fmt.Printf("The simulated ECS made %d disks in %d CreateDisk calls, refused %d for want of stock, and deleted %d disks.\n\n",
		state.DisksMade, made, refused, state.DisksDeleted)
	rescheduled := len(s.selections.Rescheduled())
	line := fmt.Sprintf("demo: %d claims bound, %d rescheduled, %d deleted, %d disks leaked", len(s.bound), rescheduled, s.deleted, len(leaked))
	var wrong []string
	for _, check := range []struct {
		ok  bool
		why string
	}{
		{len(s.bound) == len(s.asked), fmt.Sprintf("%d claims were made", len(s.asked))},
		{rescheduled >= 1, "no claim was rescheduled"},
		{s.deleted == len(s.asked), fmt.Sprintf("%d disks were to be deleted", len(s.asked))},
		{len(leaked) == 0, fmt.Sprintf("these disks have no PersistentVolume: %v", ids(leaked))},
		{made == len(s.asked) && state.DisksMade == len(s.asked),
			fmt.Sprintf("%d disks were asked for, %d calls made %d", len(s.asked), made, state.DisksMade)},
	} {
		if !check.ok {
			wrong = append(wrong, check.why)
		}
	}
	if len(wrong) > 0 {
		return "", fmt.Errorf("%s; wrong is: %s", line, strings.Join(wrong, "; "))
	}
	return line, nil
}

func ids(disks []ecssim.DiskState) []string {
	var list []string
	for _, d := range disks {
		list = append(list, d.ID)
	}
	return list
}

// volumes are the PersistentVolumes of the lab's driver.
func (s *story) volumes(ctx context.Context) ([]corev1.PersistentVolume, error) {
	list, err := s.lab.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(pv corev1.PersistentVolume) bool {
		return pv.Spec.CSI == nil || pv.Spec.CSI.Driver != lab.DriverName
	}), nil
}

// step announces what comes.
func (s *story) step(title string, explanation ...string) {
	s.number++
	s.begin = time.Now()
	fmt.Printf("\n%d. %s\n", s.number, title)
	for _, line := range explanation {
		fmt.Printf("   %s\n", line)
	}
}

// fact reports what has happened, with the time since the step began.
func (s *story) fact(format string, args ...any) {
	fmt.Printf("  %6d ms  %s\n", time.Since(s.begin).Milliseconds(), fmt.Sprintf(format, args...))
}

// diskFacts says what a disk is.
func diskFacts(d ecssim.DiskState) string {
	level := ""
	if d.PerformanceLevel != "" {
		level = " " + d.PerformanceLevel
	}
	return fmt.Sprintf("%s%s, %d GiB, in %s", d.Category, level, d.Size, d.Zone)
}

// diskOf finds the disk that was made for a claim, by its tags.
func (s *story) diskOf(ctx context.Context, claim string) (*ecssim.DiskState, error) {
	disks, err := s.lab.Simulator.Disks(ctx, namespace)
	if err != nil {
		return nil, err
	}
	for _, d := range disks {
		if d.Tags[disk.ClaimNameTag] == claim {
			return &d, nil
		}
	}
	return nil, nil
}

// awaitBound waits for the disk and the binding of a claim and checks that they are what the claim asked for.
func (s *story) awaitBound(ctx context.Context, claim string, limit time.Duration) (ecssim.DiskState, error) {
	b, err := s.lab.AwaitBound(ctx, namespace, claim, limit)
	if err != nil {
		return ecssim.DiskState{}, err
	}
	s.bound = append(s.bound, b)
	d, err := s.diskOf(ctx, claim)
	switch zones := topology.ZonesOfVolume(b.Volume); {
	case err != nil:
		return ecssim.DiskState{}, err
	case d == nil:
		return ecssim.DiskState{}, fmt.Errorf("claim %s is bound to %s but ECS has no disk for it", claim, b.Volume.Name)
	case d.ID != b.Disk() || d.ID != b.Volume.Name:
		return *d, fmt.Errorf("the disk of claim %s is %s, its volume %s names %s", claim, d.ID, b.Volume.Name, b.Disk())
	case !slices.Equal(zones, []string{d.Zone}):
		return *d, fmt.Errorf("disk %s is in %s, its volume says %v", d.ID, d.Zone, zones)
	}
	s.fact("disk and PersistentVolume %s for claim %s: %s", d.ID, claim, diskFacts(*d))
	return *d, nil
}

// awaitRunning waits until a Pod runs and checks that it does so in the zone of its disk.
func (s *story) awaitRunning(ctx context.Context, pod string, d ecssim.DiskState) error {
	running, err := s.lab.AwaitRunning(ctx, namespace, pod, patience)
	if err != nil {
		return err
	}
	if zone := s.lab.ZoneOf(running.Spec.NodeName); zone != d.Zone {
		return fmt.Errorf("a Pod runs elsewhere than its disk: %s on %s in %s, its disk is in %s", pod, running.Spec.NodeName, zone, d.Zone)
	}
	s.fact("Pod %s is Running on %s", pod, running.Spec.NodeName)
	return nil
}

// awaitSelection waits until the scheduler has selected a node for a claim.
func (s *story) awaitSelection(ctx context.Context, claim string) (node string, err error) {
	err = s.lab.Await(ctx, "the scheduler selects a node for claim "+claim, patience, func(context.Context) (bool, error) {
		if seen := s.selections.Of(claim); len(seen) > 0 {
			node = seen[0]
		}
		return node != "", nil
	})
	if err == nil {
		s.fact("the scheduler selected %s in %s for claim %s", node, s.lab.ZoneOf(node), claim)
	}
	return node, err
}
