//go:build e2einstall

package install

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/topodisk/topodisk/test/lab"
)

// group is a snapshot of all claims with a label.
const group = `apiVersion: groupsnapshot.storage.k8s.io/v1
kind: VolumeGroupSnapshotClass
metadata: {name: topodisk}
driver: diskplugin.csi.alibabacloud.com
deletionPolicy: Delete
---
apiVersion: groupsnapshot.storage.k8s.io/v1
kind: VolumeGroupSnapshot
metadata: {name: all-notes}
spec: {volumeGroupSnapshotClassName: topodisk, source: {selector: {matchLabels: {app: notes}}}}
`

// cutsAGroup snapshots the claim of deploy/examples/pod.yaml as a group.
func (s *scene) cutsAGroup() {
	s.kubectl("label pvc notes app=notes")
	file := filepath.Join(desk, "group.yaml")
	s.Must(os.WriteFile(file, []byte(group), 0o600))
	s.kubectl("apply -f " + file)
	s.kubectl("wait --for=jsonpath={.status.readyToUse}=true volumegroupsnapshot/all-notes", limit)
	s.kubectl("delete volumegroupsnapshot all-notes")
}

// appliesTheExamples applies what of deploy/examples no other step does, and takes it away again.
func (s *scene) appliesTheExamples() {
	s.kubectl("apply -f deploy/examples/statefulset.yaml -f deploy/examples/block.yaml -f deploy/examples/immediate.yaml -f deploy/examples/classes.yaml")
	s.kubectl("rollout status statefulset/ledger", limit)
	s.kubectl("wait --for=condition=Ready pod/raw", limit)
	s.Must(contains(s.kubectl("logs raw"), fmt.Sprint(20<<30)))
	s.kubectl("wait --for=jsonpath={.status.phase}=Bound pvc/archive-0 pvc/archive-1", limit)
	s.kubectl("delete --now -f deploy/examples/statefulset.yaml -f deploy/examples/block.yaml -f deploy/examples/immediate.yaml")
	s.kubectl("delete pvc --selector=app=ledger")
	s.WaitFor("no disk is left", late, s.noDisks)
}

// usesADiskThatIsThere keeps a disk beyond its claim, as a class of deploy/examples/classes.yaml says, and makes a
// PersistentVolume of it by hand, as static.yaml shows.
func (s *scene) usesADiskThatIsThere() {
	const class = "topodisk-kept"
	s.Must(s.MakeClaim(s.Context(), lab.Claim(namespace, "first", class, "20Gi")))
	s.pod("first", "first")
	s.sh("first", "echo kept >/data/kept && sync")
	name := s.kubectl("get pvc first -o jsonpath={.spec.volumeName}")
	zone := s.kubectl("get pv " + name + " -o jsonpath={.spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].values[0]}")
	s.kubectl("delete pod first --now")
	s.kubectl("delete pvc first")
	s.kubectl("delete pv " + name)
	text, err := os.ReadFile(filepath.Join(root, "deploy", "examples", "static.yaml"))
	s.Must(err)
	static := filepath.Join(desk, "static.yaml")
	replacer := strings.NewReplacer("d-bp1example0000000001", name, "cn-hangzhou-i", zone, "100Gi", "20Gi")
	s.Must(os.WriteFile(static, []byte(replacer.Replace(string(text))), 0o600))
	s.kubectl("apply -f " + static)
	s.pod("second", "archive")
	s.Must(contains(s.sh("second", "cat /data/kept"), "kept"))
}
