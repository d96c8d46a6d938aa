package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/topodisk/topodisk/diskdriver/nodefacts"
	"github.com/topodisk/topodisk/test/lab/process"
	"github.com/topodisk/topodisk/topology"
)

// kubeletConfig is a kubelet that stays within the node's cgroup and directories, and doesn't clear away images.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: false}
  x509: {clientCAFile: %[1]q}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: %[2]q
containerRuntimeEndpoint: %[3]q
evictionHard: {memory.available: 50Mi, nodefs.available: 1%%, imagefs.available: 1%%}
failCgroupV1: false
failSwapOn: false
imageGCHighThresholdPercent: 100
makeIPTablesUtilChains: false
maxPods: 110
nodeLeaseDurationSeconds: 20
providerID: %[4]q
registerWithTaints: [{key: %[5]s, effect: NoSchedule}]
resolvConf: ""
volumePluginDir: %[6]q
`

// quickPeriods have a kubelet say at once which volumes it has unmounted, and look often at which have grown.
const quickPeriods = `nodeStatusUpdateFrequency: 2s
syncFrequency: 5s
`

func (n *RealNode) startKubelet(context.Context) error {
	config := filepath.Join(n.dir(), "kubelet.yaml")
	text := fmt.Appendf(nil, kubeletConfig, n.lab.Plane.KubeletCA(), n.cgroup(), containerd,
		n.Region+"."+n.Instance, nodefacts.StartupTaint, kubeletDir+"/volume-plugins")
	if most := n.lab.opts.RestartPeriod; most > 0 {
		text = fmt.Appendf(text, "crashLoopBackOff: {maxContainerRestartPeriod: %s}\n", most)
	}
	if !n.lab.opts.UsualPeriods {
		text = append(text, quickPeriods...)
	}
	if err := os.WriteFile(config, text, 0o644); err != nil {
		return err
	}
	kubeconfig, err := n.lab.Plane.KubeletKubeconfig(n.Name)
	if err != nil {
		return err
	}
	labels := fmt.Sprintf("%s=%s,%s=%s,node.kubernetes.io/instance-type=%s", topology.WellKnownZoneKey, n.Zone, topology.RegionKey, n.Region, n.Type)
	return n.startWith(process.Frugal, Kubelet, filepath.Join(n.lab.opts.Programs.Kubelet, "kubelet"), "--config="+config, "--kubeconfig="+kubeconfig,
		"--root-dir="+kubeletDir, "--cert-dir="+kubeletDir+"/pki", "--hostname-override="+n.Name, "--node-ip="+n.address(),
		"--node-labels="+labels, "--v=2")
}
