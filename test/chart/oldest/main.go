// Command oldest reads YAML documents and decodes each strictly into the Go types of the oldest Kubernetes that topodisk
// supports, as an API server of that version does for kubectl apply: an unknown kind or field is an error. So is a rule of a
// role for a resource that is in no generally available API of that version. Kinds of CustomResourceDefinitions have no such
// types; they are skipped. It has a go.mod of its own for these types.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// customGroups have the kinds of CustomResourceDefinitions that the chart makes objects of, or lets programs read.
var customGroups = []string{"gateway.networking.k8s.io/", "snapshot.storage.k8s.io/", "groupsnapshot.storage.k8s.io/", "monitoring.coreos.com/"}

func main() {
	decoded, err := decodeAll(os.Stdin)
	if err == nil && decoded == 0 {
		err = errors.New("no object on standard input")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "oldest:", err)
		os.Exit(1)
	}
	fmt.Println(decoded, "objects decoded")
}

// decodeAll returns how many objects were decoded, and what is wrong with all others.
func decodeAll(in io.Reader) (decoded int, err error) {
	scheme := runtime.NewScheme()
	if err := types.AddToScheme(scheme); err != nil {
		return 0, err
	}
	decoder, resources := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer(), resourcesOf(scheme)
	var wrong []error
	for documents := yaml.NewYAMLReader(bufio.NewReader(in)); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return decoded, errors.Join(wrong...)
		}
		if err != nil {
			return decoded, err
		}
		var kind metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(document, &kind); err != nil {
			return decoded, err
		}
		if kind.Kind == "" || isCustom(kind.APIVersion) {
			continue
		}
		object, _, err := decoder.Decode(document, nil, nil)
		if err == nil {
			err = checkRules(object, resources)
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s %s: %w", kind.Kind, kind.Name, err))
			continue
		}
		decoded++
	}
}

// types are of the generally available APIs that the chart makes objects of, or lets programs use.
var types = runtime.NewSchemeBuilder(admissionregistrationv1.AddToScheme, appsv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme,
	coordinationv1.AddToScheme, corev1.AddToScheme, eventsv1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme,
	rbacv1.AddToScheme, storagev1.AddToScheme)

// later are resources that roles name for versions which have them. csi-resizer asks first whether the API server has them,
// disk-provisioner only for a claim that names one.
var later = []schema.GroupResource{{Group: "storage.k8s.io", Resource: "volumeattributesclasses"}}

// resourcesOf returns the resources of the kinds that the scheme knows.
func resourcesOf(scheme *runtime.Scheme) map[schema.GroupResource]bool {
	known := map[schema.GroupResource]bool{}
	for kind := range scheme.AllKnownTypes() {
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		known[plural.GroupResource()] = true
	}
	return known
}

// checkRules returns an error if a role names a resource that isn't known.
func checkRules(object runtime.Object, known map[schema.GroupResource]bool) error {
	var rules []rbacv1.PolicyRule
	switch role := object.(type) {
	case *rbacv1.ClusterRole:
		rules = role.Rules
	case *rbacv1.Role:
		rules = role.Rules
	}
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, name := range rule.Resources {
				name, _, _ = strings.Cut(name, "/") // the rest is a subresource
				resource := schema.GroupResource{Group: group, Resource: name}
				if !known[resource] && !isCustom(group+"/") && !slices.Contains(later, resource) {
					return fmt.Errorf("a rule is for %s, which no generally available API has", resource)
				}
			}
		}
	}
	return nil
}

func isCustom(apiVersion string) bool {
	for _, group := range customGroups {
		if strings.HasPrefix(apiVersion, group) {
			return true
		}
	}
	return false
}
