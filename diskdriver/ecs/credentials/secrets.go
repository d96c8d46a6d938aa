package credentials

import (
	"maps"
	"slices"
	"strings"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// FromSecrets reads the keys in the secrets of a request: access-key-id,
// access-key-secret and, for temporary keys, security-token; id and secret are
// taken for the first two. White space around a value is ignored.
//
// Invalid: a key that is not known, a pair of which half is missing, or a pair
// under both names. The error names the key and never a value.
func FromSecrets(secrets map[string]string) (Keys, error) {
	values := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		value := strings.TrimSpace(secrets[name])
		switch {
		case !slices.Contains(secretNames(), name):
			return Keys{}, disk.Errorf(disk.Invalid, "secrets: key %q is unknown; allowed are %s", name, strings.Join(secretNames(), ", "))
		case strings.ContainsAny(value, "\x00\r\n\t "):
			return Keys{}, disk.Errorf(disk.Invalid, "secrets: the value of key %q has white space inside, which is not allowed", name)
		case value != "":
			values[name] = value
		}
	}
	var keys Keys
	for _, pair := range spellings {
		id, secret := values[pair.ID], values[pair.Secret]
		switch {
		case id == "" && secret == "":
			continue
		case id == "":
			return Keys{}, disk.Errorf(disk.Invalid, "secrets: key %q is missing or empty beside %q", pair.ID, pair.Secret)
		case secret == "":
			return Keys{}, disk.Errorf(disk.Invalid, "secrets: key %q is missing or empty beside %q", pair.Secret, pair.ID)
		case keys != Keys{}:
			return Keys{}, disk.Errorf(disk.Invalid, "secrets: the keys %q and %q are not allowed beside %q and %q", pair.ID, pair.Secret, idFile, secretFile)
		}
		keys = Keys{AccessKeyID: id, AccessKeySecret: secret, SecurityToken: values[tokenFile]}
	}
	if keys == (Keys{}) {
		return Keys{}, disk.Errorf(disk.Invalid, "secrets: the keys %q and %q are missing or empty", idFile, secretFile)
	}
	return keys, nil
}

// secretNames are the keys that secrets may have.
func secretNames() []string {
	names := []string{}
	for _, pair := range spellings {
		names = append(names, pair.ID, pair.Secret)
	}
	return append(names, tokenFile)
}
