package collect

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"

	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/internal/escape"
)

// WriteDump writes facts as YAML, for ReadDump. People look at it, too: what they must not see as it is YAML has no escapes for outside
// of quotes, so that facts with such characters are written as JSON, which is YAML as well.
func WriteDump(to io.Writer, facts *explain.Facts) error {
	text, err := json.MarshalIndent(facts, "", " ")
	if err != nil {
		return err
	}
	if escape.Is(string(text)) {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
	}
	to = escape.NewWriter(to)
	_, err = to.Write(text)
	return err
}

// ReadDump reads facts that WriteDump has written. Its error says what is no dump.
func ReadDump(from io.Reader) (*explain.Facts, error) {
	text, err := io.ReadAll(from)
	if err != nil {
		return nil, err
	}
	var facts explain.Facts
	if err := yaml.Unmarshal(text, &facts); err != nil {
		return nil, notADump(err.Error())
	}
	if _, ok := Kinds[facts.Subject.Kind]; !ok || facts.Subject.Name == "" || facts.At.IsZero() {
		return nil, notADump(fmt.Sprintf("subject is %q %q, at is %s", facts.Subject.Kind, facts.Subject.Name, facts.At))
	}
	return &facts, nil
}

func notADump(why string) error {
	return fmt.Errorf("it is no dump of facts: %s; allowed is a file that kubectl topodisk why --dump=FILE has written", why)
}
