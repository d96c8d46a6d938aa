// Package config reads and checks what the simulator is set up with: each of
// its errors names the field, the value and what is allowed.
package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"
)

// Error is a value that the simulator can't work with.
type Error struct {
	Field   string // of a Config, or of an admin request
	Value   string
	Allowed string
}

// Error names the field, the value and what is allowed.
func (e *Error) Error() string {
	return fmt.Sprintf("ecssim: %s %q: allowed is %s", e.Field, e.Value, e.Allowed)
}

// Invalid returns an *Error.
func Invalid(field, value, allowed string) error { return &Error{field, value, allowed} }

// OneOf says that one of some names is allowed.
func OneOf(names []string) string { return "one of " + List(names) }

// List joins names for a message.
func List(names []string) string { return strings.Join(names, ", ") }

// Decode reads one JSON object without unknown fields into a struct. Its errors
// are *Errors.
func Decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			return Invalid("body", string(text), "one JSON object and nothing after it")
		}
		return nil
	}
	var known *Error
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &wrong):
		return Invalid(wrong.Field, wrong.Value, "a "+wrong.Type.String())
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		name := strings.Trim(strings.TrimPrefix(err.Error(), "json: unknown field "), `"`)
		return Invalid("field", name, OneOf(fieldNames(into)))
	}
	return Invalid("body", string(text), "a JSON object: "+err.Error())
}

// fieldNames returns the JSON names of a struct's fields.
func fieldNames(of any) []string {
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeOf(of).Elem()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// Duration reads a duration such as "1.5s"; an empty text is zero. Its error is
// an *Error with the field.
func Duration(field, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, Invalid(field, text, `a duration of zero or more, with its unit, such as "1.5s"`)
	}
	return d, nil
}
