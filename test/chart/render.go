// Package chart checks the Helm chart and everything that is made from it:
// values.yaml and the chart's README from its schema, the plain manifests of
// deploy from its templates. It has a go.mod of its own, for Helm is large and
// no part of the product.
package chart

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Places in the repository, relative to its root.
const (
	chartDir    = "charts/topodisk"
	deployDir   = "deploy"
	examplesDir = "deploy/examples"
	presetsDir  = "test/chart/testdata/presets"
)

// Release is what helm install is told beside the values.
type Release struct {
	Name      string
	Namespace string
	// Kubernetes is the version of the API server, such as v1.31.0; empty
	// stands for that of test/kube.
	Kubernetes string
}

const (
	kubernetes       = "v1.37.2" // of test/kube
	oldestKubernetes = "v1.31.0" // that topodisk supports; test/chart/oldest has its types
)

func capabilities(version string) *chartutil.Capabilities {
	if version == "" {
		version = kubernetes
	}
	c := *chartutil.DefaultCapabilities
	c.KubeVersion.Version = version
	return &c
}

// Render returns what `helm template` prints for the chart with these values
// over its defaults, and the notes that `helm install` ends with. An error
// names the value that is wrong or missing.
func Render(repo string, values map[string]any, release Release) (manifests, notes string, err error) {
	chart, err := loader.Load(filepath.Join(repo, chartDir))
	if err != nil {
		return "", "", err
	}
	options := chartutil.ReleaseOptions{Name: release.Name, Namespace: release.Namespace, Revision: 1, IsInstall: true}
	merged, err := chartutil.ToRenderValues(chart, values, options, capabilities(release.Kubernetes))
	if err != nil {
		return "", "", err
	}
	files, err := engine.Render(chart, merged)
	if err != nil {
		return "", "", err
	}
	notesFile := chart.Name() + "/templates/NOTES.txt"
	notes = files[notesFile]
	delete(files, notesFile)
	manifests, err = join(files)
	return manifests, notes, err
}

// join puts the documents one after another in the order in which Helm installs them.
func join(files map[string]string) (string, error) {
	_, sorted, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, manifest := range sorted {
		fmt.Fprintf(&b, "---\n# Source: %s\n%s\n", manifest.Name, strings.TrimSpace(manifest.Content))
	}
	return b.String(), nil
}

// Presets returns the values of every preset by its name.
func Presets(repo string) (map[string]map[string]any, error) {
	files, err := filepath.Glob(filepath.Join(repo, presetsDir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no presets in %s", filepath.Join(repo, presetsDir))
	}
	presets := map[string]map[string]any{}
	for _, file := range files {
		values, err := chartutil.ReadValuesFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		presets[strings.TrimSuffix(filepath.Base(file), ".yaml")] = values
	}
	return presets, nil
}

// Names returns the keys in order.
func Names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Objects parses YAML documents.
func Objects(manifests string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewBufferString(manifests), 4096)
	for {
		object := &unstructured.Unstructured{}
		switch err := decoder.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		case len(object.Object) == 0: // a document of comments alone
		case object.GetKind() == "" || object.GetAPIVersion() == "" || object.GetName() == "":
			return nil, fmt.Errorf("a document without apiVersion, kind or metadata.name: %v", object.Object)
		default:
			objects = append(objects, object)
		}
	}
}

// Manifests returns the objects of the plain YAML by the file that they are in:
// the rendered installation and every example.
func Manifests(repo string) (map[string][]*unstructured.Unstructured, error) {
	examples, err := filepath.Glob(filepath.Join(repo, examplesDir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(examples) == 0 {
		return nil, fmt.Errorf("no examples in %s", filepath.Join(repo, examplesDir))
	}
	manifests := map[string][]*unstructured.Unstructured{}
	for _, file := range append(examples, filepath.Join(repo, deployDir, "topodisk.yaml")) {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		objects, err := Objects(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		name, err := filepath.Rel(repo, file)
		if err != nil {
			return nil, err
		}
		manifests[name] = objects
	}
	return manifests, nil
}
