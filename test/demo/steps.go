package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/simulator"
	"github.com/topodisk/topodisk/topology"
)

// Classes of the story. Both name the categories to try in their order.
const (
	waitingClass   = "waits-for-pod"
	immediateClass = "two-zones-at-once"
)

var categories = map[string]string{"type": "cloud_essd,cloud_auto"}

// firstConsumer: a Pod and a claim that waits for it.
func (s *story) firstConsumer(ctx context.Context) error {
	s.step("A Pod with a claim that waits for it (volumeBindingMode: WaitForFirstConsumer).",
		"The scheduler selects a node; topodisk makes the disk in that node's zone and names the volume after the disk.")
	if err := s.lab.MakeClass(ctx, lab.Class(waitingClass, storagev1.VolumeBindingWaitForFirstConsumer, categories)); err != nil {
		return err
	}
	if err := s.makePod(ctx, "notes", ""); err != nil {
		return err
	}
	node, err := s.awaitSelection(ctx, "notes")
	if err != nil {
		return err
	}
	d, err := s.awaitBound(ctx, "notes", patience)
	if err != nil {
		return err
	}
	if d.Zone != s.lab.ZoneOf(node) {
		return fmt.Errorf("%s was selected in %s, but the disk is in %s", node, s.lab.ZoneOf(node), d.Zone)
	}
	return s.awaitRunning(ctx, "notes", d)
}

// oneDiskPerZone: a StatefulSet whose Pods keep out of each other's zones.
func (s *story) oneDiskPerZone(ctx context.Context) error {
	s.step("A StatefulSet of three whose Pods keep out of each other's zones.", "Each gets a disk in a zone of its own.")
	set := lab.StatefulSet(namespace, "ledger", waitingClass, "20Gi", 3)
	if _, err := s.lab.Client.AppsV1().StatefulSets(namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return err
	}
	zones := map[string]string{}
	for n := range 3 {
		pod := fmt.Sprintf("ledger-%d", n)
		s.asked = append(s.asked, "data-"+pod)
		d, err := s.awaitBound(ctx, "data-"+pod, patience)
		if err != nil {
			return err
		}
		if err := s.awaitRunning(ctx, pod, d); err != nil {
			return err
		}
		if other, taken := zones[d.Zone]; taken {
			return fmt.Errorf("%s and %s are both in %s", pod, other, d.Zone)
		}
		zones[d.Zone] = pod
	}
	return nil
}

// immediate: claims that wait for nobody, in two of the three zones.
func (s *story) immediate(ctx context.Context) error {
	allowed := s.lab.Zones()[:2]
	s.step("Four claims of a class that binds at once (volumeBindingMode: Immediate) and allows two zones.",
		fmt.Sprintf("Nobody has selected a node, so topodisk spreads the disks over %s and %s.", allowed[0], allowed[1]))
	if err := s.lab.MakeClass(ctx, lab.Class(immediateClass, storagev1.VolumeBindingImmediate, categories, allowed...)); err != nil {
		return err
	}
	used := map[string]int{}
	for n := range 4 {
		if err := s.makeClaim(ctx, fmt.Sprintf("archive-%d", n), immediateClass); err != nil {
			return err
		}
	}
	for n := range 4 {
		d, err := s.awaitBound(ctx, fmt.Sprintf("archive-%d", n), patience)
		if err != nil {
			return err
		}
		used[d.Zone]++
	}
	if len(used) != 2 || used[allowed[0]] == 0 || used[allowed[1]] == 0 {
		return fmt.Errorf("the disks are in %v, want some in each of %v", used, allowed)
	}
	return nil
}

// nextCategory: a zone has sold out of the class's first category.
func (s *story) nextCategory(ctx context.Context) error {
	zone := s.lab.Zones()[0]
	s.step(fmt.Sprintf("%s sells out of cloud_essd, and a Pod has to run there.", zone),
		"The class lists cloud_essd,cloud_auto: the next category of the list is used, in the same zone.")
	if err := s.lab.Simulator.SetStock(ctx, zone, "cloud_essd", simulator.SoldOut); err != nil {
		return err
	}
	if err := s.makePod(ctx, "reports", zone); err != nil {
		return err
	}
	d, err := s.awaitBound(ctx, "reports", patience)
	if err != nil {
		return err
	}
	if d.Category != "cloud_auto" || d.Zone != zone {
		return fmt.Errorf("the disk is %s, want cloud_auto in %s", diskFacts(d), zone)
	}
	if err := s.awaitRunning(ctx, "reports", d); err != nil {
		return err
	}
	return s.lab.Simulator.Restock(ctx, zone)
}

// anotherZone: the zone that the scheduler has selected sells out of everything.
func (s *story) anotherZone(ctx context.Context) error {
	s.step("The zone of the selected node sells out of every category while the disk is being asked for.",
		"topodisk takes the selected node back and tells the scheduler that the zone has nothing to give; the",
		"scheduler, to whom all other nodes are equal, selects again until it comes upon a zone that sells disks.")
	// The call is held up for as long as it takes to see what was selected and to empty that zone.
	hold := ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultDelay, DelayBefore: 1500 * time.Millisecond, Count: 1}
	if err := s.lab.Simulator.AddFault(ctx, hold); err != nil {
		return err
	}
	if err := s.makePod(ctx, "orders", ""); err != nil {
		return err
	}
	node, err := s.awaitSelection(ctx, "orders")
	if err != nil {
		return err
	}
	soldOut := s.lab.ZoneOf(node)
	if err := s.lab.Simulator.SellOut(ctx, soldOut); err != nil {
		return err
	}
	s.fact("%s has sold out of everything", soldOut)
	d, err := s.awaitBound(ctx, "orders", reschedulePatience)
	if err != nil {
		return err
	}
	if d.Zone == soldOut {
		return fmt.Errorf("disk %s was made in %s, which has sold out", d.ID, soldOut)
	}
	if err := s.awaitRunning(ctx, "orders", d); err != nil {
		return err
	}
	s.tellSelections("orders")
	if err := s.tellEvents(ctx, "orders"); err != nil {
		return err
	}
	if err := s.lab.Simulator.ClearFaults(ctx); err != nil {
		return err
	}
	return s.lab.Simulator.Restock(ctx, soldOut)
}

// tellSelections says how many tries a claim took, and which.
func (s *story) tellSelections(claim string) {
	var tries []string
	for _, node := range s.selections.Of(claim) {
		if node != "" {
			tries = append(tries, fmt.Sprintf("%s (%s)", node, s.lab.ZoneOf(node)))
		}
	}
	s.fact("it took %d tries: %v", len(tries), tries)
}

// tellEvents prints the events of a claim as kubectl describe does, once the last of them is there.
func (s *story) tellEvents(ctx context.Context, claim string) error {
	var events []corev1.Event
	err := s.lab.Await(ctx, "the claim has its last event", patience, func(ctx context.Context) (bool, error) {
		var err error
		events, err = s.lab.Events(ctx, namespace, claim)
		return slices.ContainsFunc(events, func(e corev1.Event) bool { return e.Reason == "ProvisioningSucceeded" }), err
	})
	if err != nil {
		return err
	}
	s.fact("its events:")
	for _, e := range events {
		if e.InvolvedObject.Kind == "PersistentVolumeClaim" {
			fmt.Printf("             %-7s %s: %s\n", e.Type, e.Reason, e.Message)
		}
	}
	return nil
}

// deletion: everything goes, and the disks with it.
func (s *story) deletion(ctx context.Context) error {
	s.step("All Pods and claims are deleted.", "The class says reclaimPolicy: Delete, so the volumes and the disks go, too.")
	client, all := s.lab.Client, metav1.ListOptions{}
	if err := client.AppsV1().StatefulSets(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all); err != nil {
		return err
	}
	if err := client.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all); err != nil {
		return err
	}
	if err := client.CoreV1().PersistentVolumeClaims(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all); err != nil {
		return err
	}
	err := s.lab.Await(ctx, "every PersistentVolume is gone", 2*patience, func(ctx context.Context) (bool, error) {
		volumes, err := s.volumes(ctx)
		if err == nil && len(volumes) > 0 {
			err = fmt.Errorf("%d are left, %s is %s", len(volumes), volumes[0].Name, volumes[0].Status.Phase)
		}
		return err == nil, err
	})
	if err != nil {
		return err
	}
	disks, err := s.lab.Simulator.Disks(ctx, "")
	if err != nil {
		return err
	}
	for _, b := range s.bound {
		if !slices.ContainsFunc(disks, func(d ecssim.DiskState) bool { return d.ID == b.Disk() }) {
			s.deleted++
		}
	}
	s.fact("%d PersistentVolumes and %d disks are gone", len(s.bound), s.deleted)
	return nil
}

// makeClaim makes a claim of 20 GiB and notes that a disk is asked for.
func (s *story) makeClaim(ctx context.Context, name, class string) error {
	s.asked = append(s.asked, name)
	return s.lab.MakeClaim(ctx, lab.Claim(namespace, name, class, "20Gi"))
}

// makePod makes a Pod and a claim of the same name; with a zone, the Pod runs nowhere else.
func (s *story) makePod(ctx context.Context, name, zone string) error {
	if err := s.makeClaim(ctx, name, waitingClass); err != nil {
		return err
	}
	pod := lab.Pod(namespace, name, name)
	if zone != "" {
		pod.Spec.NodeSelector = map[string]string{topology.WellKnownZoneKey: zone}
	}
	return s.lab.MakePod(ctx, pod)
}
