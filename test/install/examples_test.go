//go:build e2einstall

package install

import (
	"fmt"
	"os"
	"path/filepath"
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
	s.must(os.WriteFile(file, []byte(group), 0o600))
	s.kubectl("apply -f " + file)
	s.kubectl("wait --for=jsonpath={.status.readyToUse}=true volumegroupsnapshot/all-notes", limit)
	s.kubectl("delete volumegroupsnapshot all-notes")
}

// appliesTheExamples applies what of deploy/examples no other step does, and takes it away again.
func (s *scene) appliesTheExamples() {
	s.kubectl("apply -f deploy/examples/statefulset.yaml -f deploy/examples/block.yaml -f deploy/examples/immediate.yaml -f deploy/examples/classes.yaml")
	s.kubectl("rollout status statefulset/ledger", limit)
	s.kubectl("wait --for=condition=Ready pod/raw", limit)
	s.must(contains(s.kubectl("logs raw"), fmt.Sprint(20<<30)))
	s.kubectl("wait --for=jsonpath={.status.phase}=Bound pvc/archive-0 pvc/archive-1", limit)
	s.kubectl("delete --now -f deploy/examples/statefulset.yaml -f deploy/examples/block.yaml -f deploy/examples/immediate.yaml")
	s.kubectl("delete pvc --selector=app=ledger")
	s.await("no disk is left", late, s.noDisks)
}
