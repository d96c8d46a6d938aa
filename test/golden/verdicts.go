package golden

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// VerdictCase is a situation, and what kubectl-topodisk must say of it in JSON. The cases were written before its code.
type VerdictCase struct {
	Case      string `json:"case"`
	Number    int    `json:"number"` // of the kind of situation: several cases may be of one
	Situation string `json:"situation"`
	Subject   string `json:"subject"` // a kind as kubectl takes it
	Cause     string `json:"cause"`
	// Evidence is the kind of an object and a field of it, or several of which one will do, separated by " or ". An alternative without
	// a kind has that of the one before.
	Evidence []string `json:"evidence"`
	Actor    string   `json:"actor"`
	Next     []string `json:"next"` // how commands begin, in which NODE, NAME and the like stand for any word
	Retried  string   `json:"retried"`
}

// Verdict is what Check looks at in the program's JSON.
type Verdict struct {
	Subject  object     `json:"subject"`
	State    string     `json:"state"`
	Cause    string     `json:"cause"`
	Message  string     `json:"message"`
	Evidence []evidence `json:"evidence"`
	Actor    string     `json:"actor"`
	Next     []string   `json:"next"`
	Retried  string     `json:"retried"`
}

type object struct {
	Kind string `json:"kind"`
}

type evidence struct {
	Object object `json:"object"`
	Field  string `json:"field"`
}

// LoadVerdicts reads the cases, of which there are at least 20, from the checkout at root.
func LoadVerdicts(root string) (all []VerdictCase, err error) {
	path := filepath.Join(root, "explain", "testdata", "verdicts.yaml")
	text, err := os.ReadFile(path) //nolint:gosec // of this repository
	if err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalStrict(text, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(all) < 20 {
		return nil, fmt.Errorf("%s has %d cases, want at least 20", path, len(all))
	}
	return all, nil
}

// ParseVerdict reads a verdict from JSON.
func ParseVerdict(text []byte) (v Verdict, err error) {
	return v, json.Unmarshal(text, &v)
}

// resources has the kinds of subjects as kubectl takes them.
var resources = map[string]string{
	"Pod": "pod", "PersistentVolumeClaim": "pvc", "PersistentVolume": "pv", "Node": "node", "VolumeAttachment": "volumeattachment",
}

// Check returns what a verdict says otherwise than the case wants.
func (c VerdictCase) Check(v Verdict) error {
	var wrong []error
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	for _, part := range []struct{ name, got, want string }{
		{"subject", resources[v.Subject.Kind], c.Subject}, {"state", v.State, "Waits"}, {"cause", v.Cause, c.Cause}, {"actor", v.Actor, c.Actor},
		{"retried", v.Retried, c.Retried},
	} {
		if part.got != part.want {
			add("%s is %q, want %q", part.name, part.got, part.want)
		}
	}
	if v.Message == "" {
		add("there is no message")
	}
	for _, want := range v.Lacks(c.Evidence) {
		add("no evidence is %s: %v", want, v.Evidence)
	}
	for _, want := range c.Next {
		if !slices.ContainsFunc(v.Next, func(command string) bool { return begins(command, want) }) {
			add("no command begins with %q: %q", want, v.Next)
		}
	}
	return errors.Join(wrong...)
}

// Lacks returns what is wanted as in VerdictCase.Evidence and not there. Each piece of evidence stands for one that is wanted.
func (v Verdict) Lacks(wanted []string) (missing []string) {
	left := slices.Clone(v.Evidence)
	for _, want := range wanted {
		at := slices.IndexFunc(left, func(e evidence) bool { return e.isOneOf(want) })
		if at < 0 {
			missing = append(missing, want)
			continue
		}
		left = slices.Delete(left, at, at+1)
	}
	return missing
}

func (e evidence) isOneOf(wanted string) bool {
	kind := ""
	for field := range strings.SplitSeq(wanted, " or ") {
		if first, rest, found := strings.Cut(field, " "); found {
			kind, field = first, rest
		}
		if e.Object.Kind == kind && isWithin(e.Field, field) {
			return true
		}
	}
	return false
}

// isWithin says whether a field is another one or a part of it.
func isWithin(field, of string) bool {
	rest, found := strings.CutPrefix(field, of)
	return found && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// begins says whether a command begins as wanted, word by word. A word in capitals stands for any; the last one may go on.
func begins(command, wanted string) bool {
	got, want := strings.Fields(command), strings.Fields(wanted)
	if len(got) < len(want) {
		return false
	}
	for i, word := range want {
		isLast := i == len(want)-1
		if word != strings.ToUpper(word) && got[i] != word && (!isLast || !strings.HasPrefix(got[i], word)) {
			return false
		}
	}
	return true
}
