package request

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/internal/escape"
)

// SecretRefs are the Secrets of one volume, by the call that needs them; a call that needs none is not there.
type SecretRefs map[string]*v1.SecretReference

// The calls that may need a Secret. A class names it by <call>secret-name and <call>secret-namespace.
const (
	ProvisionerSecret       = "provisioner-" // for CreateVolume and DeleteVolume
	controllerPublishSecret = "controller-publish-"
	nodeStageSecret         = "node-stage-"
	nodePublishSecret       = "node-publish-"
	controllerExpandSecret  = "controller-expand-"
	nodeExpandSecret        = "node-expand-"
	controllerModifySecret  = "controller-modify-"
	anySecret               = "" // the default for all
)

var secretCalls = []string{
	ProvisionerSecret, controllerPublishSecret, nodeStageSecret, nodePublishSecret, controllerExpandSecret, nodeExpandSecret, controllerModifySecret,
}

// secretKeys are the two parameters of a class that name a Secret.
type secretKeys struct{ name, namespace string }

func secretKeysOf(call string) secretKeys {
	return secretKeys{reservedPrefix + call + "secret-name", reservedPrefix + call + "secret-namespace"}
}

// oldSecretKeys are the keys from before CSI 1.0. Calls that were added since have none.
var oldSecretKeys = map[string]secretKeys{
	ProvisionerSecret:       {"csiProvisionerSecretName", "csiProvisionerSecretNamespace"},
	controllerPublishSecret: {"csiControllerPublishSecretName", "csiControllerPublishSecretNamespace"},
	nodeStageSecret:         {"csiNodeStageSecretName", "csiNodeStageSecretNamespace"},
	nodePublishSecret:       {"csiNodePublishSecretName", "csiNodePublishSecretNamespace"},
}

// allSecretKeys lists the keys for every call, the default ones last.
func allSecretKeys() []secretKeys {
	var all []secretKeys
	for _, call := range secretCalls {
		all = append(all, secretKeysOf(call))
		if old, ok := oldSecretKeys[call]; ok {
			all = append(all, old)
		}
	}
	return append(all, secretKeysOf(anySecret))
}

// isSecretKey says whether a key of a class is a reference to a Secret.
func isSecretKey(key string) bool {
	return slices.ContainsFunc(allSecretKeys(), func(k secretKeys) bool { return key == k.name || key == k.namespace })
}

// resolveSecrets returns the references of a class's parameters with their
// templates filled in for the claim.
func resolveSecrets(parameters map[string]string, volumeName string, claim *v1.PersistentVolumeClaim) (SecretRefs, error) {
	refs := SecretRefs{}
	for _, call := range secretCalls {
		ref, err := resolveCall(call, parameters, volumeName, claim)
		if err != nil {
			return nil, err
		}
		if ref != nil {
			refs[call] = ref
		}
	}
	return refs, nil
}

// CheckSecrets refuses a class that names a Secret for some calls alone: ECS is asked for the others by the driver's own account, which
// doesn't have the disk, so that an unpublish succeeds while the disk stays attached, and an expansion never does.
func CheckSecrets(class *storagev1.StorageClass) error {
	if secretKeysOf(anySecret).in(class.Parameters) {
		return nil
	}
	needed := []string{ProvisionerSecret, controllerPublishSecret}
	if ptr.Deref(class.AllowVolumeExpansion, false) {
		needed = append(needed, controllerExpandSecret)
	}
	isNamed := func(call string) bool {
		return secretKeysOf(call).in(class.Parameters) || oldSecretKeys[call].in(class.Parameters)
	}
	var missing []string
	for _, call := range needed {
		if !isNamed(call) {
			missing = append(missing, secretKeysOf(call).name)
		}
	}
	named := slices.ContainsFunc([]string{ProvisionerSecret, controllerPublishSecret, controllerExpandSecret, controllerModifySecret}, isNamed)
	if !named || len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("class %s names a Secret for some calls, and has no %s: the driver would make these calls with its own account, which doesn't have the disk; "+
		"name a Secret for all calls by %s and %s", class.Name, strings.Join(missing, ", no "), secretKeysOf(anySecret).name, secretKeysOf(anySecret).namespace)
}

// resolveCall returns the reference for one call.
func resolveCall(call string, parameters map[string]string, volumeName string, claim *v1.PersistentVolumeClaim) (*v1.SecretReference, error) {
	keys, old := secretKeysOf(call), oldSecretKeys[call]
	switch hasOld := old.in(parameters); {
	case keys.in(parameters) && hasOld:
		return nil, fmt.Errorf("the class has parameters %s and %s; keep the former", keys.name, old.name)
	case keys.in(parameters):
	case hasOld:
		keys = old
	default:
		keys = secretKeysOf(anySecret)
	}
	return resolveSecret(parameters, keys, volumeName, claim)
}

// in says whether the parameters have one of the two keys. No key is empty.
func (k secretKeys) in(parameters map[string]string) bool {
	_, hasName := parameters[k.name]
	_, hasNamespace := parameters[k.namespace]
	return hasName || hasNamespace
}

func resolveSecret(parameters map[string]string, keys secretKeys, volumeName string, claim *v1.PersistentVolumeClaim) (*v1.SecretReference, error) {
	nameTemplate, hasName := parameters[keys.name]
	namespaceTemplate, hasNamespace := parameters[keys.namespace]
	switch {
	case !hasName && !hasNamespace:
		return nil, nil
	case !hasName:
		return nil, fmt.Errorf("the class has parameter %s but not %s; a Secret needs both", keys.namespace, keys.name)
	case !hasNamespace:
		return nil, fmt.Errorf("the class has parameter %s but not %s; a Secret needs both", keys.name, keys.namespace)
	}
	tokens := map[string]string{"pv.name": volumeName, "pvc.namespace": claim.Namespace}
	namespace, err := fillIn(keys.namespace, namespaceTemplate, tokens)
	if err != nil {
		return nil, err
	}
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return nil, fmt.Errorf("parameter %s: %q becomes %s, which is no namespace: %s", keys.namespace, namespaceTemplate, escape.Quoted(namespace), problems[0])
	}
	tokens["pvc.name"] = claim.Name
	for key, value := range claim.Annotations {
		tokens["pvc.annotations['"+key+"']"] = value
	}
	name, err := fillIn(keys.name, nameTemplate, tokens)
	if err != nil {
		return nil, err
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return nil, fmt.Errorf("parameter %s: %q becomes %s, which is no name of a Secret: %s", keys.name, nameTemplate, escape.Quoted(name), problems[0])
	}
	return &v1.SecretReference{Name: name, Namespace: namespace}, nil
}

// fillIn replaces ${token} in a template and refuses a token that has no value.
func fillIn(key, template string, tokens map[string]string) (string, error) {
	var unknown []string
	filled := os.Expand(template, func(token string) string {
		value, ok := tokens[token]
		if !ok {
			unknown = append(unknown, token)
		}
		return value
	})
	if len(unknown) > 0 {
		allowed := slices.DeleteFunc(slices.Sorted(maps.Keys(tokens)), func(token string) bool {
			return strings.HasPrefix(token, "pvc.annotations")
		})
		if _, named := tokens["pvc.name"]; named {
			allowed = append(allowed, "pvc.annotations['KEY']")
		}
		return "", fmt.Errorf("parameter %s: %q has unknown token %q; allowed are %s", key, template, unknown[0], strings.Join(allowed, ", "))
	}
	return filled, nil
}

// DeletionSecret returns the Secret that the PersistentVolume names for its
// deletion, nil for none. Named is false if it says nothing of one, as those do
// that were made before provisioners noted it.
func DeletionSecret(pv *v1.PersistentVolume) (ref *v1.SecretReference, named bool) {
	name, named := pv.Annotations[AnnDeletionSecretName]
	namespace := pv.Annotations[AnnDeletionSecretNamespace]
	if name == "" || namespace == "" {
		return nil, named
	}
	return &v1.SecretReference{Name: name, Namespace: namespace}, named
}

// ClassDeletionSecret returns the Secret that the PersistentVolume's class names
// for its deletion, nil for none.
func ClassDeletionSecret(class *storagev1.StorageClass, pv *v1.PersistentVolume) (*v1.SecretReference, error) {
	claim := &v1.PersistentVolumeClaim{}
	if ref := pv.Spec.ClaimRef; ref != nil {
		claim.Name, claim.Namespace = ref.Name, ref.Namespace
	}
	volumeName := pv.Annotations[AnnVolumeName]
	if volumeName == "" {
		volumeName = pv.Name
	}
	return resolveCall(ProvisionerSecret, class.Parameters, volumeName, claim)
}
