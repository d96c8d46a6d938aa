package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Schema is the part of JSON Schema that values.schema.json uses. Reading one
// refuses every other keyword, so a misspelt one cannot go unnoticed.
type Schema struct {
	Schema               string          `json:"$schema"`
	Title                string          `json:"title"`
	Type                 types           `json:"type"`
	Description          string          `json:"description"`
	Default              json.RawMessage `json:"default"`
	Enum                 []string        `json:"enum"`
	Pattern              string          `json:"pattern"`
	MinLength            *int            `json:"minLength"`
	Minimum              *float64        `json:"minimum"`
	ExclusiveMinimum     *float64        `json:"exclusiveMinimum"`
	Maximum              *float64        `json:"maximum"`
	MinItems             *int            `json:"minItems"`
	MaxItems             *int            `json:"maxItems"`
	MaxProperties        *int            `json:"maxProperties"`
	PropertyNames        *Schema         `json:"propertyNames"`
	UniqueItems          bool            `json:"uniqueItems"`
	Items                *Schema         `json:"items"`
	Properties           properties      `json:"properties"`
	Required             []string        `json:"required"`
	AdditionalProperties *additional     `json:"additionalProperties"`
}

// types are the kinds of value that are taken: one, or a list of several.
type types []string

func (t *types) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte("[")) {
		return json.Unmarshal(text, (*[]string)(t))
	}
	*t = types{""}
	return json.Unmarshal(text, &(*t)[0])
}

// Property is one key of an object.
type Property struct {
	Name   string
	Schema *Schema
}

// properties keeps the keys in the order of the file, which is the order that readers see.
type properties []Property

func (p *properties) UnmarshalJSON(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if _, err := decoder.Token(); err != nil {
		return err
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return err
		}
		schema := &Schema{}
		if err := decodeStrictly(raw, schema); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		*p = append(*p, Property{Name: name.(string), Schema: schema})
	}
	return nil
}

// additional is false, or the schema of every key that properties does not name.
type additional struct {
	Schema *Schema
}

func (a *additional) UnmarshalJSON(text []byte) error {
	if string(text) == "false" {
		return nil
	}
	a.Schema = &Schema{}
	return decodeStrictly(text, a.Schema)
}

func decodeStrictly(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// ReadSchema reads the chart's values.schema.json.
func ReadSchema(repo string) (*Schema, error) {
	file := filepath.Join(repo, chartDir, "values.schema.json")
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	schema := &Schema{}
	if err := decodeStrictly(text, schema); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return schema, nil
}

// Walk calls visit for the schema and everything in it, top down, with a path
// like storageClasses[].name; the keys of a map appear as <key>.
func (s *Schema) Walk(path string, visit func(path string, s *Schema)) {
	visit(path, s)
	for _, property := range s.Properties {
		property.Schema.Walk(strings.TrimPrefix(path+"."+property.Name, "."), visit)
	}
	if s.Items != nil {
		s.Items.Walk(path+"[]", visit)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		s.AdditionalProperties.Schema.Walk(path+".<key>", visit)
	}
}
