package ecssim

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"time"
)

// DecodeStrict reads one JSON object without unknown fields into a struct. Its
// errors are *ConfigErrors that name the field and what is allowed.
func DecodeStrict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			return &ConfigError{"body", string(text), "one JSON object and nothing after it"}
		}
		return nil
	}
	var known *ConfigError
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &wrong):
		return &ConfigError{wrong.Field, wrong.Value, "a " + wrong.Type.String()}
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		name := strings.Trim(strings.TrimPrefix(err.Error(), "json: unknown field "), `"`)
		return &ConfigError{"field", name, "one of " + joined(fieldNames(into))}
	}
	return &ConfigError{"body", string(text), "a JSON object: " + err.Error()}
}

// fieldNames returns the JSON names of a struct's fields.
func fieldNames(of any) []string {
	t := reflect.TypeOf(of).Elem()
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// ReadDuration reads a duration such as "1.5s"; an empty text is zero. Its error
// is a *ConfigError with the field.
func ReadDuration(field, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, &ConfigError{field, text, `a duration of zero or more, with its unit, such as "1.5s"`}
	}
	return d, nil
}
