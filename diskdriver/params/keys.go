package params

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// key is what a parameter's name means for a P.
type key[P any] struct {
	use
	set    func(p *P, value string) error       // nil: any value does; the error says what is allowed
	under  func(p *P, rest, value string) error // for a name that ends in "/": takes every name below it
	same   string                               // the name that means the same, and has the rest
	idle   string                               // why the parameter does nothing
	barred string                               // why it is refused, and what to do instead
}

// use is what docs/parameters.md says of a parameter.
type use struct {
	means   string
	values  string // what is allowed, with its unit
	without string // what holds if it isn't given
	rule    string // where the rule comes from: an action of ECS and its field, or Kubernetes
	by      string // the program that writes the parameter, if it isn't for the user to write
}

// keyTable is the names that a class may have.
type keyTable[P any] map[string]key[P]

// find returns the meaning of a name, if it has one; its set is bound to the
// name.
func (t keyTable[P]) find(name string) (key[P], bool) {
	if k, ok := t[name]; ok && k.under == nil {
		if k.same != "" {
			k = t[k.same]
		}
		return k, true
	}
	prefix, rest, _ := strings.Cut(name, "/")
	k := t[prefix+"/"]
	if k.under == nil || rest == "" {
		return key[P]{}, false
	}
	k.set = func(p *P, value string) error { return k.under(p, rest, value) }
	return k, true
}

// String lists the names that do something.
func (t keyTable[P]) String() string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if k := t[name]; k.barred == "" && k.idle == "" {
			names = append(names, k.written(name))
		}
	}
	return strings.Join(names, ", ")
}

// written is the name as a user writes it.
func (k key[P]) written(name string) string {
	if k.under != nil {
		return name + "<key>"
	}
	return name
}

// text keeps a value as it is. A second name for the same field may repeat the
// value, not change it.
func text[P any, S ~string](field func(*P) *S) func(*P, string) error {
	return func(p *P, value string) error {
		f := field(p)
		if *f != "" && *f != S(value) {
			return fmt.Errorf("another name of the same parameter says %q", *f)
		}
		*f = S(value)
		return nil
	}
}

// yesNo is the values of a truth, for users.
const yesNo = "yes or no"

// parsed keeps what a function makes of a value.
func parsed[P, T any](field func(*P) *T, parse func(string) (T, error)) func(*P, string) error {
	return func(p *P, value string) (err error) {
		*field(p), err = parse(value)
		return err
	}
}

// orNil is for a field that is nil if there is no value.
func orNil[T any](parse func(string) (T, error)) func(string) (*T, error) {
	return func(value string) (*T, error) {
		v, err := parse(value)
		return &v, err
	}
}

// listOf is for a list, each of whose elements is parsed.
func listOf[T any](parse func(string) (T, error)) func(string) ([]T, error) {
	return func(value string) (all []T, err error) {
		words, err := elements(value)
		if err != nil {
			return nil, err
		}
		for _, word := range words {
			v, err := parse(word)
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
		return all, nil
	}
}

// idleTruth wants a yes or no, and does nothing with it.
func idleTruth(_ *Class, value string) error {
	_, err := boolean(value)
	return err
}

func boolean(value string) (bool, error) {
	switch strings.ToLower(value) {
	case "true", "t", "yes", "1", "enabled":
		return true, nil
	case "false", "f", "no", "0", "disabled":
		return false, nil
	}
	return false, fmt.Errorf("allowed are true, yes, 1, enabled and false, no, 0, disabled")
}

// elements splits a list at its commas. Repeated elements count once.
func elements(value string) ([]string, error) {
	var all []string
	for e := range strings.SplitSeq(value, ",") {
		e = strings.TrimSpace(e)
		if e == "" {
			return nil, fmt.Errorf("an element of the list is empty; allowed is a list such as a,b")
		}
		if !slices.Contains(all, e) {
			all = append(all, e)
		}
	}
	return all, nil
}

// count reads a whole number from 0.
func count(value string) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("allowed is a whole number from 0")
	}
	return n, nil
}

// take sets every value in p, in the order of the names, so that the first
// error is always the same one. It returns what was taken and does nothing.
func take[P any](p *P, what string, values map[string]string, keys keyTable[P], unknown Unknown) (warnings []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name]
		k, known := keys.find(name)
		switch {
		case !known && unknown == Warn:
			warnings = append(warnings, fmt.Sprintf("%s %s is unknown and does nothing", what, name))
			continue
		case !known:
			return nil, disk.Errorf(disk.Invalid, "%s %s (value %q) is unknown; allowed are %s", what, name, value, keys)
		case value == "" && k.under == nil:
			continue
		case k.barred != "":
			return nil, disk.Errorf(disk.Invalid, "%s %s (value %q) is not supported: %s", what, name, value, k.barred)
		case k.idle != "":
			warnings = append(warnings, fmt.Sprintf("%s %s does nothing: %s", what, name, k.idle))
		}
		if k.set == nil {
			continue
		}
		if err := k.set(p, value); err != nil {
			return nil, disk.Errorf(disk.Invalid, "%s %s: %q is not allowed: %w", what, name, value, err)
		}
	}
	return warnings, nil
}
