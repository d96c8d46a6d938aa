//go:build e2e

package e2e

import (
	"context"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/topology"
)

// labKeys sign as the lab's account.
type labKeys struct{}

func (labKeys) Get(context.Context) (ecs.Keys, error) {
	return ecs.Keys{AccessKeyID: lab.KeyID, AccessKeySecret: lab.Secret}, nil
}

// oldDisk makes a disk as the incumbent does that knows the cluster's ID: its token and its tags (facts of
// kubernetes-sigs/alibaba-cloud-csi-driver, CreateVolume).
func (s *scene) oldDisk(name, claim, zone string) disk.Disk {
	s.Helper()
	client, err := ecs.NewClient(ecs.Config{Region: s.Nodes[0].Region, Endpoint: s.Topodisk().Gate().URL(), Credentials: labKeys{}, ClusterID: "lab"})
	s.must(err)
	spec := disk.Spec{Name: name, Tags: disk.Tags{
		"k8s.aliyun.com": "true", disk.ClusterTag: "lab", "createdby": "alibabacloud-csi-plugin", "csi.alibabacloud.com/volume-name": name,
		disk.ClaimNameTag: claim, disk.ClaimNamespaceTag: s.namespace, "kubernetes.io/created-for/pv/name": name,
	}}
	made, err := client.Create(s.Context(), spec, disk.Attempt{Zone: disk.Zone(zone), Category: "cloud_essd", Level: "PL1", Size: 20}, disk.Token("n:"+name))
	s.must(err)
	return made
}

// oldVolume makes the claim and the PersistentVolume that the incumbent's provisioner would have left, bound to one
// another: named after the claim, with the private zone key and the provisioner's annotation and finalizer.
func (s *scene) oldVolume(claim, class, zone string, d disk.Disk) *corev1.PersistentVolume {
	s.Helper()
	name := "disk-" + claim + "-" + s.namespace
	s.claim(claim, class, "20Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = name })
	owner, err := s.Client.CoreV1().PersistentVolumeClaims(s.namespace).Get(s.Context(), claim, metav1.GetOptions{})
	s.must(err)
	volume, err := s.Client.CoreV1().PersistentVolumes().Create(s.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Finalizers: []string{"kubernetes.io/pv-protection", "external-provisioner.volume.kubernetes.io/finalizer"},
			Annotations: map[string]string{
				"pv.kubernetes.io/provisioned-by":                               "diskplugin.csi.alibabacloud.com",
				"volume.kubernetes.io/provisioner-deletion-secret-name":         "",
				"volume.kubernetes.io/provisioner-deletion-secret-namespace":    "",
				"csi.alibabacloud.com/annotation-of-a-provisioner-long-removed": "stays",
			},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, StorageClassName: class,
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: s.namespace, Name: claim, UID: owner.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "diskplugin.csi.alibabacloud.com", VolumeHandle: string(d.ID), FSType: "ext4",
				VolumeAttributes: map[string]string{
					"type": "cloud_essd", "performanceLevel": "PL1", "storage.kubernetes.io/csiProvisionerIdentity": "1755000000000-1-diskplugin.csi.alibabacloud.com",
					"csi.storage.k8s.io/pv/name": name, "a-key-that-nobody-knows": "x",
				},
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: topology.ZoneKey, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	return volume
}

// TestVolumesOfTheIncumbentLiveOn takes over what another driver of the same name has left behind: a Pod is scheduled by
// the private zone key, the disk is published, grown, cut and given back, and goes with its claim.
func TestVolumesOfTheIncumbentLiveOn(t *testing.T) {
	s := newScene(t)
	zone := s.Zones()[1]
	class := s.class(waits, map[string]string{"type": "cloud_essd", "fsType": "ext4", "performanceLevel": "PL1"})
	d := s.oldDisk("disk-old-"+s.namespace, "old", zone)
	volume := s.oldVolume("old", class, zone, d)
	s.pod("old", "old")
	pod, err := s.AwaitRunning(s.Context(), s.namespace, "old", late)
	s.must(err)
	if got := s.ZoneOf(pod.Spec.NodeName); got != zone {
		t.Fatalf("the Pod runs in %s, its disk is in %s", got, zone)
	}
	connection, err := grpc.NewClient("unix://"+s.Topodisk().Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	s.must(err)
	defer connection.Close()
	driver, id := csi.NewControllerClient(connection), string(d.ID)
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
	grown, err := driver.ControllerExpandVolume(s.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 30 << 30}, VolumeCapability: capability})
	if err != nil || grown.CapacityBytes != 30<<30 {
		t.Fatalf("expand: %v, %v", grown, err)
	}
	cut, err := driver.CreateSnapshot(s.Context(), &csi.CreateSnapshotRequest{SourceVolumeId: id, Name: "snapshot-of-" + s.namespace})
	if err != nil || cut.Snapshot.SourceVolumeId != id {
		t.Fatalf("snapshot: %v, %v", cut, err)
	}
	_, err = driver.DeleteSnapshot(s.Context(), &csi.DeleteSnapshotRequest{SnapshotId: cut.Snapshot.SnapshotId})
	s.must(err)
	_, err = driver.ControllerUnpublishVolume(s.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: node})
	s.must(err)
	s.must(s.Client.CoreV1().Pods(s.namespace).Delete(s.Context(), "old", metav1.DeleteOptions{}))
	s.deleteClaim("old")
	s.awaitNoVolume(volume.Name)
	disks, err := s.Simulator.Disks(s.Context(), s.namespace)
	s.must(err)
	if len(disks) > 0 {
		t.Errorf("the disk outlived its claim: %v", disks)
	}
}

// TestClaimThatTheIncumbentHadBegunGetsItsDisk switches in mid-create: the incumbent's process has made a disk and died
// before its PersistentVolume; the next one takes that disk and makes no second.
func TestClaimThatTheIncumbentHadBegunGetsItsDisk(t *testing.T) {
	s := newScene(t)
	s.Topodisk().StopProvisioner(lab.ProvisionerName)
	class := s.class(atOnce, map[string]string{"type": "cloud_essd", "zoneId": s.Zones()[0], "performanceLevel": "PL1"})
	s.claim("begun", class, "20Gi")
	claim, err := s.Client.CoreV1().PersistentVolumeClaims(s.namespace).Get(s.Context(), "begun", metav1.GetOptions{})
	s.must(err)
	d := s.oldDisk("disk-"+string(claim.UID), "begun", s.Zones()[0])
	s.must(s.Topodisk().StartProvisioner(s.Context(), lab.ProvisionerName, quickElection...))
	b, err := s.AwaitBound(s.Context(), s.namespace, "begun", late)
	s.must(err)
	if b.Disk() != string(d.ID) {
		t.Errorf("the claim got disk %s, the incumbent had made %s", b.Disk(), d.ID)
	}
	var own []ecssim.DiskState
	own, err = s.Simulator.Disks(s.Context(), s.namespace)
	s.must(err)
	if len(own) != 1 {
		t.Errorf("%d disks for one claim: %v", len(own), own)
	}
}
