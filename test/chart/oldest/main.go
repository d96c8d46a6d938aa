// Command oldest reads YAML documents and decodes each strictly into the Go types of the oldest Kubernetes that topodisk
// supports, as an API server of that version does for kubectl apply: an unknown kind or field is an error. Kinds of
// CustomResourceDefinitions have no such types; they are skipped. It has a go.mod of its own for these types.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// customGroups have the kinds of CustomResourceDefinitions that the chart makes objects of.
var customGroups = []string{"snapshot.storage.k8s.io/", "groupsnapshot.storage.k8s.io/", "monitoring.coreos.com/"}

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
	decoder, err := strictDecoder()
	if err != nil {
		return 0, err
	}
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
		if _, _, err := decoder.Decode(document, nil, nil); err != nil {
			wrong = append(wrong, fmt.Errorf("%s %s: %w", kind.Kind, kind.Name, err))
			continue
		}
		decoded++
	}
}

func strictDecoder() (runtime.Decoder, error) {
	scheme := runtime.NewScheme()
	types := runtime.NewSchemeBuilder(admissionregistrationv1.AddToScheme, appsv1.AddToScheme, corev1.AddToScheme,
		networkingv1.AddToScheme, policyv1.AddToScheme, rbacv1.AddToScheme, storagev1.AddToScheme)
	if err := types.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer(), nil
}

func isCustom(apiVersion string) bool {
	for _, group := range customGroups {
		if strings.HasPrefix(apiVersion, group) {
			return true
		}
	}
	return false
}
