// Package request turns a claim, its class and its selected node into a
// CreateVolumeRequest, and the driver's response into a PersistentVolume. It is
// pure: whatever has to be read from the API server is handed to it.
//
// NewPlan uses claim and class alone, Plan.Request adds what was read from other objects,
// Request.PersistentVolume describes the resulting volume.
// Request.Encode and Decode are the form in which a request outlives the process.
package request

import (
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/topology"
)

// Request is the CreateVolume request for a claim. It is immutable once the driver was called: every retry sends the same bytes but for the
// values of secrets, even if claim, class or node have changed.
type Request struct {
	Claim   *v1.PersistentVolumeClaim
	Class   *storagev1.StorageClass
	Node    string                   // the claim's selected node, empty for none
	Create  *csi.CreateVolumeRequest // without secrets
	Secrets SecretRefs               // references, never values
	FSType  string
}

// Plan is the part of a request that claim, class and selected node determine.
type Plan struct {
	options Options
	request *Request
	strict  bool // only the selected node's topology is acceptable
}

// Inputs are what a request takes from other objects than its claim and class.
type Inputs struct {
	NamespaceLabels   map[string]string        // of the claim's namespace; unused without Options.NamespaceLabelTags
	Requirement       *csi.TopologyRequirement // the answer to Plan.Question; nil for anywhere
	Source            *csi.VolumeContentSource // nil for an empty volume
	MutableParameters map[string]string        // of the claim's VolumeAttributesClass
}

// NewPlan returns an error if no volume can be provisioned for the claim until it
// or its class is changed.
func NewPlan(options Options, claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, node string) (*Plan, error) {
	if claim.Spec.Selector != nil {
		return nil, errors.New("claim.spec.selector is set: a selector picks an existing volume, a new one cannot be made to match it; " +
			"remove it, or name a class without a provisioner")
	}
	name, err := options.VolumeName(claim)
	if err != nil {
		return nil, err
	}
	settings, err := options.ClassSettings(class)
	if err != nil {
		return nil, err
	}
	if err := options.passAnnotations(settings.Parameters, claim); err != nil {
		return nil, err
	}
	capabilities, err := options.capabilities(claim, class, settings.FSType)
	if err != nil {
		return nil, err
	}
	size, err := capacityRange(claim)
	if err != nil {
		return nil, err
	}
	secrets, err := resolveSecrets(class.Parameters, name, claim)
	if err == nil {
		err = CheckSecrets(class)
	}
	if err != nil {
		return nil, err
	}
	options.addMetadata(settings.Parameters, claim, name)
	return &Plan{options: options, strict: settings.StrictTopology, request: &Request{
		Claim: claim, Class: class, Node: node, Secrets: secrets, FSType: settings.FSType,
		Create: &csi.CreateVolumeRequest{
			Name: name, CapacityRange: size, VolumeCapabilities: capabilities, Parameters: settings.Parameters,
		},
	}}, nil
}

// RequireNode makes the selected node's topology the only acceptable one, whatever the class says. A claim whose Pod has other
// claims needs it: volumes in two zones keep the Pod from every node.
func (p *Plan) RequireNode() { p.strict = true }

// Question is what the topology has to answer for Inputs.Requirement.
func (p *Plan) Question() topology.Question {
	return topology.Question{
		ClaimName:        p.request.Claim.Name,
		SelectedNode:     p.request.Node,
		Allowed:          p.request.Class.AllowedTopologies,
		Strict:           p.strict,
		Immediate:        p.options.ImmediateTopology,
		ExtraLabelPrefix: p.options.ExtraLabelPrefix,
	}
}

// Request completes the plan. It is called once.
func (p *Plan) Request(in Inputs) *Request {
	r := p.request
	p.options.addTags(r.Create.Parameters, r.Claim.Labels, in.NamespaceLabels)
	r.Create.AccessibilityRequirements = in.Requirement
	r.Create.VolumeContentSource = in.Source
	r.Create.MutableParameters = in.MutableParameters
	return r
}

// MayReschedule says whether another node may be selected if the driver is out of stock
// for this one.
func (r *Request) MayReschedule() bool {
	return r.Node != "" && r.Create.AccessibilityRequirements != nil
}

// Requisite returns the topologies that are acceptable; none stands for any.
func (r *Request) Requisite() []*csi.Topology {
	return r.Create.AccessibilityRequirements.GetRequisite()
}

// WithSecrets returns the message for the driver.
func (r *Request) WithSecrets(values map[string]string) *csi.CreateVolumeRequest {
	if len(values) == 0 {
		return r.Create
	}
	create := proto.Clone(r.Create).(*csi.CreateVolumeRequest)
	create.Secrets = values
	return create
}

// Check returns an error if the driver's response is not the volume asked for.
func (r *Request) Check(response *csi.CreateVolumeResponse) error {
	switch volume := response.GetVolume(); {
	case volume.GetVolumeId() == "":
		return fmt.Errorf("CreateVolume %s: the driver answered without a volume ID", r.Create.Name)
	case volume.CapacityBytes != 0 && volume.CapacityBytes < r.Create.CapacityRange.RequiredBytes:
		return fmt.Errorf("CreateVolume %s: volume %s has %d bytes, %d are required",
			r.Create.Name, volume.VolumeId, volume.CapacityBytes, r.Create.CapacityRange.RequiredBytes)
	case r.Create.VolumeContentSource != nil && volume.ContentSource == nil:
		return fmt.Errorf("CreateVolume %s: volume %s is empty, it was to be filled from %v", r.Create.Name, volume.VolumeId, r.Create.VolumeContentSource)
	}
	return nil
}

// IsRetained says whether the volume stays when its claim is gone.
func (r *Request) IsRetained() bool {
	return ptr.Deref(r.Class.ReclaimPolicy, v1.PersistentVolumeReclaimDelete) == v1.PersistentVolumeReclaimRetain
}

// IsSavedAs says whether the PersistentVolume is that of the request's volume.
func (r *Request) IsSavedAs(pv *v1.PersistentVolume) bool {
	return pv.Annotations[AnnVolumeName] == r.Create.Name
}
