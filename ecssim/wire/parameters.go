package wire

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Parameters are those of one request, by name.
type Parameters map[string]string

// emptyCounts tells whether an empty value of a parameter is a value. These
// are the rules for a parameter that is sent empty, such as PerformanceLevel=:
//
//   - A mandatory one is missing, as if it had not been sent.
//   - One that the action's notEmpty names is refused with the code there.
//   - Of a tag, the empty text is a value: no key can be empty, a value can.
//     (The Go SDK v1 drops it, so that a tag of a new resource without a value
//     has the empty one, too.)
//   - Any other is as if it had not been sent: an empty ClientToken is none.
//     No public source says what ECS does with an empty integer or boolean;
//     users of the Go SDK v1, which does not send those, see this.
func emptyCounts(name string) bool {
	switch Numbered(name) {
	case "Tag.N.Key", "Tag.N.Value", "Tag.N.key", "Tag.N.value", "TagFilter.N.TagKey", "TagFilter.N.TagValues.N":
		return true
	}
	return false
}

// merge adds the parameters of a query or a form. A name that is there twice
// with different values is refused, for ECS does not say which one it takes.
func (p Parameters) merge(raw string) *Refusal {
	values, err := url.ParseQuery(raw)
	for name, v := range values {
		p[name] = v[0]
	}
	if err != nil {
		return Refuse(400, "InvalidParameter", "The parameters can't be read: %v.", err)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if v := values[name]; slices.ContainsFunc(v, func(other string) bool { return other != v[0] }) {
			return Refuse(400, "InvalidParameter", "The parameter %s is sent %d times with different values: once is allowed.", name, len(v))
		}
	}
	return nil
}

// Integer returns a parameter as a number, or fallback if it is absent.
func (p Parameters) Integer(name string, fallback int) (int, *Refusal) {
	v := p[name]
	if v == "" {
		return fallback, nil
	}
	n, err := ReadNumber(v)
	if err != nil {
		return 0, Refuse(400, "InvalidParameter", "The specified parameter %s value %q is not valid: it must be an integer.", name, v)
	}
	return n, nil
}

// ReadNumber reads digits, with a minus before them or not.
func ReadNumber(text string) (int, error) {
	if strings.HasPrefix(text, "+") {
		return 0, strconv.ErrSyntax
	}
	return strconv.Atoi(text)
}

// Boolean returns a parameter as a truth value, or fallback if it is absent.
func (p Parameters) Boolean(name string, fallback bool) (bool, *Refusal) {
	switch strings.ToLower(p[name]) {
	case "":
		return fallback, nil
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, Refuse(400, "InvalidParameter", "The specified parameter %s value %q is not valid: it must be true or false.", name, p[name])
}

// numberedName is a parameter of the form Prefix.N or Prefix.N.Field.
type numberedName struct {
	n     int
	field string
	value string
}

// numberedNames returns the parameters Prefix.N and Prefix.N.Field, by N.
func (p Parameters) numberedNames(prefix string) []numberedName {
	var out []numberedName
	for name, value := range p {
		rest, ok := strings.CutPrefix(name, prefix+".")
		if !ok {
			continue
		}
		digits, field, _ := strings.Cut(rest, ".")
		if n, ok := index(digits); ok {
			out = append(out, numberedName{n, field, value})
		}
	}
	sort.Slice(out, func(i, j int) bool {
		return out[i].n < out[j].n || out[i].n == out[j].n && out[i].field < out[j].field
	})
	return out
}

// List returns the values of Prefix.1, Prefix.2 and so on.
func (p Parameters) List(prefix string) []string {
	var out []string
	for _, v := range p.numberedNames(prefix) {
		if v.field == "" {
			out = append(out, v.value)
		}
	}
	return out
}

// HasList tells whether there is a Prefix.N.
func (p Parameters) HasList(prefix string) bool { return len(p.numberedNames(prefix)) > 0 }

// IDs returns the IDs of things of a kind, at most 100, in a parameter that is a
// JSON array, and whether it was there: an empty array selects nothing, none at
// all selects everything.
func (p Parameters) IDs(name, kind string) ([]string, bool, *Refusal) {
	v := p[name]
	if v == "" {
		return nil, false, nil
	}
	var list []string
	if err := json.Unmarshal([]byte(v), &list); err != nil || list == nil {
		return nil, true, Refuse(400, "InvalidParameter."+name, "The specified parameter %s is not valid: it must be a JSON array of %s IDs.", name, kind)
	}
	if len(list) > 100 {
		return nil, true, Refuse(403, "Invalid"+name+".Malformed", "The amount of specified %s IDs exceeds the limit of 100.", kind)
	}
	return list, true, nil
}

// index reads the N of Prefix.N, which counts from 1.
func index(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n > 0 && text == strconv.Itoa(n)
}

// Numbered puts N in place of the numbers from 1 on in a parameter's name.
func Numbered(name string) string {
	parts := strings.Split(name, ".")
	for i, part := range parts {
		if _, ok := index(part); ok && i > 0 {
			parts[i] = "N"
		}
	}
	return strings.Join(parts, ".")
}

// OneOf tells whether a parameter is absent or one of the allowed values.
func (p Parameters) OneOf(name string, allowed ...string) bool {
	return p[name] == "" || slices.Contains(allowed, p[name])
}

// Canonical returns the parameters but the named one in one string, equal for
// equal parameters alone.
func (p Parameters) Canonical(except string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if name != except {
			b.WriteString(percentEncode(name) + "=" + percentEncode(p[name]) + "&")
		}
	}
	return b.String()
}

// Between reads two times that bound others; absent ones are zero.
func (p Parameters) Between(first, last string) (from, to time.Time, no *Refusal) {
	for name, t := range map[string]*time.Time{first: &from, last: &to} {
		if p[name] == "" {
			continue
		}
		var err error
		if *t, err = time.Parse(MinuteTime, p[name]); err != nil {
			if *t, err = time.Parse(SecondTime, p[name]); err != nil {
				return from, to, Refuse(400, "InvalidParameter", "The specified parameter %s value %q is not valid: it must be UTC in the form yyyy-MM-ddTHH:mmZ.", name, p[name])
			}
		}
	}
	return from, to, nil
}
