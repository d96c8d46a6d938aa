//go:build e2eexplain

package explain

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/topodisk/topodisk/test/lab/programs"
)

// instanceTypes is one that Karpenter may add nodes of, in zone h alone.
const instanceTypes = `[{"name":"ecs.g6.xlarge","architecture":"amd64","operatingSystems":["linux"],
"resources":{"cpu":"4","memory":"16Gi","ephemeral-storage":"40Gi","pods":"110"},
"offerings":[{"Price":1,"Requirements":[{"key":"topology.kubernetes.io/zone","operator":"In","values":["` + zoneH + `"]},
{"key":"karpenter.sh/capacity-type","operator":"In","values":["on-demand"]}]}]}]`

// nodePool has Karpenter add nodes in zone h.
const nodePool = `apiVersion: karpenter.kwok.sh/v1alpha1
kind: KWOKNodeClass
metadata: {name: default}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements:
      - {key: topology.kubernetes.io/zone, operator: In, values: [` + zoneH + `]}
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
`

// startKarpenter runs Karpenter, with nodes for zone h to add, until the test is over.
func (s *scene) startKarpenter() {
	s.Helper()
	root, err := programs.FindRoot()
	s.Must(err)
	files, err := programs.KarpenterKinds(s.Context(), root)
	s.Must(err)
	files = slices.DeleteFunc(files, func(f string) bool { return strings.Contains(f, "autoscaling.x-k8s.io") })
	for _, file := range files {
		_, err := s.kubectl(s.Context(), "", "apply", "--server-side", "--filename", file)
		s.Must(err)
	}
	s.WaitFor("Karpenter's kinds are served", soon, func(ctx context.Context) (bool, error) {
		_, err := s.kubectl(ctx, nodePool, "apply", "--filename", "-")
		return err == nil, err
	})
	types := filepath.Join(s.TempDir(), "types.json")
	s.Must(os.WriteFile(types, []byte(instanceTypes), 0o600))
	karpenter, err := s.StartProgram("karpenter", "/usr/bin/env",
		"KUBECONFIG="+s.Kubeconfig, "SYSTEM_NAMESPACE=kube-system", "KUBERNETES_MIN_VERSION=1.19.0-0", "INSTANCE_TYPES_FILE_PATH="+types,
		"DISABLE_LEADER_ELECTION=true", "FEATURE_GATES=CapacityBuffer=false", fmt.Sprintf("METRICS_PORT=%d", 18080), fmt.Sprintf("HEALTH_PROBE_PORT=%d", 18081),
		built.Karpenter)
	s.Must(err)
	s.afterwards("stop Karpenter", func(ctx context.Context) error {
		s.StopProgram(karpenter, false)
		_, err := s.kubectl(ctx, nodePool, "delete", "--wait=false", "--filename", "-")
		return err
	})
}
