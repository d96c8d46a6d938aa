package disk

import (
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// longestToken is ECS's limit for a ClientToken, in bytes.
const longestToken = 64

// CheckName says whether a CSI volume name can be kept as a disk's tag: CSI
// (spec, "Size Limits") ends it at 128 bytes and bans control characters; ECS
// (TagResources) bans the prefix "acs:" and web addresses in a tag's value.
func CheckName(name string) error {
	switch {
	case name == "":
		return Errorf(Invalid, "name is missing")
	case len(name) > longestTag:
		return Errorf(Invalid, "name has %d bytes; at most %d are allowed", len(name), longestTag)
	case !utf8.ValidString(name) || strings.IndexFunc(name, unicode.IsControl) >= 0:
		return Errorf(Invalid, "name %q: control characters and broken UTF-8 are not allowed", name)
	case !taggable(name):
		return Errorf(Invalid, "name %q: ECS takes no tag that starts with acs: or holds http:// or https://", name)
	}
	return nil
}

// DisplayName returns the DiskName that ECS shows for a volume: the volume's
// name if ECS takes it as one (CreateDisk, DiskName: 2 to 128 characters, a
// letter first, then letters, digits and : _ . -), else nothing. It is for
// people only; disks are found by VolumeNameTag.
func DisplayName(name string) string {
	if len(name) < 2 || len(name) > longestTag || strings.HasPrefix(name, "http:") || strings.HasPrefix(name, "https:") {
		return ""
	}
	for i, c := range []byte(name) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		other := '0' <= c && c <= '9' || strings.IndexByte(":_.-", c) >= 0
		if !letter && (i == 0 || !other) {
			return ""
		}
	}
	return name
}

// Generation counts the client tokens of one volume name, from 1. A token
// outlives the disk that it made, so a name that comes again after its disk is
// gone needs the token of the next generation.
type Generation int

// NewToken returns the client token of a volume name: the same bytes for the
// same name and generation in every process, and never the same for two names.
// The first generation has the form of the driver that topodisk replaces, so
// that a cluster may switch while a create is under way: n:<name>, or
// h:<hash> for a name that is too long or not ASCII.
func NewToken(name string, generation Generation) Token {
	if generation <= 1 {
		if plain := "n:" + name; fits(plain) {
			return Token(plain)
		}
		return Token(hashed(name))
	}
	suffix := "#" + strconv.Itoa(int(generation))
	plain := name + suffix
	if fits(plain) && !strings.HasPrefix(name, "n:") && !strings.HasPrefix(name, "h:") {
		return Token(plain)
	}
	return Token(hashed(name) + suffix)
}

// fits says whether ECS takes the text as a ClientToken.
func fits(token string) bool {
	if len(token) > longestToken {
		return false
	}
	return strings.IndexFunc(token, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// hashed returns the short form of a name; base64 holds no '#', so a
// generation's suffix keeps it apart from every other token.
func hashed(name string) string {
	h := fnv.New128a()
	fmt.Fprint(h, name)
	return "h:" + base64.RawStdEncoding.EncodeToString(h.Sum(nil))
}
