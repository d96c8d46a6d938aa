package request

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
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

// ClassSettings are a class's parameters for the driver and for the provisioner.
type ClassSettings struct {
	Parameters     map[string]string // for the driver
	FSType         string
	StrictTopology bool
}

// ClassSettings parses a class's parameters. It returns an error if no volume of the class
// can be provisioned.
func (o Options) ClassSettings(class *storagev1.StorageClass) (ClassSettings, error) {
	s := ClassSettings{Parameters: map[string]string{}, FSType: o.DefaultFSType, StrictTopology: o.StrictTopology}
	var fsTypeKeys []string
	for _, key := range slices.Sorted(maps.Keys(class.Parameters)) {
		value := class.Parameters[key]
		switch {
		case strings.EqualFold(key, "fstype"):
			fsTypeKeys = append(fsTypeKeys, key)
			s.FSType = value
			s.Parameters[key] = value
		case key == fsTypeKey:
			fsTypeKeys = append(fsTypeKeys, key)
			s.FSType = value
		case isSecretKey(key):
		case key == strictTopologyKey:
			strict, err := strconv.ParseBool(value)
			if err != nil {
				return s, fmt.Errorf("parameter %s=%q of class %s; allowed are true and false", key, value, class.Name)
			}
			s.StrictTopology = strict
		case strings.HasPrefix(key, reservedPrefix), strings.HasPrefix(key, ownPrefix):
			return s, fmt.Errorf("parameter %s of class %s is unknown; allowed of this prefix are %s", key, class.Name, strings.Join(ownKeys(), ", "))
		default:
			s.Parameters[key] = value
		}
	}
	if len(fsTypeKeys) > 1 {
		return s, fmt.Errorf("class %s names the file system more than once, by %s; keep one", class.Name, strings.Join(fsTypeKeys, " and "))
	}
	return s, nil
}

// Consumed lists the parameters of a class that the provisioner takes for itself, under every name.
func Consumed() []string {
	keys := []string{strictTopologyKey, fsTypeKey}
	for _, k := range allSecretKeys() {
		keys = append(keys, k.name, k.namespace)
	}
	return keys
}

// ownKeys lists those of them whose prefix is the provisioner's.
func ownKeys() []string {
	return slices.DeleteFunc(Consumed(), func(key string) bool {
		return !strings.HasPrefix(key, reservedPrefix) && !strings.HasPrefix(key, ownPrefix)
	})
}

func (o Options) addMetadata(parameters map[string]string, claim *v1.PersistentVolumeClaim, volumeName string) {
	if !o.ExtraCreateMetadata {
		return
	}
	parameters[claimNameKey] = claim.Name
	parameters[claimNamespaceKey] = claim.Namespace
	parameters[pvNameKey] = volumeName
}
