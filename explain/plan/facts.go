package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/topology"
)

// Facts are what a plan is made from: of the kinds that it needs, all objects of the cluster.
type Facts struct {
	explain.Facts

	// Version is the API server's, such as v1.37.2.
	Version string `json:"version,omitempty"`
	// Drivers are all CSIDriver objects, whatever their names.
	Drivers []storagev1.CSIDriver `json:"drivers,omitempty"`
	// Workloads are all Deployments, DaemonSets and StatefulSets.
	Workloads []Workload `json:"workloads,omitempty"`
	// SnapshotClasses are VolumeSnapshotClasses and VolumeGroupSnapshotClasses.
	SnapshotClasses []SnapshotClass `json:"snapshotClasses,omitempty"`
}

// Workload is what is needed of a Deployment, DaemonSet or StatefulSet. The values of environment variables are left out, but for those
// in KeptEnv.
type Workload struct {
	Kind              string `json:"kind"`
	metav1.ObjectMeta `json:"metadata"`
	Replicas          int32          `json:"replicas,omitempty"` // of a DaemonSet 0
	Pod               corev1.PodSpec `json:"pod"`
}

func (w *Workload) ref() explain.Ref {
	return explain.Ref{Kind: w.Kind, Namespace: w.Namespace, Name: w.Name}
}

// resource names the workload as kubectl takes it.
func (w *Workload) resource() string { return strings.ToLower(w.Kind) + "/" + w.Name }

// KeptEnv are the environment variables whose values are part of the Facts: none can be a secret.
var KeptEnv = []string{clusterIDEnv, regionEnv}

const (
	clusterIDEnv = "CLUSTER_ID"
	regionEnv    = "REGION_ID"
)

// SnapshotClass is a VolumeSnapshotClass or a VolumeGroupSnapshotClass.
type SnapshotClass struct {
	Kind              string `json:"kind"`
	metav1.ObjectMeta `json:"metadata"`
	Driver            string            `json:"driver"`
	Parameters        map[string]string `json:"parameters,omitempty"`
	// Malformed says why the parameters could not be read; empty if they could.
	Malformed string `json:"malformed,omitempty"`
}

// Zones returns the zones of the cluster's nodes and of its volumes, sorted.
func (f *Facts) Zones() []string {
	zones := map[string]bool{}
	for i := range f.Nodes {
		zones[topology.ZoneOfLabels(f.Nodes[i].Labels)] = true
	}
	for i := range f.Volumes {
		for _, zone := range topology.ZonesOfVolume(&f.Volumes[i]) {
			zones[zone] = true
		}
	}
	delete(zones, "")
	return slices.Sorted(maps.Keys(zones))
}

// checkZone returns an error unless the cluster has the zone.
func (f *Facts) checkZone(zone string) error {
	zones := f.Zones()
	for _, u := range f.Unread {
		if (u.Kind == "Node" || u.Kind == "PersistentVolume") && !slices.Contains(zones, zone) {
			return fmt.Errorf("whether ZONE %q is a zone of the cluster can't be told: objects of kind %s could not be read: %s", zone, u.Kind, u.Reason)
		}
	}
	if len(zones) == 0 {
		return fmt.Errorf("ZONE %q is not a zone of the cluster: none of its nodes and volumes names one", zone)
	}
	if !slices.Contains(zones, zone) {
		return fmt.Errorf("ZONE %q is not a zone of the cluster's nodes and volumes: allowed are %s", zone, strings.Join(zones, ", "))
	}
	return nil
}

// affinityTerms returns the terms of a volume's node affinity; none if it has none.
func affinityTerms(volume *corev1.PersistentVolume) []corev1.NodeSelectorTerm {
	if volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
		return nil
	}
	return volume.Spec.NodeAffinity.Required.NodeSelectorTerms
}

// class returns the StorageClass of the name, nil if there is none.
func (f *Facts) class(name string) *storagev1.StorageClass {
	for i := range f.Classes {
		if f.Classes[i].Name == name {
			return &f.Classes[i]
		}
	}
	return nil
}

// driverObject returns the CSIDriver object of the driver, nil if there is none.
func (f *Facts) driverObject() *storagev1.CSIDriver {
	for i := range f.Drivers {
		if f.Drivers[i].Name == f.Driver {
			return &f.Drivers[i]
		}
	}
	return nil
}

func claimRef(c *corev1.PersistentVolumeClaim) explain.Ref {
	return explain.Ref{Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name}
}

func podRef(p *corev1.Pod) explain.Ref {
	return explain.Ref{Kind: "Pod", Namespace: p.Namespace, Name: p.Name}
}

func volumeRef(v *corev1.PersistentVolume) explain.Ref {
	return explain.Ref{Kind: "PersistentVolume", Name: v.Name}
}
