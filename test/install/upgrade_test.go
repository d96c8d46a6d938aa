//go:build e2einstall

package install

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
)

// isUpgradedUnderLoad changes a value, takes it back, and starts every Pod anew, while claims come and go.
func (s *scene) isUpgradedUnderLoad() {
	load := s.startLoad()
	s.follow("docs/upgrade.md", "helm upgrade")
	s.driversAre(imageTags[1])
	s.follow("docs/upgrade.md", "helm rollback")
	s.awaitRollout()
	s.driversAre(imageTags[0])
	s.kubectl("-n " + home + " rollout restart deployment/topodisk-controller daemonset/topodisk-node")
	s.awaitRollout()
	load.end()
}

// awaitRollout does as the documentation says.
func (s *scene) awaitRollout() {
	s.Helper()
	s.kubectl("-n " + home + " rollout status deployment/topodisk-controller --timeout=2m")
	s.kubectl("-n " + home + " rollout status daemonset/topodisk-node --timeout=2m")
}

// driversAre checks that every Pod that is to stay runs the image of this tag.
func (s *scene) driversAre(tag string) {
	s.Helper()
	pods, err := s.pods(s.Context(), "")
	s.must(err)
	for _, p := range pods {
		if p.DeletionTimestamp == nil && p.Spec.Containers[0].Image != imageName+":"+tag {
			s.Errorf("%s runs %s, want the tag %s", p.Name, p.Spec.Containers[0].Image, tag)
		}
	}
}

// uninstalling is the time between helm uninstall and the end of the last Pod.
var uninstalling struct{ begins, ends time.Time }

// isUninstalled leaves a Pod running that writes to its disk.
func (s *scene) isUninstalled() {
	s.kubectl("apply -f deploy/examples/pod.yaml")
	s.awaitNotes()
	s.sh("notes", "echo kept >/data/kept && sync")
	before := s.kubectl("get pv -o name")
	uninstalling.begins = time.Now()
	s.follow("docs/install.md", "helm uninstall")
	s.awaitGone()
	uninstalling.ends = time.Now()
	if after := s.kubectl("get pv -o name"); after != before || after == "" {
		s.Errorf("volumes were %q and are %q", before, after)
	}
	if got := s.sh("notes", "cat /data/kept && date >>/data/notes && sync && echo written"); got != "kept\nwritten" {
		s.Errorf("the Pod says %q", got)
	}
	if disks, err := s.Simulator.Disks(s.Context(), namespace); err != nil || len(disks) != 1 || len(disks[0].Attachments) != 1 {
		s.Errorf("disks are %v, %v, want one that is attached", disks, err)
	}
}

// picksUpItsVolumes sees that what an earlier installation made is moved, changed and deleted by the one that is there now.
func (s *scene) picksUpItsVolumes() {
	s.kubectl("delete pod notes --now")
	s.pod("reader", "notes")
	if got := s.sh("reader", "cat /data/kept"); got != "kept" {
		s.Errorf("the file holds %q, want kept", got)
	}
	s.follow("docs/how-it-decides.md", "audit")
	s.follow("docs/how-it-decides.md", "journal list")
	s.kubectl("apply -f deploy/examples/modify.yaml")
	s.kubectl("wait --for=jsonpath={.status.currentVolumeAttributesClassName}=fast pvc/notes", limit)
	s.kubectl("delete pod reader --now")
	s.kubectl("delete pvc notes")
	s.await("no disk is left", late, s.noDisks)
}

// ofTheNotes says whether a disk is that of deploy/examples/pod.yaml.
func ofTheNotes(d ecssim.DiskState) bool {
	return strings.HasPrefix(d.Tags[disk.ClaimNameTag], "notes")
}

// controllerPods are those that are to stay.
func (s *scene) controllerPods(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := s.pods(ctx, "controller")
	return slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }), err
}
