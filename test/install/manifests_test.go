//go:build e2einstall

package install

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/topodisk/topodisk/test/lab"
)

// isInstalledWithoutHelm installs the release's manifests as docs/install.md says, uninstalls them while a Pod with a disk runs, and
// installs them again: the disk is served on.
func (s *scene) isInstalledWithoutHelm() {
	const page = "docs/install.md"
	s.kubectl("delete pod notes --now")
	s.kubectl("delete pvc notes")
	s.WaitFor("no disk is left", late, s.noDisks)
	s.helm("uninstall")
	s.awaitGone()
	s.kubectl("-n " + home + " delete secret " + secretName)
	s.layKey(otherID, otherSecret)
	s.Must(writeDeploy(s.Simulator.URL))

	s.follow(page, "apply --kustomize")
	s.awaitReady(late)
	s.awaitNotes()
	s.sh("notes", "echo kept >/data/kept && sync")
	s.servesDisks("by the manifests")
	s.follow(page, "patch csidriver")
	s.kubectl("apply --kustomize deploy")
	if period := s.kubectl("get csidriver " + lab.DriverName + " -o jsonpath={.spec.nodeAllocatableUpdatePeriodSeconds}"); period != "60" {
		s.Errorf("after the manifests were applied again the period is %q, want 60", period)
	}

	s.follow(page, "delete --kustomize")
	s.awaitGone()
	if left := s.kubectl("get deployment,daemonset,serviceaccount,role,rolebinding,clusterrole,clusterrolebinding,csidriver,storageclass --all-namespaces " +
		"--selector=app.kubernetes.io/name=topodisk --output=name"); left != "" {
		s.Errorf("left are %s", left)
	}
	s.Must(contains(s.sh("notes", "cat /data/kept"), "kept"))

	s.kubectl("apply --kustomize deploy")
	s.awaitReady(late)
	s.kubectl("delete pod notes --now")
	s.pod("reader", "notes")
	s.Must(contains(s.sh("reader", "cat /data/kept"), "kept"))
	s.kubectl("delete pod reader --now")
	s.kubectl("delete pvc notes")
	s.WaitFor("no disk is left", late, s.noDisks)
}

// writeDeploy puts a copy of deploy on the desk, with the manifests of the release and the place for ECS's address filled in.
func writeDeploy(ecs string) error {
	deploy := filepath.Join(desk, "deploy")
	if err := errors.Join(os.Remove(deploy), os.CopyFS(deploy, os.DirFS(filepath.Join(root, "deploy")))); err != nil {
		return err
	}
	manifests, err := os.ReadFile(dist("topodisk.yaml"))
	if err != nil {
		return err
	}
	file := filepath.Join(deploy, "kustomization.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	const address = "ecs-vpc.cn-hangzhou.aliyuncs.com"
	before, patch, found := strings.Cut(string(text), "  # - target:")
	if !found || !strings.Contains(patch, address) {
		return errors.New("deploy/kustomization.yaml has no place for ECS's address")
	}
	patch = strings.NewReplacer("  # ", "  ", address, ecs).Replace("  # - target:" + patch)
	return errors.Join(os.WriteFile(file, []byte(before+patch), 0o644),
		os.WriteFile(filepath.Join(deploy, "topodisk.yaml"), manifests, 0o644))
}
