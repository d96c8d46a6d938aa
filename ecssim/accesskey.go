package ecssim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
)

// accessKey is a key that requests are signed with: one of the account's own,
// or a temporary one of a role.
type accessKey struct {
	id      string
	secret  string
	token   string    // of a temporary key; empty for the account's own
	role    string    // of a temporary key
	session string    // of a temporary key
	expires time.Time // of a temporary key; zero is never
	ended   bool      // a temporary key that ended before it expired
}

// keyring holds the keys. Temporary ones stay for a day after their end, so
// that a late user learns that they have expired.
type keyring struct {
	checked bool // whether signatures are checked
	byID    map[string]*accessKey
	seed    string
	issued  int
}

const keptAfterEnd = 24 * time.Hour

func newKeyring(c Config) keyring {
	k := keyring{checked: len(c.AccessKeys) > 0 || len(c.Roles) > 0, byID: map[string]*accessKey{}, seed: fmt.Sprintf("%s/%d", c.Region, c.Seed)}
	for id, secret := range c.AccessKeys {
		k.byID[id] = &accessKey{id: id, secret: secret, token: c.SecurityTokens[id]}
	}
	return k
}

// find returns the key that a request names, with the token that belongs to it.
func (k *keyring) find(id, token string, now time.Time) (*accessKey, *refusal) {
	key := k.byID[id]
	switch {
	case key == nil || key.token != "" && token == "":
		return nil, refuse(404, "InvalidAccessKeyId.NotFound", "Specified access key is not found.")
	case token != key.token && !k.knows(token):
		return nil, refuse(400, "InvalidSecurityToken.Malformed", "Specified SecurityToken is malformed.")
	case token != key.token:
		return nil, refuse(400, "InvalidSecurityToken.MismatchWithAccessKey", "Specified SecurityToken mismatch with the AccessKey.")
	case key.hasEnded(now):
		return nil, refuse(400, "InvalidSecurityToken.Expired", "Specified SecurityToken is expired.")
	}
	return key, nil
}

// hasEnded tells whether a key was good once and is not any more.
func (key *accessKey) hasEnded(now time.Time) bool {
	return key.ended || !key.expires.IsZero() && !now.Before(key.expires)
}

func (k *keyring) knows(token string) bool {
	for _, key := range k.byID {
		if key.token == token && token != "" {
			return true
		}
	}
	return false
}

// issue makes a temporary key for a role.
func (k *keyring) issue(role, session string, now time.Time, life time.Duration) *accessKey {
	maps.DeleteFunc(k.byID, func(_ string, key *accessKey) bool {
		return !key.expires.IsZero() && now.Sub(key.expires) > keptAfterEnd
	})
	k.issued++
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", k.seed, k.issued))
	text := hex.EncodeToString(sum[:])
	key := &accessKey{
		id: "STS.NU" + text[:22], secret: text[22:52], token: "CAIS" + text + hexHash(text), role: role, session: session,
		expires: now.Add(life).Truncate(time.Second),
	}
	k.byID[key.id] = key
	return key
}

// principal is whom a denial may name: the role of a temporary key, or the
// key itself.
func (key *accessKey) principal() string {
	if key == nil {
		return ""
	}
	if key.role != "" {
		return key.role
	}
	return key.id
}

// EndTemporaryKeys ends every temporary key that was issued so far, whenever
// it would have expired, and returns how many did. Who uses one gets
// InvalidSecurityToken.Expired.
func (s *Server) EndTemporaryKeys() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, key := range s.keys.byID {
		if key.token != "" && !key.hasEnded(time.Now()) {
			key.ended = true
			n++
		}
	}
	return n
}

// SetAccessKey gives the account a key, or another secret for the one it has;
// with an empty secret it takes the key away.
func (s *Server) SetAccessKey(id, secret string) error {
	if id == "" {
		return config.Invalid("id", id, "an access key ID that is not empty")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if secret == "" {
		delete(s.keys.byID, id)
		return nil
	}
	s.keys.checked = true
	s.keys.byID[id] = &accessKey{id: id, secret: secret}
	return nil
}

// KeyIDs returns the IDs of the account's own keys, sorted. Their secrets
// stay in.
func (s *Server) KeyIDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := []string{}
	for _, id := range slices.Sorted(maps.Keys(s.keys.byID)) {
		if s.keys.byID[id].token == "" {
			ids = append(ids, id)
		}
	}
	return ids
}
