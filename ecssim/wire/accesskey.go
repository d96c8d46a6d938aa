package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"
)

// AccessKey is a key that requests are signed with: one of the account's own,
// or a temporary one of a role.
type AccessKey struct {
	ID      string
	Secret  string
	Token   string    // of a temporary key; empty for the account's own
	Role    string    // of a temporary key
	Session string    // of a temporary key
	Expires time.Time // of a temporary key; zero is never
	Ended   bool      // a temporary key that ended before it expired
}

// Keyring holds the keys. Temporary ones stay for a day after their end, so
// that a late user learns that they have expired.
type Keyring struct {
	Checked bool // whether signatures are checked
	byID    map[string]*AccessKey
	nonces  nonces
	Seed    string
	issued  int
}

// KeptAfterEnd is how long what has expired is known still.
const KeptAfterEnd = 24 * time.Hour

// NewKeyring returns a keyring that checks signatures or not. The tokens, by
// key ID, are of temporary keys; the seed goes into the keys that it issues.
func NewKeyring(checked bool, secrets, tokens map[string]string, seed string) *Keyring {
	k := &Keyring{Checked: checked, byID: map[string]*AccessKey{}, nonces: newNonces(), Seed: seed}
	for id, secret := range secrets {
		k.byID[id] = &AccessKey{ID: id, Secret: secret, Token: tokens[id]}
	}
	return k
}

// find returns the key that a request names, with the token that belongs to it.
func (k *Keyring) find(id, token string, now time.Time) (*AccessKey, *Refusal) {
	key := k.byID[id]
	switch {
	case key == nil || key.Token != "" && token == "":
		return nil, Refuse(404, "InvalidAccessKeyId.NotFound", "Specified access key is not found.")
	case token != key.Token && !k.knows(token):
		return nil, Refuse(400, "InvalidSecurityToken.Malformed", "Specified SecurityToken is malformed.")
	case token != key.Token:
		return nil, Refuse(400, "InvalidSecurityToken.MismatchWithAccessKey", "Specified SecurityToken mismatch with the AccessKey.")
	case key.hasEnded(now):
		return nil, Refuse(400, "InvalidSecurityToken.Expired", "Specified SecurityToken is expired.")
	}
	return key, nil
}

// hasEnded tells whether a key was good once and is not any more.
func (key *AccessKey) hasEnded(now time.Time) bool {
	return key.Ended || !key.Expires.IsZero() && !now.Before(key.Expires)
}

func (k *Keyring) knows(token string) bool {
	for _, key := range k.byID {
		if key.Token == token && token != "" {
			return true
		}
	}
	return false
}

// Issue makes a temporary key for a role.
func (k *Keyring) Issue(role, session string, now time.Time, life time.Duration) *AccessKey {
	maps.DeleteFunc(k.byID, func(_ string, key *AccessKey) bool {
		return !key.Expires.IsZero() && now.Sub(key.Expires) > KeptAfterEnd
	})
	k.issued++
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", k.Seed, k.issued))
	text := hex.EncodeToString(sum[:])
	key := &AccessKey{
		ID: "STS.NU" + text[:22], Secret: text[22:52], Token: "CAIS" + text + HexHash(text), Role: role, Session: session,
		Expires: now.Add(life).Truncate(time.Second),
	}
	k.byID[key.ID] = key
	return key
}

// Principal is whom a denial may name: the role of a temporary key, or the
// key itself.
func (key *AccessKey) Principal() string {
	if key == nil {
		return ""
	}
	if key.Role != "" {
		return key.Role
	}
	return key.ID
}

// EndTemporary ends every temporary key that was issued so far, and returns how
// many did not end before.
func (k *Keyring) EndTemporary(now time.Time) int {
	n := 0
	for _, key := range k.byID {
		if key.Token != "" && !key.hasEnded(now) {
			key.Ended = true
			n++
		}
	}
	return n
}

// Set adds a key, or changes the secret of one; with an empty secret it removes it.
func (k *Keyring) Set(id, secret string) {
	if secret == "" {
		delete(k.byID, id)
		return
	}
	k.Checked = true
	k.byID[id] = &AccessKey{ID: id, Secret: secret}
}

// IDs returns the IDs of the account's own keys, sorted.
func (k *Keyring) IDs() []string {
	ids := []string{}
	for _, id := range slices.Sorted(maps.Keys(k.byID)) {
		if k.byID[id].Token == "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// Owns says whether a key is the account's, or a temporary one of its roles.
func (k *Keyring) Owns(id string) bool { return k.byID[id] != nil }
