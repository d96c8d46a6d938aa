//go:build e2enodes

package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/simulator"
	"github.com/topodisk/topodisk/test/labtest"
)

// volume is a claim, and how Pods on a node have it and find its data.
type volume struct {
	*scene
	claim, node string
	change      func(*corev1.Pod)
	file        string // where the data begins
	sum         string
}

// dataSize is that of a volume's data, in MiB.
const dataSize = 5

func (s *scene) newVolume(claim string) *volume {
	return &volume{scene: s, claim: claim, node: here, change: func(*corev1.Pod) {}, file: "/data/file"}
}

// startPod makes a Pod whose name is the claim's with an ending.
func (v *volume) startPod(ending string) {
	v.Helper()
	v.Pod(v.claim+ending, v.claim, labtest.OnNode(v.node), v.change)
}

// fill has the Pod of the claim's name write the data.
func (v *volume) fill() {
	v.Helper()
	v.running(v.claim, late)
	v.sh(v.claim, fmt.Sprintf("dd if=/dev/urandom of=%s bs=1M count=%d conv=notrunc 2>/dev/null && sync", v.file, dataSize))
	v.sum = v.read(v.claim)
}

// read returns the checksum of the data as a Pod finds it.
func (v *volume) read(pod string) string {
	v.Helper()
	return v.sh(pod, fmt.Sprintf("dd if=%s bs=1M count=%d 2>/dev/null | sha256sum", v.file, dataSize))
}

// haveData checks that the Pods with an ending run, that each has been restarted so often at least, or never, and finds its data.
func (s *scene) haveData(volumes []*volume, ending string, restarts int32) {
	s.Helper()
	for _, v := range volumes {
		pod, restarted := v.claim+ending, int32(0)
		s.WaitFor("Pod "+pod+" runs", late, func(ctx context.Context) (bool, error) {
			p, err := s.Client.CoreV1().Pods(s.Namespace).Get(ctx, pod, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			if len(p.Status.ContainerStatuses) == 1 {
				status := p.Status.ContainerStatuses[0]
				if restarted = status.RestartCount; restarted >= restarts && status.State.Running != nil {
					return true, nil
				}
			}
			return false, fmt.Errorf("restarts: %d; %s", restarted, s.eventsOf(pod))
		})
		if restarts == 0 && restarted > 0 {
			s.Errorf("Pod %s was restarted", pod)
		}
		if got := v.read(pod); got != v.sum {
			s.Errorf("%s of Pod %s has checksum %s, want %s", v.file, pod, got, v.sum)
		}
	}
}

// podsOf are the names of Pods with an ending.
func podsOf(volumes []*volume, ending string) (names []string) {
	for _, v := range volumes {
		names = append(names, v.claim+ending)
	}
	return names
}

// small is the least size of a disk; one is read to its end in four seconds.
const small = "1Gi"

// smallClass is a class that can have such disks.
func (s *scene) smallClass(filesystem string, change ...func(*storagev1.StorageClass)) string {
	s.Helper()
	parameters := map[string]string{"type": "cloud_essd", "performanceLevel": string(disk.PL0), "csi.storage.k8s.io/fstype": filesystem}
	return s.Class(storagev1.VolumeBindingWaitForFirstConsumer, parameters, append(change, labtest.Grows)...)
}

// provisioned makes a claim for a new disk.
func (s *scene) provisioned(claim, class string, change ...func(*corev1.PersistentVolumeClaim)) *volume {
	s.Helper()
	s.Claim(claim, class, small, change...)
	return s.newVolume(claim)
}

// ecs is ECS for somebody who doesn't use the driver.
func (s *scene) ecs() *ecs.Client {
	s.Helper()
	client, err := ecs.NewClient(ecs.Config{
		Region: s.Nodes[0].Region, Endpoint: s.Simulator.URL, ClusterID: simulator.ClusterID,
		Credentials: credentials.Static(credentials.Keys{AccessKeyID: simulator.KeyID, AccessKeySecret: simulator.Secret}),
	})
	s.Must(err)
	return client
}

// smallDisk makes a disk in the first zone by hand, with the tag that an operator gives it for the cluster.
func (s *scene) smallDisk() string {
	s.Helper()
	d, err := s.ecs().Create(s.Context(), disk.Spec{Name: "by-hand", Tags: disk.Tags{disk.ClaimNamespaceTag: s.Namespace, disk.OwnerTag: simulator.ClusterID}},
		disk.Attempt{Zone: disk.Zone(s.ZoneOf(here)), Category: disk.ESSD, Level: disk.PL0, Size: 1}, disk.Token(rand.Text()))
	s.Must(err)
	return string(d.ID)
}

// body is the file with the bytes of a disk.
func (s *scene) body(id string) string { return filepath.Join(s.Dir, "bodies", id) }

// formattedDisk makes one with a file system and data, and returns the data's checksum.
func (s *scene) formattedDisk() (id, sum string) {
	s.Helper()
	id = s.smallDisk()
	files, data := s.TempDir(), make([]byte, dataSize<<20)
	rand.Read(data)
	s.Must(os.WriteFile(filepath.Join(files, "file"), data, 0o600))
	s.tool("", "mkfs.ext4", "-q", "-F", "-d", files, s.body(id))
	return id, fmt.Sprintf("%x  -", sha256.Sum256(data))
}

// staticVolume makes a PersistentVolume of a disk by hand, for a claim. The disk goes with the claim.
func (s *scene) staticVolume(name, id string, claim corev1.ObjectReference, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	s.Helper()
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": lab.DriverName}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      lab.Claim("", "", "", small).Spec.Resources.Requests,
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &claim,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: lab.DriverName, VolumeHandle: id, FSType: "ext4"}},
		},
	}
	for _, f := range change {
		f(volume)
	}
	volume, err := s.Client.CoreV1().PersistentVolumes().Create(s.Context(), volume, metav1.CreateOptions{})
	s.Must(err)
	return volume
}

// static makes a claim, and for it a PersistentVolume of a disk by hand.
func (s *scene) static(claim, id, sum string, change ...func(*corev1.PersistentVolume)) *volume {
	s.Helper()
	pv := s.staticVolume(s.Namespace+"-"+claim, id, corev1.ObjectReference{Namespace: s.Namespace, Name: claim}, change...)
	s.Claim(claim, "", small, func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Spec.AccessModes, c.Spec.VolumeMode = pv.Name, pv.Spec.AccessModes, pv.Spec.VolumeMode
	})
	v := s.newVolume(claim)
	v.sum = sum
	return v
}
