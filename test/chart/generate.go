package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v3/pkg/chartutil"
)

const valuesHeader = `# Values of the topodisk chart. Made from values.schema.json: change that file, then run make chart-update.
`

// Generated is a file that is made from the chart.
type Generated struct {
	Path string // in the repository
	Make func(repo string) (string, error)
}

// AllGenerated returns every such file, each after those that it is made from.
func AllGenerated() []Generated {
	return []Generated{
		{Path: chartDir + "/values.yaml", Make: valuesYAML},
		{Path: chartDir + "/files/dashboard.json", Make: dashboard},
		{Path: chartDir + "/README.md", Make: readme},
		{Path: deployDir + "/topodisk.yaml", Make: deployYAML},
	}
}

// valuesYAML writes the schema's defaults, each under its description.
func valuesYAML(repo string) (string, error) {
	schema, err := ReadSchema(repo)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(valuesHeader)
	err = writeValues(&b, schema, "")
	return b.String(), err
}

func writeValues(b *strings.Builder, schema *Schema, indent string) error {
	for _, property := range schema.Properties {
		if !hasDefault(property.Schema) {
			continue
		}
		if indent == "" {
			b.WriteString("\n")
		}
		for _, line := range wrap(property.Schema.Description, 110-len(indent)) {
			fmt.Fprintf(b, "%s# %s\n", indent, line)
		}
		if property.Schema.Default == nil {
			fmt.Fprintf(b, "%s%s:\n", indent, property.Name)
			if err := writeValues(b, property.Schema, indent+"  "); err != nil {
				return err
			}
			continue
		}
		text, err := defaultYAML(property)
		if err != nil {
			return err
		}
		for line := range strings.Lines(text) {
			b.WriteString(indent + line)
		}
	}
	return nil
}

// hasDefault says whether the schema or anything among its properties has a default.
func hasDefault(schema *Schema) bool {
	return schema.Default != nil || slices.ContainsFunc(schema.Properties, func(p Property) bool { return hasDefault(p.Schema) })
}

// defaultYAML turns {"name": default} into YAML with the keys in the schema's order.
func defaultYAML(property Property) (string, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(fmt.Appendf(nil, "{%q: %s}", property.Name, property.Schema.Default), &document); err != nil {
		return "", fmt.Errorf("default of %s: %w", property.Name, err)
	}
	useBlocks(&document)
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(&document); err != nil {
		return "", err
	}
	return b.String(), nil
}

var plain = regexp.MustCompile(`^[A-Za-z0-9]`)

// useBlocks drops JSON's braces and quotes where readers of YAML expect none.
func useBlocks(node *yaml.Node) {
	if len(node.Content) > 0 || plain.MatchString(node.Value) {
		node.Style = 0
	}
	for _, child := range node.Content {
		useBlocks(child)
	}
}

// wrap breaks a text into lines of at most width characters.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

const (
	tableBegin = "<!-- values: made from values.schema.json by make chart-update -->\n"
	tableEnd   = "<!-- end of values -->\n"
)

// readme returns the chart's README with a fresh table of values in its place.
func readme(repo string) (string, error) {
	schema, err := ReadSchema(repo)
	if err != nil {
		return "", err
	}
	file := filepath.Join(repo, chartDir, "README.md")
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	before, rest, found := strings.Cut(string(text), tableBegin)
	_, after, closed := strings.Cut(rest, tableEnd)
	if !found || !closed {
		return "", fmt.Errorf("%s has no place for the table of values: lines %q and %q", file, tableBegin, tableEnd)
	}
	return before + tableBegin + valuesTable(schema) + tableEnd + after, nil
}

// kubernetesFields are the fields of Kubernetes' own types, which readers know: they have no rows.
var kubernetesFields = regexp.MustCompile(`(affinity|env|topologySpreadConstraints)(\.|\[\])`)

// valuesTable has a row for every value that a user can set.
func valuesTable(schema *Schema) string {
	var b strings.Builder
	b.WriteString("| Value | Default | Meaning |\n|---|---|---|\n")
	schema.Walk("", func(path string, s *Schema) {
		switch {
		case kubernetesFields.MatchString(path):
			return
		case strings.HasSuffix(path, "affinity"): // one row
		case path == "global", strings.HasSuffix(path, "[]"), strings.HasSuffix(path, "<key>"):
			return // nothing that is set by itself
		case len(s.Properties) > 0:
			return // its parts have rows of their own
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", path, tableDefault(s), tableText.Replace(s.Description+tableAllowed(s)))
	})
	return b.String()
}

// tableText keeps Markdown from taking a description's characters for its own.
var tableText = strings.NewReplacer("|", "\\|", "<", "&lt;", "*", "\\*")

func tableDefault(s *Schema) string {
	var compact bytes.Buffer
	switch {
	case s.Default == nil:
		return ""
	case json.Compact(&compact, s.Default) != nil:
		return fmt.Sprintf("`%s`", s.Default)
	case compact.Len() > 60:
		return "see values.yaml"
	}
	return fmt.Sprintf("`%s`", compact.String())
}

func tableAllowed(s *Schema) string {
	var values []string
	for _, value := range s.Enum {
		if value != "" {
			values = append(values, "`"+value+"`")
		}
	}
	if len(values) == 0 {
		return ""
	}
	return " One of " + strings.Join(values, ", ") + "."
}

const deployHeader = `# The chart charts/topodisk as plain YAML, for clusters of Kubernetes 1.31 or later without Helm. Made by make chart-update, the same as
#   helm template topodisk charts/topodisk --kube-version 1.31 --namespace kube-system --values deploy/values.yaml
# Before kubectl apply, replace what deploy/values.yaml makes up, the region and the image, as deploy/kustomization.yaml does;
# and make the Secret topodisk-credentials in namespace kube-system with the keys access-key-id and access-key-secret.
`

// deployYAML renders the chart with the example values of deploy/values.yaml.
func deployYAML(repo string) (string, error) {
	values, err := chartutil.ReadValuesFile(filepath.Join(repo, deployDir, "values.yaml"))
	if err != nil {
		return "", err
	}
	manifests, _, err := Render(repo, values, Release{Name: "topodisk", Namespace: "kube-system", Kubernetes: oldestKubernetes})
	return deployHeader + manifests, err
}
