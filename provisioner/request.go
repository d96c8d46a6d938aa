package provisioner

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/topodisk/topodisk/topology"
)

// Keys of a class's parameters that are for the provisioner.
const (
	reservedPrefix    = "csi.storage.k8s.io/"
	ownPrefix         = "topodisk.io/"
	fsTypeKey         = reservedPrefix + "fstype"
	strictTopologyKey = ownPrefix + "strict-topology"
)

// Keys that --extra-create-metadata adds to the parameters.
const (
	claimNameKey      = reservedPrefix + "pvc/name"
	claimNamespaceKey = reservedPrefix + "pvc/namespace"
	pvNameKey         = reservedPrefix + "pv/name"
)

// classSettings is a class's parameters, sorted by whom they are for.
type classSettings struct {
	parameters map[string]string // for the driver
	fsType     string
	strict     bool
}

// newOrder works out what to ask of the driver for the claim. An error comes
// with Finished if only another claim or class would help, with Unchanged if
// time might, with Reschedule if another node would.
func (p *Provisioner) newOrder(ctx context.Context, claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, node string) (*order, Outcome, error) {
	o, strict, err := p.plan(claim, class, node)
	if err != nil {
		return nil, Finished, err
	}
	if err := p.labelTags(ctx, o); err != nil {
		return nil, Unchanged, err
	}
	var outcome Outcome
	if o.request.AccessibilityRequirements, outcome, err = p.requirement(ctx, claim, class, node, strict); err != nil {
		return nil, outcome, err
	}
	if o.request.VolumeContentSource, outcome, err = p.content(ctx, claim); err != nil {
		return nil, outcome, err
	}
	if o.request.MutableParameters, outcome, err = p.attributes(ctx, claim); err != nil {
		return nil, outcome, err
	}
	if o.secrets, err = p.readSecret(ctx, o.refs.provisioner); err != nil {
		return nil, Unchanged, err
	}
	return o, Unchanged, nil
}

// plan works out what claim and class say of an order by themselves, and whether
// the selected node's topology is the only one to be asked for.
func (p *Provisioner) plan(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, node string) (o *order, strict bool, err error) {
	if claim.Spec.Selector != nil {
		return nil, false, fmt.Errorf("claim.spec.selector is set: a selector picks an existing volume, a new one cannot be made to match it; remove it, or name a class without a provisioner")
	}
	name, err := p.volumeName(claim)
	if err != nil {
		return nil, false, err
	}
	settings, err := p.settings(class)
	if err != nil {
		return nil, false, err
	}
	if err := p.passAnnotations(settings.parameters, claim); err != nil {
		return nil, false, err
	}
	capabilities, err := p.capabilities(claim, class, settings.fsType)
	if err != nil {
		return nil, false, err
	}
	refs, err := resolveSecrets(class.Parameters, name, claim)
	if err != nil {
		return nil, false, err
	}
	p.addMetadata(settings.parameters, claim, name)
	return &order{
		claim: claim, class: class, node: node, refs: refs, fsType: settings.fsType,
		request: &csi.CreateVolumeRequest{
			Name: name, CapacityRange: capacityRange(claim), VolumeCapabilities: capabilities, Parameters: settings.parameters,
		},
	}, settings.strict, nil
}

// volumeName returns the CSI volume name of a claim: the key by which the
// driver finds the same volume on every retry.
func (p *Provisioner) volumeName(claim *v1.PersistentVolumeClaim) (string, error) {
	uid := string(claim.UID)
	if uid == "" {
		return "", fmt.Errorf("claim %s/%s has no UID", claim.Namespace, claim.Name)
	}
	if n := p.config.VolumeNameUUID; n > 0 {
		uid = strings.ReplaceAll(uid, "-", "")
		uid = uid[:min(n, len(uid))]
	}
	return p.config.VolumeNamePrefix + "-" + uid, nil
}

// settings sorts a class's parameters.
func (p *Provisioner) settings(class *storagev1.StorageClass) (classSettings, error) {
	s := classSettings{parameters: map[string]string{}, fsType: p.config.DefaultFSType, strict: p.config.StrictTopology}
	var fsTypeKeys []string
	for _, key := range slices.Sorted(maps.Keys(class.Parameters)) {
		value := class.Parameters[key]
		switch {
		case strings.EqualFold(key, "fstype"):
			fsTypeKeys = append(fsTypeKeys, key)
			s.fsType = value
			s.parameters[key] = value
		case key == fsTypeKey:
			fsTypeKeys = append(fsTypeKeys, key)
			s.fsType = value
		case isSecretKey(key):
		case key == strictTopologyKey:
			strict, err := strconv.ParseBool(value)
			if err != nil {
				return s, fmt.Errorf("parameter %s=%q of class %s; allowed are true and false", key, value, class.Name)
			}
			s.strict = strict
		case strings.HasPrefix(key, reservedPrefix), strings.HasPrefix(key, ownPrefix):
			return s, fmt.Errorf("parameter %s of class %s is unknown; allowed of this prefix are %s", key, class.Name, strings.Join(ownKeys(), ", "))
		default:
			s.parameters[key] = value
		}
	}
	if len(fsTypeKeys) > 1 {
		return s, fmt.Errorf("class %s names the file system more than once, by %s; keep one", class.Name, strings.Join(fsTypeKeys, " and "))
	}
	return s, nil
}

// ownKeys lists the parameters that the provisioner consumes.
func ownKeys() []string {
	keys := []string{strictTopologyKey, fsTypeKey}
	for _, k := range allSecretKeys() {
		if strings.HasPrefix(k.name, reservedPrefix) {
			keys = append(keys, k.name, k.namespace)
		}
	}
	return keys
}

var accessModes = map[v1.PersistentVolumeAccessMode]csi.VolumeCapability_AccessMode_Mode{
	v1.ReadWriteOnce:    csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
	v1.ReadWriteOncePod: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
	v1.ReadOnlyMany:     csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
	v1.ReadWriteMany:    csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
}

// finerModes are what a driver with SINGLE_NODE_MULTI_WRITER is told instead.
var finerModes = map[v1.PersistentVolumeAccessMode]csi.VolumeCapability_AccessMode_Mode{
	v1.ReadWriteOnce:    csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
	v1.ReadWriteOncePod: csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
}

// capabilities returns a CSI capability for each of the claim's access modes.
func (p *Provisioner) capabilities(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, fsType string) ([]*csi.VolumeCapability, error) {
	var list []*csi.VolumeCapability
	for _, mode := range claim.Spec.AccessModes {
		csiMode, ok := accessModes[mode]
		if finer, has := finerModes[mode]; has && p.config.DriverTellsWriters {
			csiMode = finer
		}
		if !ok {
			return nil, fmt.Errorf("claim.spec.accessModes has %q; allowed are ReadWriteOnce, ReadWriteOncePod, ReadOnlyMany and ReadWriteMany", mode)
		}
		capability := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csiMode}}
		if isBlock(claim) {
			capability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		} else {
			capability.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: class.MountOptions}}
		}
		list = append(list, capability)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("claim.spec.accessModes is empty")
	}
	return list, nil
}

func isBlock(claim *v1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == v1.PersistentVolumeBlock
}

// capacityRange returns the claim's request and limit in bytes.
func capacityRange(claim *v1.PersistentVolumeClaim) *csi.CapacityRange {
	request := claim.Spec.Resources.Requests[v1.ResourceStorage]
	limit := claim.Spec.Resources.Limits[v1.ResourceStorage]
	return &csi.CapacityRange{RequiredBytes: request.Value(), LimitBytes: limit.Value()}
}

func (p *Provisioner) addMetadata(parameters map[string]string, claim *v1.PersistentVolumeClaim, volumeName string) {
	if !p.config.ExtraCreateMetadata {
		return
	}
	parameters[claimNameKey] = claim.Name
	parameters[claimNamespaceKey] = claim.Namespace
	parameters[pvNameKey] = volumeName
}

// requirement asks the topology where the volume may be.
func (p *Provisioner) requirement(ctx context.Context, claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, node string, strict bool) (*csi.TopologyRequirement, Outcome, error) {
	if !p.config.SupportsTopology {
		return nil, Unchanged, nil
	}
	requirement, err := p.topology.Require(p.question(claim, class, node, strict))
	if err != nil {
		outcome := p.outcomeOfTopology(ctx, claim, node, err)
		return nil, outcome, err
	}
	p.waiting.remove(claim.UID)
	p.warnOfTopology(claim, class, requirement)
	return requirement, Unchanged, nil
}

func (p *Provisioner) question(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, node string, strict bool) topology.Question {
	return topology.Question{
		ClaimName:        claim.Name,
		SelectedNode:     node,
		Allowed:          class.AllowedTopologies,
		Strict:           strict,
		Immediate:        p.config.ImmediateTopology,
		ExtraLabelPrefix: p.config.ExtraLabelPrefix,
	}
}

// warnOfTopology tells of a class whose allowedTopologies are not what they
// seem: one that constrains nothing, or one that allows where no node is yet.
func (p *Provisioner) warnOfTopology(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, requirement *csi.TopologyRequirement) {
	if len(class.AllowedTopologies) == 0 {
		return
	}
	if requirement == nil {
		p.events.Eventf(claim, v1.EventTypeWarning, reasonTopology, "allowedTopologies of class %s has an empty term, which allows every topology; remove it or name a zone", class.Name)
	}
	for _, term := range requirement.GetRequisite() {
		if !p.topology.Carried(term) {
			p.events.Eventf(claim, v1.EventTypeWarning, reasonTopology, "class %s allows %v, where no node has driver %s yet", class.Name, term.GetSegments(), p.config.DriverName)
		}
	}
}
