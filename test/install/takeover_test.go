//go:build e2einstall

package install

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/aliyun"
	"github.com/topodisk/topodisk/test/lab/images"
	"github.com/topodisk/topodisk/test/lab/simulator"
)

// anotherDriver stands for the driver whose place topodisk takes: its Deployment, DaemonSet, CSIDriver and Secret, under the
// names that they have.
const anotherDriver = `apiVersion: apps/v1
kind: Deployment
metadata: {name: csi-provisioner, namespace: kube-system}
spec:
  selector: {matchLabels: {app: csi-provisioner}}
  template:
    metadata: {labels: {app: csi-provisioner}}
    spec: {containers: [{name: driver, image: %[1]s, imagePullPolicy: Never}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: csi-plugin, namespace: kube-system}
spec:
  selector: {matchLabels: {app: csi-plugin}}
  template:
    metadata: {labels: {app: csi-plugin}}
    spec: {containers: [{name: driver, image: %[1]s, imagePullPolicy: Never}]}
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: %[4]s}
spec: {attachRequired: true, podInfoOnMount: true}
---
apiVersion: v1
kind: Secret
metadata: {name: csi-access-key, namespace: kube-system}
stringData: {id: %[2]s, secret: %[3]s}
`

// claimUID is how the journal names a claim.
var claimUID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-`)

// retag makes the disk of a claim another cluster's, as an operator does.
func (s *scene) retag(claim, cluster string) {
	id := strings.TrimSpace(s.kubectl("get pvc " + claim + " --output jsonpath={.spec.volumeName}"))
	cli := aliyun.CLI{Endpoint: s.Simulator.URL, KeyID: simulator.OperatorID, Secret: simulator.OperatorSecret}
	s.Must(cli.Run(s.Context(), disk.TagCommands("cn-hangzhou", "disk", cluster, id)[0].String()))
}

// retagAsUsual is retag for a cluster that is told no ID.
func (s *scene) retagAsUsual(claim string) {
	s.Helper()
	s.retag(claim, s.kubectl("get namespace kube-system --output jsonpath={.metadata.uid}"))
}

// takesOver switches a cluster from another driver to topodisk and back, and installs topodisk once more as the README says.
// A Pod with a disk runs all the while.
func (s *scene) takesOver() {
	s.kubectl("apply -f deploy/examples/pod.yaml")
	s.awaitNotes()
	s.sh("notes", "echo kept >/data/kept && sync")
	s.retag("notes", "c0123456789abcdef") // which docs/takeover.md gives the cluster: the disk is the one's that its tag names
	s.helm("uninstall")
	s.awaitGone()
	other := filepath.Join(desk, "another-driver.yaml")
	s.Must(os.WriteFile(other, fmt.Appendf(nil, anotherDriver, images.ShellName, otherID, otherSecret, lab.DriverName), 0o600))
	s.kubectl("apply -f " + other)
	s.kubectl("-n kube-system rollout status deployment/csi-provisioner", limit)

	s.follow("docs/takeover.md", "helm install")
	s.Must(contains(s.follow("docs/takeover.md", "get csinodes"), lab.DriverName))
	s.awaitReady(late)
	s.Must(contains(s.sh("notes", "cat /data/kept"), "kept"))
	s.kubectl("delete pod notes --now")
	s.pod("reader", "notes")
	s.Must(contains(s.sh("reader", "cat /data/kept"), "kept"))
	s.kubectl("delete pod reader --now")
	s.kubectl("delete pvc notes")
	s.WaitFor("no disk is left", late, s.noDisks)

	if claims := claimUID.FindAllString(s.follow("docs/takeover.md", "helm uninstall"), -1); len(claims) > 0 {
		s.Errorf("the journal has claims %v, though none is being provisioned", claims)
	}
	s.awaitGone()
	s.kubectl("-n " + home + " delete secret " + secretName)
	s.layKey(otherID, otherSecret)
	s.follow("README.md", "helm install")
	s.awaitNotes()
}
