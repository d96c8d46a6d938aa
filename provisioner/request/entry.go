package request

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// entryFormat is the latest format of entries that this version reads. A version
// that adds a field which an older one may leave aside keeps it.
const entryFormat = 1

// maxEntry is how many bytes an entry may have. All claims share the journal, and what an entry has is the claim's owner's choice, too: a
// disk's tags may take 7 KB.
const maxEntry = 16 << 10

// entry is a request as it stands in the journal: all that is needed to repeat
// its request byte for byte and to write its PersistentVolume, but no secret.
type entry struct {
	Format  int        `json:"format,omitempty"` // absent is 1
	Request []byte     `json:"request"`          // csi.CreateVolumeRequest, deterministic
	Node    string     `json:"node,omitempty"`
	FSType  string     `json:"fsType,omitempty"`
	Secrets SecretRefs `json:"secrets"`
	Claim   entryClaim `json:"claim"`
	Class   entryClass `json:"class"`
}

type entryClaim struct {
	Namespace    string                       `json:"namespace"`
	Name         string                       `json:"name"`
	UID          types.UID                    `json:"uid"`
	SelectedNode string                       `json:"selectedNode,omitempty"`
	Created      metav1.Time                  `json:"created"`
	Spec         v1.PersistentVolumeClaimSpec `json:"spec"`
}

type entryClass struct {
	Name          string                            `json:"name"`
	UID           types.UID                         `json:"uid"`
	Provisioner   string                            `json:"provisioner"`
	ReclaimPolicy *v1.PersistentVolumeReclaimPolicy `json:"reclaimPolicy,omitempty"`
	MountOptions  []string                          `json:"mountOptions,omitempty"`
	BindingMode   *storagev1.VolumeBindingMode      `json:"bindingMode,omitempty"`
}

// Encode returns the request as it stands in the journal, or an error if it is too long for it.
func (r *Request) Encode() ([]byte, error) {
	create, err := proto.MarshalOptions{Deterministic: true}.Marshal(r.Create)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(entry{
		Request: create, Node: r.Node, FSType: r.FSType, Secrets: r.Secrets,
		Claim: entryClaim{
			Namespace: r.Claim.Namespace, Name: r.Claim.Name, UID: r.Claim.UID,
			SelectedNode: r.Claim.Annotations[AnnSelectedNode], Created: r.Claim.CreationTimestamp, Spec: entrySpec(r.Claim.Spec),
		},
		Class: entryClass{
			Name: r.Class.Name, UID: r.Class.UID, Provisioner: r.Class.Provisioner,
			ReclaimPolicy: r.Class.ReclaimPolicy, MountOptions: r.Class.MountOptions, BindingMode: r.Class.VolumeBindingMode,
		},
	})
	if err == nil && len(data) > maxEntry {
		return nil, fmt.Errorf("it has %d bytes as a record; at most %d are allowed: shorten the claim's spec and the annotations and labels that are passed to the driver, "+
			"or the class's parameters and mountOptions", len(data), maxEntry)
	}
	return data, err
}

// entrySpec returns what is read of a claim's spec.
func entrySpec(spec v1.PersistentVolumeClaimSpec) v1.PersistentVolumeClaimSpec {
	spec.AccessModes = withoutRepetitions(spec.AccessModes)
	spec.Resources = v1.VolumeResourceRequirements{Requests: onlyStorage(spec.Resources.Requests), Limits: onlyStorage(spec.Resources.Limits)}
	return spec
}

func onlyStorage(list v1.ResourceList) v1.ResourceList {
	size, has := list[v1.ResourceStorage]
	if !has {
		return nil
	}
	return v1.ResourceList{v1.ResourceStorage: size}
}

// withoutRepetitions returns the different ones of access modes, which Kubernetes lets a claim repeat.
func withoutRepetitions(modes []v1.PersistentVolumeAccessMode) []v1.PersistentVolumeAccessMode {
	var different []v1.PersistentVolumeAccessMode
	for _, mode := range modes {
		if !slices.Contains(different, mode) {
			different = append(different, mode)
		}
	}
	return different
}

// Decode reads a request that was encoded, by this version or an older one.
func Decode(data []byte) (*Request, error) {
	var e entry
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, err
	}
	if e.Format > entryFormat {
		return nil, fmt.Errorf("it has format %d; this version reads formats up to %d", e.Format, entryFormat)
	}
	create := &csi.CreateVolumeRequest{}
	if err := proto.Unmarshal(e.Request, create); err != nil {
		return nil, err
	}
	if e.Claim.UID == "" || create.GetName() == "" {
		return nil, fmt.Errorf("it has no claim or no volume name")
	}
	r := &Request{Create: create, Node: e.Node, FSType: e.FSType, Secrets: e.Secrets}
	r.Claim = &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.Claim.Namespace, Name: e.Claim.Name, UID: e.Claim.UID, CreationTimestamp: e.Claim.Created,
			Annotations: map[string]string{AnnStorageProvisioner: e.Class.Provisioner, AnnBetaStorageProvisioner: e.Class.Provisioner},
		},
		Spec: e.Claim.Spec,
	}
	r.Claim.Spec.StorageClassName = &e.Class.Name // an old claim may name it by annotation
	if e.Claim.SelectedNode != "" {
		r.Claim.Annotations[AnnSelectedNode] = e.Claim.SelectedNode
	}
	r.Class = &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: e.Class.Name, UID: e.Class.UID},
		Provisioner: e.Class.Provisioner, ReclaimPolicy: e.Class.ReclaimPolicy, MountOptions: e.Class.MountOptions,
		VolumeBindingMode: e.Class.BindingMode,
	}
	return r, nil
}
