package ecssim

import (
	"encoding/json"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// parameters are those of one request. An empty value is as good as none,
// for the SDKs don't send empty values.
type parameters map[string]string

// integer returns a parameter as a number, or fallback if it is absent.
func (p parameters) integer(name string, fallback int) (int, *refusal) {
	v := p[name]
	if v == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		return 0, refuse(400, "InvalidParameter", "The specified parameter %s value %q is not valid: it must be an integer.", name, v)
	}
	return n, nil
}

// boolean returns a parameter as a truth value, or fallback if it is absent.
func (p parameters) boolean(name string, fallback bool) (bool, *refusal) {
	switch strings.ToLower(p[name]) {
	case "":
		return fallback, nil
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, refuse(400, "InvalidParameter", "The specified parameter %s value %q is not valid: it must be true or false.", name, p[name])
}

// numberedName is a parameter of the form Prefix.N or Prefix.N.Field.
type numberedName struct {
	n     int
	field string
	value string
}

// numberedNames returns the parameters Prefix.N and Prefix.N.Field, by N.
func (p parameters) numberedNames(prefix string) []numberedName {
	var out []numberedName
	for name, value := range p {
		rest, ok := strings.CutPrefix(name, prefix+".")
		if !ok {
			continue
		}
		digits, field, _ := strings.Cut(rest, ".")
		if n, err := strconv.Atoi(digits); err == nil && n > 0 {
			out = append(out, numberedName{n, field, value})
		}
	}
	sort.Slice(out, func(i, j int) bool {
		return out[i].n < out[j].n || out[i].n == out[j].n && out[i].field < out[j].field
	})
	return out
}

// list returns the values of Prefix.1, Prefix.2 and so on.
func (p parameters) list(prefix string) []string {
	var out []string
	for _, v := range p.numberedNames(prefix) {
		if v.field == "" {
			out = append(out, v.value)
		}
	}
	return out
}

func (p parameters) hasList(prefix string) bool { return len(p.numberedNames(prefix)) > 0 }

// jsonList returns the strings of a parameter that is a JSON array, and
// whether it was there: an empty array selects nothing, none at all selects
// everything. More than 100 strings are refused with tooMany, anything but an
// array of strings with malformed.
func (p parameters) jsonList(name string, tooMany, malformed func() *refusal) ([]string, bool, *refusal) {
	v := p[name]
	if v == "" {
		return nil, false, nil
	}
	var list []string
	if err := json.Unmarshal([]byte(v), &list); err != nil || list == nil {
		return nil, true, malformed()
	}
	if len(list) > 100 {
		return nil, true, tooMany()
	}
	return list, true, nil
}

// numbered puts N in place of the numbers in a parameter's name.
func numbered(name string) string {
	parts := strings.Split(name, ".")
	for i, part := range parts {
		if i > 0 && part != "" && strings.Trim(part, "0123456789") == "" {
			parts[i] = "N"
		}
	}
	return strings.Join(parts, ".")
}

// oneOf tells whether a parameter is absent or one of the allowed values.
func (p parameters) oneOf(name string, allowed ...string) bool {
	return p[name] == "" || slices.Contains(allowed, p[name])
}
