package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// kubectl apply refuses a field that the API server doesn't know.
func TestOldestKubernetesKnowsEveryField(t *testing.T) {
	plain, err := os.ReadFile(filepath.Join(repo, deployDir, "topodisk.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	presets, err := Presets(repo)
	if err != nil {
		t.Fatal(err)
	}
	manifests := map[string]string{"deploy/topodisk.yaml": string(plain)}
	for name, values := range presets {
		delete(values, "volumeAttributesClasses") // which need 1.34
		manifests[name], _, err = Render(repo, values, Release{Name: "topodisk", Namespace: "kube-system", Kubernetes: oldestKubernetes})
		if err != nil {
			t.Fatal(err)
		}
	}
	oldest := filepath.Join(t.TempDir(), "oldest")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", oldest, ".")
	build.Dir = "oldest"
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	decode := func(manifest string) (string, error) {
		command := exec.CommandContext(t.Context(), oldest)
		command.Stdin = strings.NewReader(manifest)
		output, err := command.CombinedOutput()
		return string(output), err
	}
	for name, manifest := range manifests {
		if output, err := decode(manifest); err != nil {
			t.Errorf("%s: %s", name, output)
		}
	}
	if output, err := decode(render(t, presets["minimal"])); err == nil || !strings.Contains(output, "nodeAllocatableUpdatePeriodSeconds") {
		t.Errorf("a field of Kubernetes 1.34 is not noticed: %v %s", err, output)
	}
	if output, err := decode(strings.ReplaceAll(string(plain), "[csinodes]", "[csidisks]")); err == nil ||
		!strings.Contains(output, "a rule is for csidisks.storage.k8s.io") {
		t.Errorf("a rule for an unknown resource is not noticed: %v %s", err, output)
	}
}

func TestVolumeAttributesClassesNeedKubernetes134(t *testing.T) {
	values := preset(t, "minimal", "volumeAttributesClasses: [{name: fast, parameters: {type: cloud_essd}}]")
	release := Release{Name: "topodisk", Namespace: "kube-system", Kubernetes: "v1.33.9"}
	_, _, err := Render(repo, values, release)
	if want := "volumeAttributesClasses are given and Kubernetes is v1.33.9: they need 1.34 or later"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	release.Kubernetes = "v1.34.0-aliyun.1"
	if _, _, err := Render(repo, values, release); err != nil {
		t.Error(err)
	}
}
