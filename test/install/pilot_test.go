//go:build e2einstall

package install

import (
	"strings"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/topodisk/topodisk/test/lab"
)

// pilots runs topodisk beside the components that serve disks, NAS and OSS, as docs/pilot.md says, moves a class there and back,
// and ends the pilot: its volume is handed over, and read by what serves disks afterwards. NAS and OSS are served throughout.
func (s *scene) pilots() {
	const page, pilot, moved = "docs/pilot.md", "pilot.topodisk.io", "alicloud-disk-essd"
	s.kubectl("delete pod notes --now")
	s.kubectl("delete pvc notes")
	s.WaitFor("no disk is left", late, s.noDisks)
	s.helm("uninstall")
	s.awaitGone()
	components := s.writeComponents()
	s.kubectl("apply -f " + components)
	s.awaitComponents()
	s.Must(s.MakeClass(s.Context(), lab.Class(moved, storagev1.VolumeBindingWaitForFirstConsumer, map[string]string{"type": "cloud_essd"})))
	others := s.startOthers()

	labels := s.kubectl("get nodes --output jsonpath={.items[*].metadata.labels}")
	s.follow(page, "helm install")
	s.awaitNotes()
	s.sh("notes", "echo kept >/data/kept && sync")
	s.servedBy("notes", pilot)

	s.follow(page, "kubectl get storageclass")
	s.Must(s.MakeClaim(s.Context(), lab.Claim(namespace, "moved", moved, "20Gi")))
	s.pod("moved", "moved")
	s.servedBy("moved", pilot)
	movedVolume := s.volumeOf("moved")
	s.kubectl("delete pod moved --now")
	s.kubectl("delete pvc moved")
	s.follow(page, "--filename $class.yaml")
	if now := s.kubectl("get storageclass " + moved + " -o jsonpath={.provisioner}"); now != lab.DriverName {
		s.Errorf("class %s is of %s, want %s", moved, now, lab.DriverName)
	}

	s.kubectl("wait --for=delete pv/"+movedVolume, limit) // which goes after its disk
	s.WaitFor("the disk of the moved class is gone", late, s.hasOnlyNotes)
	if left := s.follow(page, "range .items"); left != s.volumeOf("notes")+" default/notes" {
		s.Errorf("left are %q", left)
	}
	s.follow(page, "volume.yaml")
	s.servedBy("notes", lab.DriverName)
	s.follow(page, "helm uninstall")
	if now := s.kubectl("get nodes --output jsonpath={.items[*].metadata.labels}"); now != labels {
		s.Errorf("the nodes had the labels\n%s\nand have after the pilot\n%s", labels, now)
	}
	if left := s.kubectl("get nodes --output jsonpath={.items[*].metadata.annotations}"); strings.Contains(left, "topodisk.io/") {
		s.Errorf("the pilot has left something on nodes:\n%s", left)
	}
	others.end()
	s.componentsServe("disk", "nas", "oss")

	s.kubectl("delete storageclass " + moved)
	s.installInsteadOf(components)
	s.kubectl("apply -f deploy/examples/pod.yaml") // which the claim's owner may do again at any time
	s.awaitNotes()
	s.Must(contains(s.sh("notes", "cat /data/kept"), "kept"))
}

// volumeOf returns the PersistentVolume of a claim.
func (s *scene) volumeOf(claim string) string {
	s.Helper()
	return s.kubectl("get pvc " + claim + " -o jsonpath={.spec.volumeName}")
}

// servedBy checks which driver the PersistentVolume of a claim names.
func (s *scene) servedBy(claim, driver string) {
	s.Helper()
	if now := s.kubectl("get pv " + s.volumeOf(claim) + " -o jsonpath={.spec.csi.driver}"); now != driver {
		s.Errorf("claim %s is served by %s, want %s", claim, now, driver)
	}
}
