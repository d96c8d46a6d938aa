package credentials

import (
	"strings"
	"testing"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

func TestFromSecrets(t *testing.T) {
	for name, test := range map[string]struct {
		secrets map[string]string
		want    Keys
		names   string // what the error must name; empty for none
	}{
		"a pair":            {map[string]string{"access-key-id": "ID", "access-key-secret": "hidden"}, Keys{"ID", "hidden", ""}, ""},
		"of other drivers":  {map[string]string{"id": "ID", "secret": "hidden"}, Keys{"ID", "hidden", ""}, ""},
		"temporary":         {map[string]string{"id": "ID", "secret": "hidden", "security-token": "token"}, Keys{"ID", "hidden", "token"}, ""},
		"an empty token":    {map[string]string{"id": "ID", "secret": "hidden", "security-token": ""}, Keys{"ID", "hidden", ""}, ""},
		"with a line's end": {map[string]string{"id": "ID\n", "secret": " hidden\r\n"}, Keys{"ID", "hidden", ""}, ""},

		"unknown":                {map[string]string{"id": "ID", "secret": "hidden", "user": "hidden"}, Keys{}, `"user"`},
		"in another case":        {map[string]string{"ID": "hidden", "secret": "hidden"}, Keys{}, `"ID"`},
		"half a pair":            {map[string]string{"access-key-id": "hidden"}, Keys{}, `"access-key-secret"`},
		"the other half":         {map[string]string{"access-key-secret": "hidden"}, Keys{}, `"access-key-id"`},
		"halves of two pairs":    {map[string]string{"access-key-id": "hidden", "secret": "hidden"}, Keys{}, `"access-key-secret"`},
		"an empty half":          {map[string]string{"id": "hidden", "secret": " "}, Keys{}, `"secret"`},
		"two pairs":              {map[string]string{"id": "hidden", "secret": "hidden", "access-key-id": "hidden", "access-key-secret": "hidden"}, Keys{}, `"id"`},
		"a token alone":          {map[string]string{"security-token": "hidden"}, Keys{}, `"access-key-id"`},
		"white space in a value": {map[string]string{"id": "hid den", "secret": "hidden"}, Keys{}, `"id"`},
	} {
		t.Run(name, func(t *testing.T) {
			keys, err := FromSecrets(test.secrets)
			if keys != test.want {
				t.Errorf("the keys are wrong")
			}
			switch {
			case test.names == "" && err != nil:
				t.Error(err)
			case test.names != "" && (err == nil || disk.KindOf(err) != disk.Invalid || !strings.Contains(err.Error(), test.names)):
				t.Errorf("error %v doesn't name %s", err, test.names)
			case err != nil && strings.Contains(err.Error(), "hid"):
				t.Errorf("error %v tells a value", err)
			}
		})
	}
}

// FuzzFromSecrets: no value shows in an error, and keys come in pairs.
func FuzzFromSecrets(f *testing.F) {
	f.Add("id", "secret", "security-token", "x")
	f.Add("access-key-id", "secret", "", "")
	f.Fuzz(func(t *testing.T, a, b, c, salt string) {
		value := func(n string) string { return "\x01value-" + n + salt }
		keys, err := FromSecrets(map[string]string{a: value("1"), b: value("2"), c: value("3")})
		switch {
		case err == nil && (keys.AccessKeyID == "" || keys.AccessKeySecret == ""):
			t.Errorf("half a pair passes: %q %q %q", a, b, c)
		case err != nil && keys != Keys{}:
			t.Error("keys come with an error")
		case err != nil && strings.Contains(err.Error(), "value-"):
			if !strings.Contains(a+b+c, "value-") {
				t.Errorf("error %v tells a value", err)
			}
		}
	})
}
