package disk

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// MkfsOptions are options of mkfs for one file system, understood: they hold settings, and words are made of them again.
type MkfsOptions struct {
	filesystem string
	settings   []mkfsSetting
}

// mkfsSetting is one thing that options of mkfs set.
type mkfsSetting struct {
	flag  string // such as -E
	name  string // in the list of the flag; empty if the flag is no list
	value string
	given bool // there is a value
}

// text is the setting without its flag.
func (s mkfsSetting) text() string {
	if s.name != "" && s.given {
		return s.name + "=" + s.value
	}
	return s.name + s.value
}

// LongestMkfsOptions is how long the options of mkfs of a class may be, in bytes; those of an old volume may be longer.
const (
	LongestMkfsOptions = 1000
	longestOldOptions  = 10 * LongestMkfsOptions
)

func tooLongError(text string, most int) error {
	return Errorf(Invalid, "%s is not allowed: it has %d characters, and up to %d are allowed", quoted(text), len(text), most)
}

// ParseMkfsOptions understands a class's options of mkfs: words between spaces, as on a command line. Options that are neither on the
// list nor allowed by the operator are Invalid; the error names the option, its value and what is allowed.
func ParseMkfsOptions(filesystem, text string, allowed AllowedOptions) (MkfsOptions, error) {
	if len(text) > LongestMkfsOptions {
		return MkfsOptions{}, tooLongError(text, LongestMkfsOptions)
	}
	options, unlisted, err := ReadMkfsOptions(filesystem, text, allowed)
	if err == nil && len(unlisted) > 0 {
		err = unlisted[0]
	}
	if err != nil {
		return MkfsOptions{}, err
	}
	return options, nil
}

// ReadMkfsOptions understands the options of a volume that may be older than the list. It takes options that are not on it, too, and
// returns why each of them would be refused today. Options that name a file, a directory or a device, or that let an error stop the
// node, are Invalid.
func ReadMkfsOptions(filesystem, text string, allowed AllowedOptions) (options MkfsOptions, unlisted []error, err error) {
	p := programs[filesystem]
	settings, err := p.split(text)
	if err == nil && len(text) > longestOldOptions {
		err = tooLongError(text, longestOldOptions)
	}
	if err != nil {
		return MkfsOptions{}, nil, err
	}
	options.filesystem = filesystem
	for _, s := range settings {
		if p.isBarred(s, allowed) {
			return MkfsOptions{}, nil, p.barredError(s)
		}
		canonical, idle, refusal := p.judge(s, allowed)
		if refusal != nil {
			unlisted = append(unlisted, refusal)
		}
		if !idle && !p.isEmpty(s) {
			options.set(canonical)
		}
	}
	return options, unlisted, nil
}

// split reads words as getopt does. Words that are no options are Invalid: mkfs would take them for the device.
func (p program) split(text string) (settings []mkfsSetting, err error) {
	words := strings.Fields(text)
	for i := 0; i < len(words); i++ {
		word := words[i]
		if len(word) < 2 || word[0] != '-' || word[1] == '-' {
			return nil, Errorf(Invalid, "%s is not allowed: allowed are options of %s, such as -q, and their values", quoted(word), p.name)
		}
		for rest := word[1:]; rest != ""; {
			flag := "-" + rest[:1]
			rest = rest[1:]
			switch {
			case !strings.Contains(p.alone+p.valued, flag[1:]):
				return nil, Errorf(Invalid, "option %s of %s is not allowed; allowed are %s", quoted(flag), p.name, p.flags())
			case strings.Contains(p.alone, flag[1:]):
				settings = append(settings, mkfsSetting{flag: flag})
				continue
			}
			if rest == "" {
				if i++; i == len(words) {
					return nil, Errorf(Invalid, "option %s of %s: its value is missing", flag, p.name)
				}
				rest = words[i]
			}
			settings = append(settings, p.settings(flag, rest)...)
			rest = ""
		}
	}
	return settings, nil
}

// settings splits the value of a flag. -R is the old name of -E.
func (p program) settings(flag, value string) (all []mkfsSetting) {
	if !strings.Contains(p.lists, flag[1:]) {
		return []mkfsSetting{{flag: flag, value: value, given: true}}
	}
	if flag == "-R" {
		flag = "-E"
	}
	for item := range strings.SplitSeq(value, ",") {
		name, value, given := strings.Cut(item, "=")
		if name == "" {
			name, value, given = item, "", false
		}
		all = append(all, mkfsSetting{flag: flag, name: name, value: value, given: given})
	}
	return all
}

// isBarred says whether a setting names a file, a directory or a device, or lets an error stop the node. The operator can allow the
// latter.
func (p program) isBarred(s mkfsSetting, allowed AllowedOptions) bool {
	if s.flag == "-e" && s.value == "panic" {
		return !allowed.hasMkfs(s)
	}
	if s.flag == "-l" && s.name == "internal" {
		return s.given && s.value != "1"
	}
	return strings.Contains(p.files, s.flag[1:]) || s.name != "" && strings.Contains(p.others[s.flag], " "+s.name+" ") ||
		strings.Contains(s.text(), "/") || strings.ContainsFunc(s.text(), unicode.IsControl)
}

// isEmpty says whether a setting is nothing between two commas.
func (p program) isEmpty(s mkfsSetting) bool {
	return strings.Contains(p.lists, s.flag[1:]) && s.name == ""
}

func (p program) barredError(s mkfsSetting) error {
	if s.flag == "-e" && s.value == "panic" {
		return Errorf(Invalid, `option -e of %s: "panic" is not allowed, for an error of one volume would stop the node; allowed are continue, remount-ro`, p.name)
	}
	return Errorf(Invalid, "option %s of %s: %s is not allowed: no option may name a file, a directory or a device", s.flag, p.name, quoted(s.text()))
}

// judge returns a setting in the one spelling that is passed on, and whether it is passed on at all; or it as it is, and why it is
// refused.
func (p program) judge(s mkfsSetting, allowed AllowedOptions) (canonical mkfsSetting, idle bool, refusal error) {
	if allowed.hasMkfs(s) {
		return s, false, nil
	}
	o, known := mkfsOption(p.filesystem, s.flag, s.name)
	switch {
	case !known && !strings.Contains(p.flags(), s.flag):
		return s, false, Errorf(Invalid, "option %s of %s is not allowed; allowed are %s", s.flag, p.name, p.flags())
	case !known:
		return s, false, Errorf(Invalid, "option %s of %s: %s is not allowed; allowed are %s", s.flag, p.name, quoted(s.text()), p.names(s.flag))
	case o.takes == nil && s.given:
		return s, false, Errorf(Invalid, "option %s of %s: %s is not allowed: %s takes no value", s.flag, p.name, quoted(s.text()), s.name)
	case o.takes == nil:
		return s, o.idle, nil
	case !s.given && o.absent != "":
		s.value, s.given = o.absent, true
	}
	value, ok := o.takes.read(s.value)
	if !ok {
		return s, false, Errorf(Invalid, "option %s of %s: %s is not allowed; allowed: %s", s.flag, p.name, quoted(s.text()), o.Values())
	}
	s.value = value
	return s, o.idle, nil
}

// set adds a setting. A later one takes the place of an earlier one of the same name, as it does in mkfs.ext4; mkfs.xfs refuses both.
func (o *MkfsOptions) set(s mkfsSetting) {
	same := func(other mkfsSetting) bool {
		return other.flag == s.flag && strings.TrimPrefix(other.name, "^") == strings.TrimPrefix(s.name, "^")
	}
	o.settings = append(slices.DeleteFunc(o.settings, same), s)
}

// has says whether the options set something.
func (o MkfsOptions) has(flag, name string) bool {
	return slices.ContainsFunc(o.settings, func(s mkfsSetting) bool { return s.flag == flag && s.name == name })
}

// WithoutDiscard returns the options with the one that keeps mkfs from discarding what is on the device.
func (o MkfsOptions) WithoutDiscard() MkfsOptions {
	keep := mkfsSetting{flag: "-E", name: "nodiscard"}
	if o.filesystem == "xfs" {
		keep = mkfsSetting{flag: "-K"}
	}
	o.settings = slices.Clone(o.settings)
	o.set(keep)
	return o
}

// Words returns the words of the command line. All settings of a flag are in one list, for mkfs.ext4 goes by the last list alone.
func (o MkfsOptions) Words() []string {
	var words []string
	var done []string
	for _, s := range o.settings {
		if slices.Contains(done, s.flag) {
			continue
		}
		var list []string
		for _, other := range o.settings {
			if other.flag == s.flag && (other.name != "" || other.given) {
				list = append(list, other.text())
			}
		}
		done, words = append(done, s.flag), append(words, s.flag)
		if len(list) > 0 {
			words = append(words, strings.Join(list, ","))
		}
	}
	return words
}

// String returns the options as a class has them.
func (o MkfsOptions) String() string { return strings.Join(o.Words(), " ") }

// longestQuote is how much of what a user wrote an error repeats.
const longestQuote = 100

// quoted quotes what a user wrote, or its beginning.
func quoted(text string) string {
	if len(text) > longestQuote {
		return fmt.Sprintf("%.*q...", longestQuote, text)
	}
	return fmt.Sprintf("%q", text)
}
