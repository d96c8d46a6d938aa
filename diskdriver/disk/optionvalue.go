package disk

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// values says which values an option takes.
type values interface {
	// read returns a value in the one spelling that is passed on; ok says whether it is allowed.
	read(word string) (canonical string, ok bool)
	// pattern is a regular expression (RE2) that matches every value that read takes.
	pattern() string
	// String says what is allowed, for users.
	String() string
}

// oneOf is a list of words.
type oneOf []string

func (o oneOf) read(word string) (string, bool) { return word, slices.Contains(o, word) }

func (o oneOf) String() string { return strings.Join(o, ", ") }

func (o oneOf) pattern() string {
	quoted := make([]string, len(o))
	for i, word := range o {
		quoted[i] = regexp.QuoteMeta(word)
	}
	return "(?:" + strings.Join(quoted, "|") + ")"
}

// onOff switches something on or off.
var onOff = oneOf{"0", "1"}

// number is a whole number.
type number struct {
	least, most uint64
	unit        bool // k, m, g or t may follow, for KiB, MiB, GiB and TiB
	power       bool // a power of two
}

// units are what a number may end in, and by how many bits each is larger than one.
var units = map[byte]int{'k': 10, 'm': 20, 'g': 30, 't': 40}

// read returns the number in decimal digits without a unit.
func (n number) read(word string) (string, bool) {
	value, ok := n.parse(word)
	if !ok || value < n.least || value > n.most || n.power && value&(value-1) != 0 {
		return "", false
	}
	return strconv.FormatUint(value, 10), true
}

func (n number) parse(word string) (uint64, bool) {
	shift := 0
	if n.unit && word != "" {
		if shift = units[word[len(word)-1]|0x20]; shift > 0 {
			word = word[:len(word)-1]
		}
	}
	value, err := strconv.ParseUint(word, 10, 64)
	return value << shift, err == nil && value<<shift>>shift == value
}

func (n number) pattern() string {
	if n.unit {
		return "[0-9]+[kmgtKMGT]?"
	}
	return "[0-9]+"
}

func (n number) String() string {
	kind := "a whole number"
	if n.power {
		kind = "a power of two"
	}
	if n.unit {
		return fmt.Sprintf("%s from %s to %s", kind, inUnits(n.least), inUnits(n.most))
	}
	return fmt.Sprintf("%s from %d to %d", kind, n.least, n.most)
}

// inUnits writes a number with the largest unit that leaves it whole.
func inUnits(value uint64) string {
	for _, unit := range []byte("tgmk") {
		if shift := units[unit]; value > 0 && value>>shift<<shift == value {
			return strconv.FormatUint(value>>shift, 10) + string(unit)
		}
	}
	return strconv.FormatUint(value, 10)
}

// percent is a share with up to two decimals.
type percent struct{ most float64 }

var percentForm = regexp.MustCompile(`^[0-9]{1,2}([.][0-9]{1,2})?$`)

func (p percent) read(word string) (string, bool) {
	value, err := strconv.ParseFloat(word, 64)
	return word, err == nil && percentForm.MatchString(word) && value <= p.most
}

func (p percent) pattern() string { return `[0-9]{1,2}(?:[.][0-9]{1,2})?` }

func (p percent) String() string {
	return fmt.Sprintf("a percentage from 0 to %g, with up to two decimals", p.most)
}

// text is what a regular expression matches.
type text struct {
	form *regexp.Regexp
	says string
}

func textOf(pattern, says string) text { return text{regexp.MustCompile("^" + pattern + "$"), says} }

func (t text) read(word string) (string, bool) { return word, t.form.MatchString(word) }

func (t text) pattern() string { return strings.Trim(t.form.String(), "^$") }

func (t text) String() string { return t.says }

// label is the name of a file system.
func label(most int) values {
	return textOf(fmt.Sprintf("[A-Za-z0-9_.][A-Za-z0-9_.-]{0,%d}", most-1),
		fmt.Sprintf("up to %d letters, digits, dots, dashes and underscores; no dash first", most))
}

const (
	selinuxName   = `[A-Za-z0-9_.-]+`
	selinuxPlain  = selinuxName + `(?::` + selinuxName + `)*`
	selinuxQuoted = selinuxPlain + `(?:,c[0-9]+(?:[.]c[0-9]+)?)*`
)

// selinuxContext is an SELinux context. Only its level has commas, in its categories, and only within quotes: the kernel splits
// options at commas, so nothing else may follow one.
var selinuxContext values = textOf(`(?:`+selinuxPlain+`|"`+selinuxQuoted+`")`,
	`an SELinux context, in double quotes if it has categories: "system_u:object_r:container_file_t:s0:c1,c2"`)
