package request

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// PVNameSource says where the name of a PersistentVolume comes from.
type PVNameSource string

const (
	// VolumeID names a PersistentVolume after the disk's ID.
	VolumeID PVNameSource = "volume-id"
	// VolumeName names a PersistentVolume after its CSI volume name, <prefix>-<claim UID>.
	VolumeName PVNameSource = "volume-name"
)

// Options are what an operator may choose of requests and PersistentVolumes.
type Options struct {
	DriverName       string       // the CSI driver whose claims are provisioned
	Identity         string       // this process, in the PersistentVolume's attributes
	VolumeNamePrefix string       // CSI volume name = <prefix>-<claim UID>
	PVNameSource     PVNameSource // what a PersistentVolume is named after

	StrictTopology    bool   // a selected node's own topology is the only one asked for
	ImmediateTopology bool   // Immediate claims without allowedTopologies get all zones
	ExtraLabelPrefix  string // labels of the selected node that go into its topology

	DefaultFSType         string   // for classes that name none
	ExtraCreateMetadata   bool     // the claim's name and namespace go into the parameters
	ClaimAnnotations      []string // annotations of claims that are passed to the driver
	ClaimLabelTags        []string // labels of claims that become tags of their disks
	NamespaceLabelTags    []string // labels of namespaces that become tags of their claims' disks
	SingleNodeMultiWriter bool     // the driver's SINGLE_NODE_MULTI_WRITER
	ReadOnlyPublish       bool     // volumes of claims that are ReadOnlyMany alone are published for reading
}

// Validate returns an error that names the first field that is missing or
// wrong, its value and what is allowed.
func (o Options) Validate() error {
	switch {
	case o.DriverName == "":
		return fmt.Errorf("the driver's name is missing")
	case o.VolumeNamePrefix == "":
		return fmt.Errorf("--volume-name-prefix is empty; it must be a DNS label such as disk")
	case o.VolumeNamePrefix != strings.ToLower(o.VolumeNamePrefix):
		return fmt.Errorf("--volume-name-prefix=%s has upper-case letters; it becomes part of object names, which have none", o.VolumeNamePrefix)
	case o.PVNameSource != VolumeID && o.PVNameSource != VolumeName:
		return fmt.Errorf("--pv-name-source=%s; allowed are %s and %s", o.PVNameSource, VolumeID, VolumeName)
	}
	if err := checkLabelKeys("claim-label-tags", o.ClaimLabelTags); err != nil {
		return err
	}
	return checkLabelKeys("namespace-label-tags", o.NamespaceLabelTags)
}

func checkLabelKeys(flag string, keys []string) error {
	for _, key := range keys {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return fmt.Errorf("--%s: %q is no key of a label: %s", flag, key, strings.Join(problems, "; "))
		}
	}
	return nil
}

// VolumeName returns the CSI volume name of a claim: the key by which the
// driver finds the same volume on every retry.
func (o Options) VolumeName(claim *v1.PersistentVolumeClaim) (string, error) {
	uid := string(claim.UID)
	if uid == "" {
		return "", fmt.Errorf("claim %s/%s has no UID", claim.Namespace, claim.Name)
	}
	return o.VolumeNamePrefix + "-" + uid, nil
}
