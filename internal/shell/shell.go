// Package shell writes commands that people copy into a shell. A Command is made of words alone, each of which is quoted, so that no text
// in it is read as anything but an argument.
package shell

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Command is a command line for bash, zsh and other POSIX shells.
type Command struct{ text string }

// New returns the command of these words: a program and its arguments.
func New(words ...string) Command { return Command{joined(words)} }

// Line returns the command with more arguments, on a line of their own.
func (c Command) Line(words ...string) Command { return Command{c.text + " \\\n  " + joined(words)} }

// To returns the command with its output written to a file.
func (c Command) To(file string) Command { return Command{c.text + " > " + quote(file)} }

// String returns the command as it is typed.
func (c Command) String() string { return c.text }

// MarshalText makes a command a string in JSON.
func (c Command) MarshalText() ([]byte, error) { return []byte(c.text), nil }

// Equal says whether two commands are typed in the same way.
func (c Command) Equal(other Command) bool { return c == other }

func joined(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = quote(word)
	}
	return strings.Join(quoted, " ")
}

// plain words mean to a shell what they say; zsh expands those that begin with an equals sign.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./:@,+%-][A-Za-z0-9_./:=@,+%-]*$`)

// quote returns a word as a shell takes it. What isn't visible is written in octal, so that neither a terminal nor a person takes it
// for something else: a shell without that form of quotes gets another word, but not another command, for there is no quote in it.
func quote(word string) string {
	switch {
	case plain.MatchString(word):
		return word
	case utf8.ValidString(word) && !strings.ContainsFunc(word, isHidden):
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for i, r := range word {
		_, size := utf8.DecodeRuneInString(word[i:])
		switch hidden := r == utf8.RuneError || isHidden(r); {
		case hidden || r == '\'' || r == '\\':
			for _, octet := range []byte(word[i : i+size]) {
				fmt.Fprintf(&b, `\%03o`, octet)
			}
		default:
			b.WriteRune(r)
		}
	}
	b.WriteString("'")
	return b.String()
}

// isHidden says whether a character shows as nothing. Fillers and selectors of variants are among letters and marks.
func isHidden(r rune) bool {
	return !unicode.IsGraphic(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
