package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// resource is a ResourceDescriptor of in-toto.
type resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

// prove writes how everything in dist was made, as in-toto's statement of SLSA's provenance, and returns the file.
func (r *release) prove(ctx context.Context) (string, error) {
	subjects, err := r.subjects()
	if err != nil {
		return "", err
	}
	goVersion, err := output(ctx, "go", "env", "GOVERSION")
	if err != nil {
		return "", err
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	tool, err := components(self, "")
	if err != nil {
		return "", err
	}
	debian, err := os.ReadFile("/etc/debian_version")
	if err != nil {
		return "", err
	}
	page := repository + "/blob/main/docs/release.md"
	commit := resource{URI: "git+" + repository, Digest: map[string]string{"gitCommit": r.commit}}
	architectures := strings.Join(r.architectures, ",")
	text, err := json.MarshalIndent(map[string]any{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       subjects,
		"predicateType": "https://slsa.dev/provenance/v1",
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType": page + "#how-it-is-made",
				"externalParameters": map[string]any{
					"command": fmt.Sprintf("make release VERSION=%s ARCHITECTURES=%s", r.version, architectures),
					"source":  "git+" + repository + "@" + r.commit, "version": r.version, "architectures": r.architectures,
				},
				"internalParameters":   map[string]any{"go": goVersion, "platform": runtime.GOOS + "/" + runtime.GOARCH},
				"resolvedDependencies": append([]resource{commit}, resources(r.materials)...),
			},
			"runDetails": map[string]any{
				"builder": map[string]any{
					"id":                  page + "#who-makes-it",
					"version":             map[string]string{"go": goVersion, "debian": strings.TrimSpace(string(debian))},
					"builderDependencies": resources(tool),
				},
				"metadata": map[string]any{"startedOn": stamp(r.started), "finishedOn": stamp(time.Now())},
			},
		},
	}, "", "  ")
	if err != nil {
		return "", err
	}
	file := filepath.Join(r.dist, "topodisk-"+r.version+".provenance.json")
	return file, os.WriteFile(file, append(text, '\n'), 0o644)
}

// subjects are the files of dist, and the images as registries know them.
func (r *release) subjects() ([]resource, error) {
	files, err := hashFiles(r.dist)
	if err != nil {
		return nil, err
	}
	all := slices.Clone(r.images)
	for _, file := range files {
		all = append(all, resource{Name: file.name, Digest: map[string]string{"sha256": file.hash}})
	}
	return all, nil
}

// imageResource is an image by its name in a registry and the digest of its index.
func imageResource(name, digest string) resource {
	_, hash, _ := strings.Cut(digest, ":")
	return resource{Name: name, Digest: map[string]string{"sha256": hash}}
}

// resources are the components in the order of their purls.
func resources(of map[string]component) (all []resource) {
	for _, purl := range slices.Sorted(maps.Keys(of)) {
		all = append(all, resource{URI: purl, Digest: of[purl].digest})
	}
	return all
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
