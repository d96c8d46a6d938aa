package provisioner

import (
	"slices"
	"sync"
	"unique"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/provisioner/request"
)

// trim returns what drops what nobody here reads before an object enters a
// cache: memory grows with every claim and volume of the cluster, also those of
// other drivers.
func trim(driver string) func(any) (any, error) {
	t := &trimmer{driver: driver, affinities: map[string]*v1.VolumeNodeAffinity{}, provisioned: map[string]string{request.AnnProvisionedBy: driver}}
	return func(object any) (any, error) {
		accessor, err := meta.Accessor(object)
		if err != nil {
			return object, nil //nolint:nilerr // A tombstone has nothing to be trimmed.
		}
		accessor.SetManagedFields(nil)
		switch o := object.(type) {
		case *v1.PersistentVolumeClaim:
			trimClaim(o, driver)
		case *v1.PersistentVolume:
			t.trimVolume(o)
		case *storagev1.VolumeAttachment:
			trimMeta(&o.ObjectMeta)
			o.Status = storagev1.VolumeAttachmentStatus{}
			o.Spec.Source.InlineVolumeSpec = nil
		case *storagev1.CSINode:
			trimMeta(&o.ObjectMeta)
			o.Spec.Drivers = onlyDriver(o.Spec.Drivers, driver)
		case *metav1.PartialObjectMetadata: // a Node
			labels := o.Labels
			trimMeta(&o.ObjectMeta)
			shareKeys(labels)
			o.Labels = labels
		}
		return object, nil
	}
}

// trimMeta keeps what identifies an object.
func trimMeta(m *metav1.ObjectMeta, annotations ...string) {
	kept := map[string]string(nil)
	for _, key := range annotations {
		if value, ok := m.Annotations[key]; ok {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	*m = metav1.ObjectMeta{
		Name: m.Name, Namespace: once(m.Namespace), UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		Finalizers: m.Finalizers, Annotations: kept,
	}
}

// once returns the one copy of a text that many objects have.
func once(text string) string { return unique.Make(text).Value() }

// trimClaim keeps all of a claim that has no volume yet and is ours or nobody's
// so far, for its order is made from it. It gives such a claim the older of the two annotations that
// name its provisioner, the only one that the library knows.
func trimClaim(claim *v1.PersistentVolumeClaim, driver string) {
	if request.IsOurs(claim, driver) {
		delete(claim.Annotations, v1.LastAppliedConfigAnnotation)
		claim.Annotations[request.AnnBetaStorageProvisioner] = request.ProvisionerOf(claim)
		return
	}
	if request.ProvisionerOf(claim) == "" && claim.Spec.VolumeName == "" {
		delete(claim.Annotations, v1.LastAppliedConfigAnnotation)
		return
	}
	if claim.Spec.VolumeName != "" && !slices.Contains(claim.Finalizers, cloneFinalizer) {
		claim.Annotations, claim.Finalizers = nil, nil // nobody provisions it or protects it any more
	}
	trimMeta(&claim.ObjectMeta, request.AnnStorageProvisioner, request.AnnBetaStorageProvisioner, request.AnnMigratedTo)
	claim.Spec = v1.PersistentVolumeClaimSpec{VolumeName: claim.Spec.VolumeName}
	claim.Status = v1.PersistentVolumeClaimStatus{}
}

// trimmer trims objects, and has those that say the same share it.
type trimmer struct {
	driver      string
	provisioned map[string]string // the annotations of a volume that was made by the driver and has no other

	mu         sync.Mutex
	affinities map[string]*v1.VolumeNodeAffinity // by what they say
}

// ourFinalizers are the finalizers of a PersistentVolume that matter here.
var ourFinalizers = []string{request.Finalizer}

func (t *trimmer) trimVolume(pv *v1.PersistentVolume) {
	trimMeta(&pv.ObjectMeta, request.AnnProvisionedBy, request.AnnVolumeName)
	if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != t.driver {
		pv.Spec, pv.Status = v1.PersistentVolumeSpec{}, v1.PersistentVolumeStatus{}
		return
	}
	if pv.Annotations[request.AnnProvisionedBy] == t.driver {
		if pv.Annotations[request.AnnProvisionedBy] = t.driver; len(pv.Annotations) == 1 {
			pv.Annotations = t.provisioned
		}
	}
	if request.HasFinalizer(pv) {
		pv.Finalizers = ourFinalizers
	} else {
		pv.Finalizers = nil
	}
	// What stays is changed in place: a copy would leave holes in the heap.
	source, ref := pv.Spec.CSI, pv.Spec.ClaimRef
	*source = v1.CSIPersistentVolumeSource{Driver: t.driver, VolumeHandle: source.VolumeHandle}
	if source.VolumeHandle == pv.Name {
		source.VolumeHandle = pv.Name
	}
	if ref != nil {
		*ref = v1.ObjectReference{Namespace: once(ref.Namespace), Name: ref.Name, UID: ref.UID}
	}
	pv.Spec = v1.PersistentVolumeSpec{
		PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimPolicy(once(string(pv.Spec.PersistentVolumeReclaimPolicy))),
		StorageClassName:              once(pv.Spec.StorageClassName),
		NodeAffinity:                  t.affinity(pv.Spec.NodeAffinity),
		PersistentVolumeSource:        v1.PersistentVolumeSource{CSI: source},
		ClaimRef:                      ref,
	}
	pv.Status = v1.PersistentVolumeStatus{Phase: v1.PersistentVolumePhase(once(string(pv.Status.Phase)))}
}

// mostAffinities bounds the affinities that are shared: a cluster has few zones.
const mostAffinities = 1000

// affinity returns the one copy of an affinity.
func (t *trimmer) affinity(a *v1.VolumeNodeAffinity) *v1.VolumeNodeAffinity {
	if a == nil {
		return nil
	}
	said := a.String()
	t.mu.Lock()
	defer t.mu.Unlock()
	if same := t.affinities[said]; same != nil {
		return same
	}
	if len(t.affinities) < mostAffinities {
		t.affinities[said] = a
	}
	return a
}

// onlyDriver keeps what a CSINode says of one driver's topology.
func onlyDriver(drivers []storagev1.CSINodeDriver, name string) []storagev1.CSINodeDriver {
	for _, d := range drivers {
		if d.Name == name {
			for i, key := range d.TopologyKeys {
				d.TopologyKeys[i] = once(key)
			}
			return []storagev1.CSINodeDriver{{Name: name, TopologyKeys: d.TopologyKeys}}
		}
	}
	return nil
}

// shareKeys has labels share their keys with other objects' labels: an assignment
// replaces the key, too.
func shareKeys(labels map[string]string) {
	for key, value := range labels {
		labels[once(key)] = value
	}
}
