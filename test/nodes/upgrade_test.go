//go:build e2enodes

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/programs"
	"github.com/topodisk/topodisk/test/need"
)

// earlierCommit is the last one whose node plugin formats a disk because of what it looks like, and whose VolumeAttachments don't say of
// which disk they are.
const earlierCommit = "fd49ffbf1207039d8457303b4442cf3e2f6fce93"

// earlier is built by TestMain.
var earlier programs.Earlier

// TestVolumesOutliveAnUpgrade: volumes of every kind that the version before has staged stay in use while the controller and the node
// plugins are upgraded, and are found by the Pods that run, by further ones on the node, by others after the node was off, and on another
// node.
func TestVolumesOutliveAnUpgrade(t *testing.T) {
	need.Has(t, need.Commit(earlierCommit))
	s := newScene(t)
	today := s.downgrade()
	staged := s.stageEveryKind()
	cut := s.cutFormats() // it leaves the node without a plugin
	attached := s.provisioned("attached", s.smallClass("ext4", oldOptions))
	attached.startPod("")
	s.WaitFor("the version before attaches a disk that it doesn't stage", soon, func(context.Context) (bool, error) {
		return len(s.attachedTo(s.bound("attached"))) == 1, nil
	})
	for _, claim := range []string{"ext4", "xfs"} {
		s.grow(claim, "2Gi")
		s.awaitDisk(claim, "2Gi")
	}

	s.useVersion(today)
	s.Must(s.RestartController(s.Context()))
	elsewhere := s.provisioned("elsewhere", s.smallClass("xfs")) // attached by this version, staged by the one before
	elsewhere.node = there
	elsewhere.startPod("")
	elsewhere.fill()
	s.Must(s.RealNode(here).StartPlugin())
	s.restartPlugin(there)

	for _, v := range append(cut, attached) {
		v.fill()
	}
	if got := s.sh("attached", "mount | grep ' /data '"); !strings.Contains(got, oldMountOption) {
		t.Errorf("mounted is %q, want it with %s", got, oldMountOption)
	}
	s.awaitCapacity("xfs", "2Gi")
	for claim, want := range map[string]string{"ext3": "", "attached": "", "elsewhere": s.bound("elsewhere")} {
		if got := s.attachmentOf(claim).Status.AttachmentMetadata[disk.VolumeKey]; got != want {
			t.Errorf("the VolumeAttachment of claim %s says that it is of %q, want %q", claim, got, want)
		}
	}
	volumes := slices.Concat([]*volume{elsewhere}, staged, cut, []*volume{attached})
	s.haveData(volumes, "", 0)
	for _, v := range volumes {
		v.startPod("-beside")
	}
	s.haveData(volumes, "-beside", 0)
	s.remove(podsOf(volumes, "-beside")...)

	left, stayed := volumes[:len(volumes)/2], volumes[len(volumes)/2:]
	s.move(left) // what the version before has staged is unstaged
	s.awaitCapacity("ext4", "2Gi")
	s.RealNode(here).Kill()
	s.Must(s.RealNode(here).Start(s.Context())) // volumes are staged with the VolumeAttachments that there are
	s.haveData(stayed, "", 1)
	s.move(stayed)
	s.refusesNothing()
}

// downgrade has the version before be the controller, and the plugin of two nodes, until the test is over, and returns today's.
func (s *scene) downgrade() (today programs.Earlier) {
	s.Helper()
	today = s.useVersion(earlier)
	s.Cleanup(func() {
		if s.Failed() {
			s.useVersion(today)
			s.Check("restart the controller", s.RestartController(context.Background()))
			s.restartPlugin(here)
			s.restartPlugin(there)
		}
	})
	s.Must(s.RestartController(s.Context()))
	s.restartPlugin(here)
	s.restartPlugin(there)
	return today
}

func (s *scene) useVersion(v programs.Earlier) (before programs.Earlier) {
	s.Helper()
	before, err := s.UseVersion(v)
	s.Must(err)
	return before
}

// restartPlugin ends a node's plugin, if it runs, and starts one of the version that is in use.
func (s *scene) restartPlugin(node string, env ...string) {
	s.Helper()
	s.RealNode(node).StopProgram(lab.NodePlugin, false)
	s.Must(s.RealNode(node).StartPlugin(env...))
}

// oldMountOption and those of mkfs that oldOptions sets are refused in a class today, and name no file.
const oldMountOption = "nouid32"

func oldOptions(class *storagev1.StorageClass) {
	class.Parameters["mkfsOptions"], class.MountOptions = "-E packed_meta_blocks=1", []string{oldMountOption}
}

// stageEveryKind has Pods on the first node with volumes of every kind, and data on them.
func (s *scene) stageEveryKind() (volumes []*volume) {
	s.Helper()
	ext4, xfs := s.smallClass("ext4"), s.smallClass("xfs")
	written1, sum1 := s.formattedDisk()
	written2, sum2 := s.formattedDisk()
	raw := s.provisioned("raw", ext4, asBlockClaim)
	raw.file, raw.change = "/dev/data", asBlock
	written := []*volume{
		s.provisioned("ext4", ext4), s.provisioned("xfs", xfs), raw, s.static("static-blank", s.smallDisk(), ""),
		s.provisioned("ext3", s.smallClass("ext3")), s.provisioned("old-options", s.smallClass("ext4", oldOptions)),
	}
	found := []*volume{s.static("static", written1, sum1), s.static("static-read-only", written2, sum2, readOnlyVolume)}
	for _, v := range slices.Concat(written, found) {
		v.startPod("")
	}
	for _, v := range written {
		v.fill()
	}
	s.snapshot("ext4")
	restored, copied := s.provisioned("restored", ext4, fromSnapshot("ext4")), s.provisioned("copied", xfs, copyOf("xfs"))
	restored.sum, restored.change, copied.sum = written[0].sum, readOnlyPod, written[1].sum
	made := []*volume{restored, copied}
	for _, v := range made {
		v.startPod("")
	}
	s.haveData(slices.Concat(found, made), "", 0)
	return slices.Concat(written, found, made)
}

// readOnlyVolume has the node not write to a volume's device.
func readOnlyVolume(pv *corev1.PersistentVolume) { pv.Spec.CSI.ReadOnly = true }

func readOnlyPod(p *corev1.Pod) { p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true }

// mkfsThatStops runs mkfs in small steps until there is something on the device, and goes no further.
const mkfsThatStops = `#!/bin/sh
%s "$@" &
mkfs=$!
for device; do :; done
kill -STOP $mkfs
while cmp -s -n $(blockdev --getsize64 $device) $device /dev/zero; do
	kill -CONT $mkfs
	sleep 0.002
	kill -STOP $mkfs
done
echo $$ $mkfs >$0.writing && mv $0.writing $0.stopped
kill -STOP $$
`

// cutFormats has the plugin of the first node format disks, and kills it and mkfs while that goes on. The Pods wait for the volumes then.
func (s *scene) cutFormats() (volumes []*volume) {
	s.Helper()
	node, bin, filesystems := s.RealNode(here), s.TempDir(), []string{"ext4", "xfs"}
	for _, filesystem := range filesystems {
		mkfs, err := exec.LookPath("mkfs." + filesystem)
		s.Must(err)
		s.Must(os.WriteFile(filepath.Join(bin, "mkfs."+filesystem), fmt.Appendf(nil, mkfsThatStops, mkfs), 0o755))
	}
	s.restartPlugin(here, "PATH="+bin+":"+os.Getenv("PATH"))
	for _, filesystem := range filesystems {
		v := s.provisioned("cut-"+filesystem, s.smallClass(filesystem))
		v.startPod("")
		volumes = append(volumes, v)
	}
	kill := []string{"sh", "-c", `kill -KILL "$@" || echo "an mkfs has come to its end"`, "sh"}
	for _, filesystem := range filesystems {
		s.WaitFor("mkfs."+filesystem+" has begun", late, func(context.Context) (bool, error) {
			stopped, err := os.ReadFile(filepath.Join(bin, "mkfs."+filesystem+".stopped"))
			kill = append(kill, strings.Fields(string(stopped))...)
			return err == nil, err
		})
	}
	node.StopProgram(lab.NodePlugin, true)
	said, err := node.Exec(s.Context(), kill...)
	s.Must(err)
	s.Log(said)
	return volumes
}

// attachmentOf returns the VolumeAttachment of a claim's volume.
func (s *scene) attachmentOf(claim string) storagev1.VolumeAttachment {
	s.Helper()
	b, err := s.AwaitBound(s.Context(), s.Namespace, claim, soon)
	s.Must(err)
	all, err := s.Client.StorageV1().VolumeAttachments().List(s.Context(), metav1.ListOptions{})
	s.Must(err)
	i := slices.IndexFunc(all.Items, func(a storagev1.VolumeAttachment) bool { return *a.Spec.Source.PersistentVolumeName == b.Volume.Name })
	if i < 0 {
		s.Fatalf("there is no VolumeAttachment of claim %s", claim)
	}
	return all.Items[i]
}

// move has Pods on the other node take the place of those that there are.
func (s *scene) move(volumes []*volume) {
	s.Helper()
	s.remove(podsOf(volumes, "")...)
	for _, v := range volumes {
		v.node = map[string]string{here: there, there: here}[v.node]
		v.startPod("-moved")
	}
	s.haveData(volumes, "-moved", 0)
}

// refusesNothing checks that no Pod was told that somebody has to do something about its volume.
func (s *scene) refusesNothing() {
	s.Helper()
	events, err := s.Client.CoreV1().Events(s.Namespace).List(s.Context(), metav1.ListOptions{FieldSelector: "type=" + corev1.EventTypeWarning})
	s.Must(err)
	for _, e := range events.Items {
		if e.InvolvedObject.Kind == "Pod" && (strings.Contains(e.Message, "InvalidArgument") || strings.Contains(e.Message, "FailedPrecondition")) {
			s.Errorf("%s was told: %s", e.InvolvedObject.Name, e.Message)
		}
	}
}
