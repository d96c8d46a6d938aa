//go:build e2einstall

package install

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/topodisk/topodisk/test/lab"
)

// otherRelease is the Helm release of the other driver's chart.
const otherRelease = "storage"

// takesOverFromChart switches disks of a cluster, where a Helm release of the other driver's chart serves disks, NAS and OSS, to topodisk
// and back, by the commands that kubectl topodisk plan takeover prints. In between the release is rolled back, which switches its disks on
// beside topodisk's. Pods with volumes of NAS and OSS write and start throughout; a Pod with a disk runs all the while.
func (s *scene) takesOverFromChart() {
	s.helm("uninstall")
	s.awaitGone()
	key := filepath.Join(desk, "other-key.yaml")
	s.Must(os.WriteFile(key, []byte(otherKey()), 0o600))
	s.kubectl("apply -f " + key)
	s.helmOther("install", otherChart(), "--values="+s.writeOtherValues(""))
	s.awaitComponents()
	s.componentsServe("disk", "nas", "oss")
	others := s.startOthers()

	takeover := s.planTakeover()
	s.runSteps(takeover.Steps)
	s.awaitReady(late)
	s.servesDisks("by topodisk")
	s.componentsServe("nas", "oss")
	s.hasDiskOfClass("alicloud-disk-essd")
	s.isDriverOf("topodisk")

	_, err := s.run(s.Context(), helm, "upgrade", otherRelease, otherChart(), "--namespace="+home, "--reuse-values", "--set=csi.disk.enabled=true")
	if err == nil || !strings.Contains(err.Error(), "invalid ownership metadata") {
		s.Errorf("an upgrade that switches disks on again: %v; want that the CSIDriver object is another release's", err)
	}
	s.componentsServe("nas", "oss")
	if _, err := s.run(s.Context(), helm, "rollback", otherRelease, "1", "--namespace="+home); err == nil || !strings.Contains(err.Error(), lab.DriverName) {
		s.Errorf("a rollback to what switches disks on: %v; want that it fails at the CSIDriver object, and does all else", err)
	}
	s.awaitComponents()
	s.componentsServe("disk", "nas", "oss")
	s.isDriverOf("topodisk")
	s.runSteps(s.planTakeover().Steps)
	s.awaitReady(late)
	s.servesDisks("by topodisk again")
	s.componentsServe("nas", "oss")
	s.isDriverOf("topodisk")

	s.runSteps(takeover.Back)
	s.awaitGone()
	s.awaitComponents()
	s.componentsServe("disk", "nas", "oss")
	s.isDriverOf(otherRelease)
	if capacity := s.kubectl("get csidriver " + lab.DriverName + " -o jsonpath={.spec.storageCapacity}"); capacity == "true" {
		s.Error("the scheduler waits for topodisk's CSIStorageCapacity objects")
	}
	s.kubectl("get storageclass alicloud-disk-essd alicloud-disk-ssd alicloud-disk-efficiency")
	s.kubectl("get volumesnapshotclass alibabacloud-disk-snapshot")
	others.end()

	s.helmOther("uninstall", "--wait")
	s.WaitFor("no Pod of the other release is left", late, func(ctx context.Context) (bool, error) {
		pods, err := s.componentPods(ctx)
		return err == nil && len(pods) == 0, err
	})
	s.kubectl("delete storageclass alicloud-disk-essd alicloud-disk-ssd alicloud-disk-efficiency --ignore-not-found")
	s.kubectl("delete volumesnapshotclass alibabacloud-disk-snapshot --ignore-not-found")
	s.kubectl("-n " + home + " delete secret csi-access-key")
	s.kubectl("-n " + home + " delete secret " + secretName + " --ignore-not-found")
	s.makeSecret(otherID, otherSecret)
	s.retagAsUsual("notes")
	s.install()
	s.awaitReady(late)
	s.Must(contains(s.sh("notes", "cat /data/kept"), "kept"))
}

// helmOther runs helm on the release of the other driver's chart.
func (s *scene) helmOther(verb string, more ...string) {
	s.Helper()
	_, err := s.run(s.Context(), helm, append([]string{verb, otherRelease, "--namespace=" + home}, more...)...)
	s.Must(err)
}

// hasDiskOfClass sees that a new claim of a class gets a disk.
func (s *scene) hasDiskOfClass(class string) {
	s.Helper()
	s.Must(s.MakeClaim(s.Context(), lab.Claim(namespace, "kept-class", class, "20Gi")))
	_, err := s.AwaitBound(s.Context(), namespace, "kept-class", late)
	s.Must(err)
	s.kubectl("delete pvc kept-class")
}

// isDriverOf checks which Helm release has made the CSIDriver object its own.
func (s *scene) isDriverOf(release string) {
	s.Helper()
	if by := s.kubectl("get csidriver " + lab.DriverName + " -o jsonpath={.metadata.annotations.meta\\.helm\\.sh/release-name}"); by != release {
		s.Errorf("the CSIDriver object is of release %q, want %q", by, release)
	}
}
