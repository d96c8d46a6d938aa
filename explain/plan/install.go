package plan

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/internal/shell"
	"github.com/topodisk/topodisk/topology"
)

// Install tells whether topodisk can be installed as the cluster is, and how.
func Install(f *Facts, o Options) *Plan {
	p := &Plan{Kind: KindInstall, Driver: f.Driver}
	p.needs(f, "Deployment", "DaemonSet", "StatefulSet", "CSIDriver", "Node", "StorageClass", "VolumeAttributesClass", "VolumeSnapshotClass",
		"VolumeGroupSnapshotClass", "PersistentVolume", "Lease", "CSINode")
	findServing(f, p)
	findVersion(f, p)
	nodes := findNodes(f, p)
	read, refused := findRefused(f, p)
	p.unchecked("RAM actions", "only RAM knows what the credentials may do: compare their policy with deploy/ram-policy.json")
	p.unchecked("the way to ECS",
		"whether Pods reach the ECS API of region %s shows when the controller runs: its Pods are ready once ECS has answered", regionOf(f))
	if p.Count(Blocks) == 0 && !unreadWorkloads(f) {
		in := installationOf(f)
		p.Steps = []Step{credentialsStep(in), in.step(o), rolloutStep(in)}
		p.Back = uninstallSteps(in)
	}
	p.Summary = fmt.Sprintf("%d of %d nodes can have disks; of %d classes and volumes of %s, %d would be refused",
		nodes, len(f.Nodes), read, f.Driver, refused)
	if unreadWorkloads(f) {
		p.Summary = fmt.Sprintf("Deployments, DaemonSets and StatefulSets could not all be read, so whether something serves %s already can't be told", f.Driver)
	}
	if n := p.Count(Blocks); n > 0 {
		p.Summary = fmt.Sprintf("topodisk can't be installed as it is: %s against it", counted(n, "thing"))
	}
	return p
}

// findServing finds what has the driver's name already.
func findServing(f *Facts, p *Plan) {
	others, own := servers(f)
	p.Serving = rowsOf(f, slices.Concat(others, own))
	taken := false
	for i := range others {
		if s := &others[i]; s.vague() || slices.Contains(s.serves(), f.Driver) {
			taken = true
			p.find(Blocks, s.ref(), "serves %s: `kubectl topodisk plan takeover` tells how to switch", f.Driver)
		}
	}
	for i := range own {
		if s := &own[i]; slices.Contains(s.serves(), f.Driver) {
			taken = true
			p.find(Blocks, s.ref(), "topodisk is installed already: docs/upgrade.md tells how to upgrade it")
		}
	}
	if unreadWorkloads(f) {
		return
	}
	taken = findHidden(f, p, slices.Concat(others, own)) || taken
	if object := f.driverObject(); object != nil && !taken {
		p.find(Note, explain.Ref{Kind: "CSIDriver", Name: object.Name},
			"exists, and nothing serves it: it stays as it is unless you delete it (`%s`)", shell.New("kubectl", "delete", "csidriver", object.Name))
	}
}

// leastMinor is the oldest Kubernetes 1.x that topodisk works with.
const leastMinor = 31

var versionForm = regexp.MustCompile(`^v?1\.(\d+)`)

func findVersion(f *Facts, p *Plan) {
	m := versionForm.FindStringSubmatch(f.Version)
	if m == nil {
		p.unchecked("the version of Kubernetes", "the API server says %q; topodisk needs 1.%d or later", f.Version, leastMinor)
		return
	}
	if minor, err := strconv.Atoi(m[1]); err == nil && minor < leastMinor {
		p.find(Blocks, explain.Ref{Kind: "Cluster", Name: f.Version}, "topodisk needs Kubernetes 1.%d or later", leastMinor)
	}
}

// findNodes finds the Nodes whose Pods would get no disks, and returns how many would.
func findNodes(f *Facts, p *Plan) (good int) {
	most := regionOf(f)
	for i := range f.Nodes {
		n := &f.Nodes[i]
		object := explain.Ref{Kind: "Node", Name: n.Name}
		id, region := disk.InstanceOfNode(n.Spec.ProviderID, n.Labels[disk.InstanceLabel])
		private, wellKnown := n.Labels[topology.ZoneKey], n.Labels[topology.WellKnownZoneKey]
		switch {
		case n.Labels[corev1.LabelOSStable] == "windows":
			p.find(Note, object, "runs Windows: the node plugin is for Linux, so its Pods get no disks")
			continue
		case n.Labels["type"] == "virtual-kubelet":
			p.find(Note, object, "is a virtual node: the chart runs no node plugin there, so its Pods get no disks")
			continue
		case id == "":
			p.find(Refused, object, "names no ECS instance: spec.providerID is %q; allowed is <region>.<instance ID>, or without a provider ID the label %s",
				n.Spec.ProviderID, disk.InstanceLabel)
			continue
		}
		switch {
		case region != "" && region != most:
			p.find(Refused, object, "is in region %s, and one installation serves one region: that of most nodes, %s", region, most)
			continue
		case private != "" && wellKnown != "" && private != wellKnown:
			p.find(Note, object, "labels %s=%s and %s=%s name different zones: the node plugin registers those alone that are what ECS says",
				topology.ZoneKey, private, topology.WellKnownZoneKey, wellKnown)
		case topology.ZoneOfLabels(n.Labels) == "":
			p.find(Note, object,
				"has no label %s: the node plugin registers the zone that ECS says; an autoscaler learns it from the label alone", topology.WellKnownZoneKey)
		}
		good++
	}
	return good
}
