package watch

import (
	"maps"
	"slices"
	"sync"
	"unique"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/provisioner/request"
)

// trimmer drops what the provisioner doesn't read before an object enters a cache, and
// interns equal values: memory grows with every claim and volume of the cluster, also
// those of other drivers.
type trimmer struct {
	requests    request.Options
	provisioned map[string]string // the annotations of a volume with none but its provisioner's

	mu         sync.Mutex
	affinities map[string]*v1.VolumeNodeAffinity // by their text
}

func newTrimmer(requests request.Options) *trimmer {
	return &trimmer{
		requests: requests, provisioned: map[string]string{request.AnnProvisionedBy: requests.DriverName},
		affinities: map[string]*v1.VolumeNodeAffinity{},
	}
}

// trim is a cache.TransformFunc. Of objects of the metadata client it takes for Nodes
// what trimNamespace doesn't get.
func (t *trimmer) trim(object any) (any, error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return object, nil //nolint:nilerr // A tombstone has nothing to be trimmed.
	}
	accessor.SetManagedFields(nil)
	switch o := object.(type) {
	case *v1.PersistentVolumeClaim:
		t.trimClaim(o)
	case *v1.PersistentVolume:
		t.trimVolume(o)
	case *storagev1.VolumeAttachment:
		trimMeta(&o.ObjectMeta)
		o.Status = storagev1.VolumeAttachmentStatus{}
		o.Spec.Source.InlineVolumeSpec = nil
	case *storagev1.CSINode:
		trimMeta(&o.ObjectMeta)
		o.Spec.Drivers = onlyDriver(o.Spec.Drivers, t.requests.DriverName)
	case *metav1.PartialObjectMetadata: // a Node
		labels := o.Labels
		trimMeta(&o.ObjectMeta)
		internKeys(labels)
		o.Labels = labels
	}
	return object, nil
}

// trimNamespace is a cache.TransformFunc for the metadata of Namespaces.
func (t *trimmer) trimNamespace(object any) (any, error) {
	namespace, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil // a tombstone has nothing to be trimmed
	}
	labels := namespace.Labels
	trimMeta(&namespace.ObjectMeta)
	namespace.Finalizers = nil
	maps.DeleteFunc(labels, func(key, _ string) bool { return !slices.Contains(t.requests.NamespaceLabelTags, key) })
	internKeys(labels)
	namespace.Labels = labels
	return namespace, nil
}

// trimMeta keeps what identifies an object, its finalizers and the named annotations.
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
		Name: m.Name, Namespace: intern(m.Namespace), UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		Finalizers: m.Finalizers, Annotations: kept,
	}
}

// intern returns one copy of equal strings.
func intern(text string) string { return unique.Make(text).Value() }

// trimClaim keeps of a claim without a volume that is for the driver or has no provisioner yet what a request is made from. Such a claim
// gets the older of the two annotations that name its provisioner, the only one that the controller library reads.
func (t *trimmer) trimClaim(claim *v1.PersistentVolumeClaim) {
	if request.IsOurs(claim, t.requests.DriverName) {
		t.requests.TrimClaim(claim)
		claim.Annotations[request.AnnBetaStorageProvisioner] = request.ProvisionerOf(claim)
		return
	}
	if request.ProvisionerOf(claim) == "" && claim.Spec.VolumeName == "" {
		t.requests.TrimClaim(claim)
		return
	}
	claim.Finalizers = slices.DeleteFunc(claim.Finalizers, func(f string) bool { return f != request.CloneFinalizer })
	if claim.Spec.VolumeName != "" && len(claim.Finalizers) == 0 {
		claim.Annotations, claim.Finalizers = nil, nil // it is neither provisioned nor protected any more
	}
	trimMeta(&claim.ObjectMeta, request.AnnStorageProvisioner, request.AnnBetaStorageProvisioner, request.AnnMigratedTo)
	claim.Finalizers = slices.Clone(claim.Finalizers) // without the room of the others
	for key, value := range claim.Annotations {
		claim.Annotations[key] = request.CutName(value)
	}
	claim.Spec = v1.PersistentVolumeClaimSpec{VolumeName: request.CutName(claim.Spec.VolumeName)}
	claim.Status = v1.PersistentVolumeClaimStatus{}
}

// finalizers are the finalizers that are kept of a PersistentVolume.
var finalizers = []string{request.Finalizer}

// trimVolume changes what it keeps in place: a copy would leave holes in the heap.
func (t *trimmer) trimVolume(pv *v1.PersistentVolume) {
	trimMeta(&pv.ObjectMeta, request.AnnProvisionedBy, request.AnnVolumeName, request.IdentityKey)
	if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != t.requests.DriverName {
		pv.Spec, pv.Status = v1.PersistentVolumeSpec{PersistentVolumeSource: onlyHandle(pv.Spec.CSI)}, v1.PersistentVolumeStatus{}
		return
	}
	t.noteIdentity(pv)
	if pv.Annotations[request.AnnProvisionedBy] == t.requests.DriverName {
		if pv.Annotations[request.AnnProvisionedBy] = t.requests.DriverName; len(pv.Annotations) == 1 {
			pv.Annotations = t.provisioned
		}
	}
	if request.HasFinalizer(pv) {
		pv.Finalizers = finalizers
	} else {
		pv.Finalizers = nil
	}
	source, ref := pv.Spec.CSI, pv.Spec.ClaimRef
	*source = v1.CSIPersistentVolumeSource{Driver: t.requests.DriverName, VolumeHandle: source.VolumeHandle}
	if source.VolumeHandle == pv.Name {
		source.VolumeHandle = pv.Name
	}
	if ref != nil {
		*ref = v1.ObjectReference{Namespace: intern(ref.Namespace), Name: ref.Name, UID: ref.UID}
	}
	pv.Spec = v1.PersistentVolumeSpec{
		PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimPolicy(intern(string(pv.Spec.PersistentVolumeReclaimPolicy))),
		StorageClassName:              intern(pv.Spec.StorageClassName),
		NodeAffinity:                  t.internAffinity(pv.Spec.NodeAffinity),
		PersistentVolumeSource:        v1.PersistentVolumeSource{CSI: source},
		ClaimRef:                      ref,
	}
	since := pv.Status.LastPhaseTransitionTime
	if pv.Status.Phase != v1.VolumeReleased {
		since = nil // read of released ones alone, which are few
	}
	pv.Status = v1.PersistentVolumeStatus{Phase: v1.PersistentVolumePhase(intern(string(pv.Status.Phase))), LastPhaseTransitionTime: since}
}

// noteIdentity notes which process has saved a volume in its annotations. Of one that no disk-provisioner has saved nobody asks for it.
func (t *trimmer) noteIdentity(pv *v1.PersistentVolume) {
	identity := pv.Spec.CSI.VolumeAttributes[request.IdentityKey]
	isRead := identity == t.requests.Identity || pv.Annotations[request.AnnVolumeName] != ""
	if identity != "" && isRead && pv.Annotations != nil {
		pv.Annotations[request.IdentityKey] = intern(identity)
	}
}

// onlyHandle keeps of another driver's volume which one it is: it may be a disk of this one's.
func onlyHandle(source *v1.CSIPersistentVolumeSource) v1.PersistentVolumeSource {
	if source == nil {
		return v1.PersistentVolumeSource{}
	}
	return v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: intern(source.Driver), VolumeHandle: source.VolumeHandle}}
}

// maxAffinities bounds the affinities that are interned: a cluster has few zones.
const maxAffinities = 1000

// internAffinity returns one copy of equal affinities.
func (t *trimmer) internAffinity(a *v1.VolumeNodeAffinity) *v1.VolumeNodeAffinity {
	if a == nil {
		return nil
	}
	text := a.String()
	t.mu.Lock()
	defer t.mu.Unlock()
	if same := t.affinities[text]; same != nil {
		return same
	}
	if len(t.affinities) < maxAffinities {
		t.affinities[text] = a
	}
	return a
}

// onlyDriver keeps the topology keys of one driver of a CSINode.
func onlyDriver(drivers []storagev1.CSINodeDriver, name string) []storagev1.CSINodeDriver {
	for _, d := range drivers {
		if d.Name == name {
			for i, key := range d.TopologyKeys {
				d.TopologyKeys[i] = intern(key)
			}
			return []storagev1.CSINodeDriver{{Name: name, TopologyKeys: d.TopologyKeys}}
		}
	}
	return nil
}

// internKeys interns the keys of labels: an assignment replaces the key, too.
func internKeys(labels map[string]string) {
	for key, value := range labels {
		labels[intern(key)] = value
	}
}
