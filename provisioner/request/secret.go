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

// SecretRefs are the Secrets of one volume, by the call that needs them; nil
// for a call that needs none.
type SecretRefs struct {
	Provisioner, ControllerPublish, NodeStage, NodePublish, ControllerExpand, NodeExpand, ControllerModify *v1.SecretReference
}

// secretPurpose is one call that may need a Secret.
type secretPurpose struct {
	prefix string
	old    string
	field  func(*SecretRefs) **v1.SecretReference
}

// The Secrets for CreateVolume with DeleteVolume, and for the other calls to the controller.
var (
	provisionerSecret = secretPurpose{"provisioner-", "csiProvisionerSecret", func(r *SecretRefs) **v1.SecretReference { return &r.Provisioner }}
	publishSecret     = secretPurpose{"controller-publish-", "csiControllerPublishSecret",
		func(r *SecretRefs) **v1.SecretReference { return &r.ControllerPublish }}
	expandSecret = secretPurpose{"controller-expand-", "", func(r *SecretRefs) **v1.SecretReference { return &r.ControllerExpand }}
	modifySecret = secretPurpose{"controller-modify-", "", func(r *SecretRefs) **v1.SecretReference { return &r.ControllerModify }}
)

// secretPurposes lists the keys of a class: <prefix>secret-name and
// <prefix>secret-namespace, or <old>Name and <old>Namespace from before CSI 1.0.
// The key without a prefix is the default for all.
var secretPurposes = []secretPurpose{
	provisionerSecret,
	publishSecret,
	{"node-stage-", "csiNodeStageSecret", func(r *SecretRefs) **v1.SecretReference { return &r.NodeStage }},
	{"node-publish-", "csiNodePublishSecret", func(r *SecretRefs) **v1.SecretReference { return &r.NodePublish }},
	expandSecret,
	{"node-expand-", "", func(r *SecretRefs) **v1.SecretReference { return &r.NodeExpand }},
	modifySecret,
}

// secretKeys are the two parameters of a class that name a Secret.
type secretKeys struct{ name, namespace string }

var defaultSecretKeys = secretKeys{reservedPrefix + "secret-name", reservedPrefix + "secret-namespace"}

// allSecretKeys lists the keys for every purpose, the default ones last.
func allSecretKeys() []secretKeys {
	var all []secretKeys
	for _, purpose := range secretPurposes {
		all = append(all, purposeKeys(purpose.prefix))
		if purpose.old != "" {
			all = append(all, purpose.oldKeys())
		}
	}
	return append(all, defaultSecretKeys)
}

func purposeKeys(prefix string) secretKeys {
	return secretKeys{reservedPrefix + prefix + "secret-name", reservedPrefix + prefix + "secret-namespace"}
}

// isSecretKey says whether a key of a class is a reference to a Secret.
func isSecretKey(key string) bool {
	return slices.ContainsFunc(allSecretKeys(), func(k secretKeys) bool { return key == k.name || key == k.namespace })
}

// resolveSecrets returns the references of a class's parameters with their
// templates filled in for the claim.
func resolveSecrets(parameters map[string]string, volumeName string, claim *v1.PersistentVolumeClaim) (SecretRefs, error) {
	var refs SecretRefs
	for _, purpose := range secretPurposes {
		ref, err := resolvePurpose(purpose, parameters, volumeName, claim)
		if err != nil {
			return SecretRefs{}, err
		}
		*purpose.field(&refs) = ref
	}
	return refs, nil
}

// CheckSecrets refuses a class that names a Secret for some calls alone: ECS is asked for the others by the driver's own account, which
// doesn't have the disk, so that an unpublish succeeds while the disk stays attached, and an expansion never does.
func CheckSecrets(class *storagev1.StorageClass) error {
	if defaultSecretKeys.in(class.Parameters) {
		return nil
	}
	needed := []secretPurpose{provisionerSecret, publishSecret}
	if ptr.Deref(class.AllowVolumeExpansion, false) {
		needed = append(needed, expandSecret)
	}
	named := func(p secretPurpose) bool { return p.isNamed(class.Parameters) }
	var missing []string
	for _, purpose := range needed {
		if !named(purpose) {
			missing = append(missing, purposeKeys(purpose.prefix).name)
		}
	}
	if !slices.ContainsFunc([]secretPurpose{provisionerSecret, publishSecret, expandSecret, modifySecret}, named) || len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("class %s names a Secret for some calls, and has no %s: the driver would make these calls with its own account, which doesn't have the disk; "+
		"name a Secret for all calls by %s and %s", class.Name, strings.Join(missing, ", no "), defaultSecretKeys.name, defaultSecretKeys.namespace)
}

// isNamed says whether a class's parameters name a Secret for that call alone.
func (p secretPurpose) isNamed(parameters map[string]string) bool {
	return purposeKeys(p.prefix).in(parameters) || p.hasOld(parameters)
}

func (p secretPurpose) oldKeys() secretKeys { return secretKeys{p.old + "Name", p.old + "Namespace"} }

func (p secretPurpose) hasOld(parameters map[string]string) bool {
	return p.old != "" && p.oldKeys().in(parameters)
}

// resolvePurpose returns the reference for one call.
func resolvePurpose(purpose secretPurpose, parameters map[string]string, volumeName string, claim *v1.PersistentVolumeClaim) (*v1.SecretReference, error) {
	keys := purposeKeys(purpose.prefix)
	switch hasOld := purpose.hasOld(parameters); {
	case keys.in(parameters) && hasOld:
		return nil, fmt.Errorf("the class has parameters %s and %s; keep the former", keys.name, purpose.oldKeys().name)
	case keys.in(parameters):
	case hasOld:
		keys = purpose.oldKeys()
	default:
		keys = defaultSecretKeys
	}
	return resolveSecret(parameters, keys.name, keys.namespace, volumeName, claim)
}

// in says whether the parameters have one of the two keys.
func (k secretKeys) in(parameters map[string]string) bool {
	_, hasName := parameters[k.name]
	_, hasNamespace := parameters[k.namespace]
	return hasName || hasNamespace
}

func resolveSecret(parameters map[string]string, nameKey, namespaceKey, volumeName string, claim *v1.PersistentVolumeClaim) (*v1.SecretReference, error) {
	nameTemplate, hasName := parameters[nameKey]
	namespaceTemplate, hasNamespace := parameters[namespaceKey]
	switch {
	case !hasName && !hasNamespace:
		return nil, nil
	case !hasName:
		return nil, fmt.Errorf("the class has parameter %s but not %s; a Secret needs both", namespaceKey, nameKey)
	case !hasNamespace:
		return nil, fmt.Errorf("the class has parameter %s but not %s; a Secret needs both", nameKey, namespaceKey)
	}
	tokens := map[string]string{"pv.name": volumeName, "pvc.namespace": claim.Namespace}
	namespace, err := fillIn(namespaceKey, namespaceTemplate, tokens)
	if err != nil {
		return nil, err
	}
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return nil, fmt.Errorf("parameter %s: %q becomes %s, which is no namespace: %s", namespaceKey, namespaceTemplate, escape.Quoted(namespace), problems[0])
	}
	tokens["pvc.name"] = claim.Name
	for key, value := range claim.Annotations {
		tokens["pvc.annotations['"+key+"']"] = value
	}
	name, err := fillIn(nameKey, nameTemplate, tokens)
	if err != nil {
		return nil, err
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return nil, fmt.Errorf("parameter %s: %q becomes %s, which is no name of a Secret: %s", nameKey, nameTemplate, escape.Quoted(name), problems[0])
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
	return resolvePurpose(provisionerSecret, class.Parameters, volumeName, claim)
}
