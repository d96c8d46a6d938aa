//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/aliyun"
	"github.com/topodisk/topodisk/test/lab/simulator"
	"github.com/topodisk/topodisk/topology"
)

// oldDisk makes a disk as the incumbent does.
func (s *scene) oldDisk(name, claim, zone string) disk.Disk {
	s.Helper()
	made, err := s.newIncumbent().create(s.Context(), name, s.Namespace, claim,
		disk.Attempt{Zone: disk.Zone(zone), Category: "cloud_essd", Level: "PL1", Size: 20})
	s.Must(err)
	return made
}

// adoptDisks tags the disks of the scene that have no tag of a cluster for the lab's, by the command that topodisk prints.
func (s *scene) adoptDisks() {
	s.Helper()
	disks, err := s.Simulator.Disks(s.Context(), s.Namespace)
	s.Must(err)
	cli := aliyun.CLI{Endpoint: s.Simulator.URL, KeyID: simulator.OperatorID, Secret: simulator.OperatorSecret}
	for _, d := range disks {
		if d.Tags[disk.OwnerTag] == "" {
			s.Must(cli.Run(s.Context(), disk.TagCommands(s.Nodes[0].Region, "disk", simulator.ClusterID, d.ID)[0].String()))
		}
	}
}

// oldVolume makes the claim and the PersistentVolume that the incumbent's provisioner would have left, bound to one
// another: named after the claim, with the private zone key and the provisioner's annotation and finalizer.
func (s *scene) oldVolume(claim, class, zone string, d disk.Disk) *corev1.PersistentVolume {
	s.Helper()
	name := "disk-" + claim + "-" + s.Namespace
	s.Claim(claim, class, "20Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = name })
	owner, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(s.Context(), claim, metav1.GetOptions{})
	s.Must(err)
	volume, err := s.Client.CoreV1().PersistentVolumes().Create(s.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Finalizers: []string{"kubernetes.io/pv-protection", "external-provisioner.volume.kubernetes.io/finalizer"},
			Annotations: map[string]string{
				"pv.kubernetes.io/provisioned-by":                               "diskplugin.csi.alibabacloud.com",
				"csi.alibabacloud.com/annotation-of-a-provisioner-long-removed": "stays",
			},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, StorageClassName: class,
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: s.Namespace, Name: claim, UID: owner.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "diskplugin.csi.alibabacloud.com", VolumeHandle: string(d.ID), FSType: "ext4",
				VolumeAttributes: map[string]string{
					"type": "cloud_essd", "performanceLevel": "PL1", "csi.storage.k8s.io/pv/name": name, "a-key-that-nobody-knows": "x",
					"storage.kubernetes.io/csiProvisionerIdentity": "1755000000000-1-diskplugin.csi.alibabacloud.com",
				},
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: topology.ZoneKey, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	s.Must(err)
	return volume
}

// TestVolumesOfTheIncumbentLiveOn takes over what another driver of the same name has left behind: a Pod is scheduled by
// the private zone key, the disk is published, grown, cut and given back, and goes with its claim.
func TestVolumesOfTheIncumbentLiveOn(t *testing.T) {
	s := newScene(t)
	zone := s.Zones()[1]
	class := s.Class(waits, map[string]string{"type": "cloud_essd", "fsType": "ext4", "performanceLevel": "PL1"})
	d := s.oldDisk("disk-old-"+s.Namespace, "old", zone)
	volume := s.oldVolume("old", class, zone, d)
	s.adoptDisks()
	s.Pod("old", "old")
	pod, err := s.AwaitRunning(s.Context(), s.Namespace, "old", late)
	s.Must(err)
	if got := s.ZoneOf(pod.Spec.NodeName); got != zone {
		t.Fatalf("the Pod runs in %s, its disk is in %s", got, zone)
	}
	driver, id := s.driver(), string(d.ID)
	node := ""
	for _, n := range s.Nodes {
		if n.Name == pod.Spec.NodeName {
			node = n.Instance
		}
	}
	capability := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
	}
	published, err := driver.ControllerPublishVolume(s.Context(), &csi.ControllerPublishVolumeRequest{
		VolumeId: id, NodeId: node, VolumeCapability: capability, VolumeContext: volume.Spec.CSI.VolumeAttributes,
	})
	if err != nil || published.PublishContext["serialNumber"] == "" {
		t.Fatalf("publish: %v, %v", published, err)
	}
	grown, err := driver.ControllerExpandVolume(s.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: id,
		CapacityRange: &csi.CapacityRange{RequiredBytes: 30 << 30}, VolumeCapability: capability})
	if err != nil || grown.CapacityBytes != 30<<30 {
		t.Fatalf("expand: %v, %v", grown, err)
	}
	cut, err := driver.CreateSnapshot(s.Context(), &csi.CreateSnapshotRequest{SourceVolumeId: id, Name: "snapshot-of-" + s.Namespace})
	if err != nil || cut.Snapshot.SourceVolumeId != id {
		t.Fatalf("snapshot: %v, %v", cut, err)
	}
	_, err = driver.DeleteSnapshot(s.Context(), &csi.DeleteSnapshotRequest{SnapshotId: cut.Snapshot.SnapshotId})
	s.Must(err)
	_, err = driver.ControllerUnpublishVolume(s.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: node})
	s.Must(err)
	s.Must(s.Client.CoreV1().Pods(s.Namespace).Delete(s.Context(), "old", metav1.DeleteOptions{}))
	s.deleteClaim("old")
	s.awaitNoVolume(volume.Name)
	disks, err := s.Simulator.Disks(s.Context(), s.Namespace)
	s.Must(err)
	if len(disks) > 0 {
		t.Errorf("the disk outlived its claim: %v", disks)
	}
}

// TestClaimThatTheIncumbentHadBegunGetsItsDisk switches in mid-create: the incumbent's process has made a disk and died
// before its PersistentVolume; the next one makes no second, says how to tag that disk, and then takes it.
func TestClaimThatTheIncumbentHadBegunGetsItsDisk(t *testing.T) {
	s := newScene(t)
	s.stopProvisioner()
	class := s.Class(atOnce, map[string]string{"type": "cloud_essd", "zoneId": s.Zones()[0], "performanceLevel": "PL1"})
	s.Claim("begun", class, "20Gi")
	claim, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(s.Context(), "begun", metav1.GetOptions{})
	s.Must(err)
	d := s.oldDisk("disk-"+string(claim.UID), "begun", s.Zones()[0])
	s.Must(s.Topodisk.StartProvisioner(s.Context(), lab.ProvisionerName, quickElection...))
	s.awaitEvent("begun", soon, "aliyun ecs TagResources", string(d.ID))
	s.adoptDisks()
	b, err := s.AwaitBound(s.Context(), s.Namespace, "begun", late)
	s.Must(err)
	if b.Disk() != string(d.ID) {
		t.Errorf("the claim got disk %s, the incumbent had made %s", b.Disk(), d.ID)
	}
	var own []ecssim.DiskState
	own, err = s.Simulator.Disks(s.Context(), s.Namespace)
	s.Must(err)
	if len(own) != 1 {
		t.Errorf("%d disks for one claim: %v", len(own), own)
	}
}

// crowd is how many claims are provisioned while a cluster is switched, phase how many disks each provisioner makes before
// it is its turn to go, and atATime how many it works on.
const crowd, phase, atATime = 140, 20, "--worker-threads=25"

// TestACrowdInMidCreateIsSwitchedOverAndBack switches the cluster to topodisk while the incumbent makes disks, and back while
// topodisk does, as docs/takeover.md says. Half of the claims have Pods. ECS takes two seconds for every disk, so that each
// provisioner goes with calls under way.
func TestACrowdInMidCreateIsSwitchedOverAndBack(t *testing.T) {
	s := newScene(t)
	leaders, other := s.followLeaders(), s.newIncumbent()
	s.stopProvisioner()
	s.Cleanup(func() {
		other.stop()
		s.restartController()
	})
	before, err := s.Simulator.State(s.Context())
	s.Must(err)
	s.slowCreates()
	other.start(atATime)
	s.WaitFor("the incumbent leads", soon, func(context.Context) (bool, error) { return len(leaders.list()) > 0, nil })
	s.Must(s.Topodisk.StartProvisioner(s.Context(), lab.ProvisionerName, append(slices.Clone(quickElection), atATime)...)) // it waits
	names := s.crowd()
	unheard := 0
	s.WaitFor(fmt.Sprintf("the incumbent saves %d volumes, and hasn't heard of every disk", phase), late, func(context.Context) (bool, error) {
		unheard = s.unheard()
		return unheard > 0 && s.saved("disk-") >= phase, nil
	})
	other.stop()
	s.WaitFor(fmt.Sprintf("topodisk asks for %d disks", phase), late, func(context.Context) (bool, error) {
		s.adoptDisks()
		return len(s.askedByTopodisk()) >= phase, nil
	})

	s.drain(0)
	other.start(atATime)
	for _, name := range names {
		_, err := s.AwaitBound(s.Context(), s.Namespace, name, late)
		s.Must(err)
	}
	t.Logf("the incumbent saved %d volumes and left %d disks unheard, topodisk saved %d", s.saved("disk-"), unheard, s.saved("d-"))
	s.checkCrowd(names, before.DisksMade)
	s.checkTurns(leaders.list(), other.asked())
	other.stop()
	s.adoptDisks() // topodisk clears up
}

// slowCreates has ECS take two seconds for every disk: for half of them until it is made, for the others until it tells.
func (s *scene) slowCreates() {
	s.Helper()
	s.fault(ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultDelay, DelayBefore: 2 * time.Second, Percent: 50})
	s.fault(ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultDelay, DelayAfter: 2 * time.Second})
}

// crowd makes claims, half of them with Pods, and returns their names.
func (s *scene) crowd() (names []string) {
	s.Helper()
	parameters := map[string]string{"type": "cloud_essd"}
	now, later := s.Class(atOnce, parameters), s.Class(waits, parameters)
	for n := range crowd {
		name := fmt.Sprintf("crowd-%d", n)
		names = append(names, name)
		if n%2 == 0 {
			s.Claim(name, now, "20Gi")
		} else {
			s.podWithClaim(name, later, "20Gi")
		}
	}
	return names
}

// unheard is how many disks have no volume.
func (s *scene) unheard() int {
	s.Helper()
	disks, err := s.Simulator.Disks(s.Context(), s.Namespace)
	s.Must(err)
	return len(disks) - s.saved("d")
}

// askedByTopodisk returns when topodisk asked ECS for a disk that it doesn't take over: one call a disk.
func (s *scene) askedByTopodisk() (asked []time.Time) {
	s.Helper()
	calls, err := s.Simulator.Calls(s.Context(), "CreateDisk")
	s.Must(err)
	for _, c := range calls {
		if tags := tagsOf(c); tags[disk.ClaimNamespaceTag] == s.Namespace && tags[disk.CreatedByTag] == disk.Creator {
			asked = append(asked, c.Time)
		}
	}
	return asked
}

// drain ends topodisk's controller when it has ended what is under way, and checks how many orders are left in the journal.
func (s *scene) drain(left int) {
	s.Helper()
	s.Must(s.Topodisk.DrainController())
	if entries := s.journal(); len(entries) != left {
		s.Fatalf("the journal has %d entries after the end, want %d: those of claims %v", len(entries), left, slices.Sorted(maps.Keys(entries)))
	}
}

// checkCrowd checks that every claim has a disk of its own, and that no other was made.
func (s *scene) checkCrowd(names []string, madeBefore int) {
	s.Helper()
	state, err := s.Simulator.State(s.Context())
	s.Must(err)
	if made := state.DisksMade - madeBefore; made != len(names) {
		s.Errorf("%d disks were made for %d claims", made, len(names))
	}
	volumes, err := s.volumes(s.Context())
	s.Must(err)
	if len(volumes) != len(names) {
		s.Errorf("%d volumes were made for %d claims", len(volumes), len(names))
	}
	owners := map[string]string{}
	for _, pv := range volumes {
		d := s.onlyDisk(pv.Spec.ClaimRef.Name)
		if owners[d.ID] != "" || pv.Spec.CSI.VolumeHandle != d.ID {
			s.Errorf("volume %s of claim %s names disk %s, the claim's is %s, which claim %q has, too", pv.Name, pv.Spec.ClaimRef.Name, pv.Spec.CSI.VolumeHandle, d.ID, owners[d.ID])
		}
		owners[d.ID] = pv.Spec.ClaimRef.Name
	}
}

// checkTurns checks that the incumbent, topodisk and the incumbent led, each once, and that each asked ECS for disks while
// it led: asked is when the incumbent did, and ECS knows when it carried out what topodisk asked for, which it has awaited.
func (s *scene) checkTurns(reigns []reign, asked []time.Time) {
	s.Helper()
	ours := func(r reign) bool { return strings.Contains(r.holder, "_") } // csi-provisioner goes by its host's name alone
	if len(reigns) != 3 || ours(reigns[0]) || !ours(reigns[1]) || ours(reigns[2]) {
		s.Fatalf("those who led were %v; want the incumbent, topodisk and the incumbent", reigns)
	}
	within := func(at time.Time) bool { return at.After(reigns[1].from) && at.Before(reigns[2].from) }
	for _, at := range asked {
		if within(at) {
			s.Errorf("the incumbent asked for a disk at %s, while topodisk led: %v", at, reigns)
		}
	}
	own := s.askedByTopodisk()
	for _, at := range own {
		if !within(at) {
			s.Errorf("topodisk asked for a disk at %s, while the incumbent led: %v", at, reigns)
		}
	}
	if len(own) == 0 || len(asked) == 0 {
		s.Errorf("topodisk asked for %d disks, the incumbent for %d", len(own), len(asked))
	}
}
