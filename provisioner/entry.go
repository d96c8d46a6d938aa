package provisioner

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

// entry is an order as it stands in the journal: all that is needed to repeat
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

// encode writes an order down.
func encode(o *order) ([]byte, error) {
	request, err := proto.MarshalOptions{Deterministic: true}.Marshal(o.request)
	if err != nil {
		return nil, err
	}
	refs := entryRefs{}
	for _, purpose := range secretPurposes {
		if ref := *purpose.field(&o.refs); ref != nil {
			refs[purpose.prefix] = ref
		}
	}
	return json.Marshal(entry{
		Request: request, Node: o.node, FSType: o.fsType, Secrets: refs,
		Claim: entryClaim{
			Namespace: o.claim.Namespace, Name: o.claim.Name, UID: o.claim.UID,
			SelectedNode: o.claim.Annotations[annSelectedNode], Created: o.claim.CreationTimestamp, Spec: o.claim.Spec,
		},
		Class: entryClass{
			Name: o.class.Name, UID: o.class.UID, Provisioner: o.class.Provisioner,
			ReclaimPolicy: o.class.ReclaimPolicy, MountOptions: o.class.MountOptions, BindingMode: o.class.VolumeBindingMode,
		},
	})
}

// decode reads an order. Nobody knows what became of it, so its outcome is unknown.
func decode(data []byte) (*order, error) {
	var r entry
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	if r.Format > entryFormat {
		return nil, fmt.Errorf("it has format %d; this version reads formats up to %d", r.Format, entryFormat)
	}
	request := &csi.CreateVolumeRequest{}
	if err := proto.Unmarshal(r.Request, request); err != nil {
		return nil, err
	}
	if r.Claim.UID == "" || request.GetName() == "" {
		return nil, fmt.Errorf("it has no claim or no volume name")
	}
	o := &order{request: request, node: r.Node, fsType: r.FSType, unknown: true}
	for _, purpose := range secretPurposes {
		*purpose.field(&o.refs) = r.Secrets[purpose.prefix]
	}
	o.claim = &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Claim.Namespace, Name: r.Claim.Name, UID: r.Claim.UID, CreationTimestamp: r.Claim.Created,
			Annotations: map[string]string{annStorageProvisioner: r.Class.Provisioner, annBetaStorageProvisioner: r.Class.Provisioner},
		},
		Spec: r.Claim.Spec,
	}
	o.claim.Spec.StorageClassName = &r.Class.Name // an old claim may name it by annotation
	if r.Claim.SelectedNode != "" {
		o.claim.Annotations[annSelectedNode] = r.Claim.SelectedNode
	}
	o.class = &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: r.Class.Name, UID: r.Class.UID},
		Provisioner: r.Class.Provisioner, ReclaimPolicy: r.Class.ReclaimPolicy, MountOptions: r.Class.MountOptions,
		VolumeBindingMode: r.Class.BindingMode,
	}
	return o, nil
}
