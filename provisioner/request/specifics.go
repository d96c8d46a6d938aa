package request

import (
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
)

// Specifics identifies what the driver is asked for beyond what every claim of the class asks for, but for size and topology: of two
// requests that differ in it, the answer to one tells nothing of the other. It is empty if there is nothing. What a request from the
// journal shares with its class is not known.
func (r *Request) Specifics() string {
	own := &csi.CreateVolumeRequest{
		Parameters: map[string]string{}, Secrets: map[string]string{},
		MutableParameters: r.Create.MutableParameters, VolumeContentSource: r.Create.VolumeContentSource,
	}
	for key, value := range r.Create.Parameters {
		if of, has := r.Class.Parameters[key]; !isLabel(key) && (!has || of != value) {
			own.Parameters[key] = value
		}
	}
	for _, capability := range r.Create.VolumeCapabilities {
		if isForNodes(capability) {
			own.VolumeCapabilities = append(own.VolumeCapabilities, &csi.VolumeCapability{AccessMode: capability.AccessMode})
		}
	}
	if ref := r.Secrets[ProvisionerSecret]; ref != nil && !r.isOfClass(ref) { // another Secret may be another account
		own.Secrets[ref.Namespace] = ref.Name
	}
	specifics, err := proto.MarshalOptions{Deterministic: true}.Marshal(own)
	if err != nil {
		return err.Error() // can't happen: strings of Kubernetes objects are UTF-8
	}
	if len(specifics) == 0 {
		return ""
	}
	sum := sha256.Sum256(specifics) // tenants choose how much they ask for
	return string(sum[:])
}

// isLabel says whether a parameter only names a volume or what it is for.
func isLabel(key string) bool {
	return slices.Contains([]string{claimNameKey, claimNamespaceKey, pvNameKey}, key) || strings.HasPrefix(key, tagPrefix)
}

// isForNodes says whether a capability is for several nodes.
func isForNodes(c *csi.VolumeCapability) bool {
	return slices.Contains([]csi.VolumeCapability_AccessMode_Mode{
		csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
	}, c.GetAccessMode().GetMode())
}

// isOfClass says whether every claim of the class has the Secret.
func (r *Request) isOfClass(ref *v1.SecretReference) bool {
	every, err := resolveCall(ProvisionerSecret, r.Class.Parameters, "", &v1.PersistentVolumeClaim{}) // templates stay empty
	return err == nil && every != nil && *every == *ref
}
