package params

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/test/golden"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

const chartPage = "../../charts/topodisk/files/parameters.json"

// classValues is what the chart may know of the classes that it makes.
type classValues struct {
	Values   string            `json:"values"`   // the value of the chart that lists them
	Names    []string          `json:"names"`    // parameters that do something
	Others   []string          `json:"others"`   // parameters that are taken and do nothing, or are for sidecars
	Prefixes []string          `json:"prefixes"` // what other parameters may begin with
	Matching string            `json:"matching"` // or match
	Refused  map[string]string `json:"refused"`  // parameters that are refused, and why
	Choices  map[string]choice `json:"choices"`  // parameters that take words, and no others
}

// choice is the words that a parameter takes.
type choice struct {
	Words   []string `json:"words"`
	Alone   string   `json:"alone,omitempty"`   // a further word, which stands alone
	List    bool     `json:"list,omitempty"`    // several words are separated by commas
	AnyCase bool     `json:"anyCase,omitempty"` // upper case is taken, too
}

// choiceOf returns the words of a parameter, if it takes nothing else.
func choiceOf(u use) (c choice, is bool) {
	types, levels := strings.Split(disk.List(disk.Categories()), ", "), []string{"PL0", "PL1", "PL2", "PL3"}
	switch {
	case strings.HasPrefix(u.values, yesNo):
		return choice{Words: append(truths(true), truths(false)...), AnyCase: true}, true
	case u.values == someTypes:
		return choice{Words: types, Alone: "available", List: true}, true
	case u.values == oneType:
		return choice{Words: types}, true
	case u.values == someLevels:
		return choice{Words: levels, List: true}, true
	case u.values == oneLevel:
		return choice{Words: levels}, true
	case u.values == strings.Join(disk.Filesystems(), ", "):
		return choice{Words: disk.Filesystems()}, true
	case u.values == strings.Join(disk.AllXFSFeatures(), ", "):
		return choice{Words: strings.Split(disk.List(disk.AllXFSFeatures()), ", ")}, true
	}
	return choice{}, false
}

// cel says in CEL that VALUE is of the words.
func (c choice) cel() string {
	words := " in " + cel(c.Words)
	switch {
	case c.AnyCase:
		return "VALUE.lowerAscii()" + words
	case c.Alone != "":
		return "VALUE == '" + c.Alone + "' || VALUE.split(',').all(word, word.trim()" + words + ")"
	case c.List:
		return "VALUE.split(',').all(word, word.trim()" + words + ")"
	}
	return "VALUE" + words
}

// TestTheChartsParametersPageIsCurrent holds what the chart knows of parameters
// against the tables that read them.
func TestTheChartsParametersPageIsCurrent(t *testing.T) {
	classes := classValuesOf("storageClasses", classKeys)
	classes.Others = append(classes.Others, request.Consumed()...)
	classes.settle()
	text, err := json.MarshalIndent([]classValues{
		classes, classValuesOf("volumeAttributesClasses", mutableKeys), classValuesOf("volumeSnapshotClasses", snapshotKeys),
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Page(t, chartPage, string(text)+"\n")
}

func classValuesOf[P any](values string, table keyTable[P]) classValues {
	c := classValues{Values: values, Matching: secretNames, Refused: map[string]string{}, Choices: map[string]choice{}}
	for name, k := range table {
		if k.same != "" {
			k = table[k.same]
		}
		switch {
		case k.under != nil:
			c.Prefixes = append(c.Prefixes, name)
		case k.barred != "":
			c.Refused[name] = k.barred
		case k.idle != "", k.by != "":
			c.Others = append(c.Others, name)
		default:
			c.Names = append(c.Names, name)
		}
		if choice, is := choiceOf(k.use); is {
			c.Choices[name] = choice
		}
	}
	c.settle()
	return c
}

// settle sorts the names. What a sidecar takes for itself and the driver knows
// as well is the driver's, and topodisk.io/ is for users.
func (c *classValues) settle() {
	for _, name := range c.Others {
		if strings.HasPrefix(name, "topodisk.io/") {
			c.Names = append(c.Names, name)
		}
	}
	c.Others = slices.DeleteFunc(c.Others, func(name string) bool { return slices.Contains(c.Names, name) })
	for _, names := range []*[]string{&c.Names, &c.Others, &c.Prefixes} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
}

// What the chart refuses, the driver refuses too; and what the chart takes, it takes.
func TestTheChartsChoicesAreTheDrivers(t *testing.T) {
	tried := 0
	for name, c := range classValuesOf("", classKeys).Choices {
		for _, word := range append(slices.Clone(c.Words), "no-such-word") {
			_, err := Parse(map[string]string{name: word}, nil, Refuse)
			if refused := err != nil; refused != (word == "no-such-word") {
				t.Errorf("parameter %s: %q: %v", name, word, err)
			}
			tried++
		}
	}
	for name := range classValuesOf("", mutableKeys).Choices {
		if _, err := ParseChange(map[string]string{name: "no-such-word"}); err == nil {
			t.Errorf("mutable parameter %s takes any word", name)
		}
	}
	if tried < 50 {
		t.Errorf("only %d words were tried", tried)
	}
}
