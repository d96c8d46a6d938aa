package request

import (
	"encoding/json"
	"fmt"

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

// entry is a request as it stands in the journal: all that is needed to repeat
// its request byte for byte and to write its PersistentVolume, but no secret.
type entry struct {
	Format  int        `json:"format,omitempty"` // absent is 1
	Request []byte     `json:"request"`          // csi.CreateVolumeRequest, deterministic
	Node    string     `json:"node,omitempty"`
	FSType  string     `json:"fsType,omitempty"`
	Secrets entryRefs  `json:"secrets"`
	Claim   entryClaim `json:"claim"`
	Class   entryClass `json:"class"`
}

// entryRefs are references to Secrets, by purpose.
type entryRefs map[string]*v1.SecretReference

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

// Encode returns the request as it stands in the journal.
func (r *Request) Encode() ([]byte, error) {
	create, err := proto.MarshalOptions{Deterministic: true}.Marshal(r.Create)
	if err != nil {
		return nil, err
	}
	refs := entryRefs{}
	for _, purpose := range secretPurposes {
		if ref := *purpose.field(&r.Secrets); ref != nil {
			refs[purpose.prefix] = ref
		}
	}
	return json.Marshal(entry{
		Request: create, Node: r.Node, FSType: r.FSType, Secrets: refs,
		Claim: entryClaim{
			Namespace: r.Claim.Namespace, Name: r.Claim.Name, UID: r.Claim.UID,
			SelectedNode: r.Claim.Annotations[AnnSelectedNode], Created: r.Claim.CreationTimestamp, Spec: r.Claim.Spec,
		},
		Class: entryClass{
			Name: r.Class.Name, UID: r.Class.UID, Provisioner: r.Class.Provisioner,
			ReclaimPolicy: r.Class.ReclaimPolicy, MountOptions: r.Class.MountOptions, BindingMode: r.Class.VolumeBindingMode,
		},
	})
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
	r := &Request{Create: create, Node: e.Node, FSType: e.FSType}
	for _, purpose := range secretPurposes {
		*purpose.field(&r.Secrets) = e.Secrets[purpose.prefix]
	}
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
