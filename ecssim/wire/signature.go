package wire

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"hash/maphash"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// signatureWindow is how far a request's timestamp may be off.
const signatureWindow = 15 * time.Minute

// signed is what a request says of who sent it.
type signed struct {
	keyID     string
	token     string // of a temporary key
	stamp     string
	nonce     string
	toSign    string
	signature string
	sign      func(toSign, secret string) string
}

// Authenticate finds out who sent a request, and when by its sender's clock. It
// checks that unless the keyring is not to.
func (k *Keyring) Authenticate(m Message, p Parameters) (key *AccessKey, stamp string, no *Refusal) {
	if !k.Checked {
		return &AccessKey{ID: ClaimedKey(m, p)}, "", nil
	}
	read := readRPC
	if isACS3(m) {
		read = readACS3
	}
	claim, no := read(m, p)
	if no != nil {
		return nil, "", no
	}
	key, no = k.verify(claim)
	return key, claim.stamp, no
}

// verify checks a claim. The time is that of package time alone, for whoever
// sends requests does not know of Advance.
func (k *Keyring) verify(claim signed) (*AccessKey, *Refusal) {
	now := time.Now()
	key, no := k.find(claim.keyID, claim.token, now)
	if no != nil {
		return nil, no
	}
	if no := CheckTimestamp(claim.stamp, now); no != nil {
		return nil, no
	}
	if !hmac.Equal([]byte(claim.sign(claim.toSign, key.Secret)), []byte(claim.signature)) {
		return nil, Refuse(400, "SignatureDoesNotMatch", "Specified signature is not matched with our calculation. server string to sign is:%s", claim.toSign)
	}
	if !k.nonces.use(claim.keyID+" "+claim.nonce, now) {
		return nil, Refuse(400, "SignatureNonceUsed", "The request signature nonce has been used.")
	}
	return key, nil
}

// ClaimedKey is the ID of the key that a request names, whether or not it has it.
func ClaimedKey(m Message, p Parameters) string {
	if isACS3(m) {
		claim, _ := readACS3(m, p)
		return claim.keyID
	}
	return p["AccessKeyId"]
}

// CheckTimestamp refuses a request whose time is off.
func CheckTimestamp(stamp string, now time.Time) *Refusal {
	sent, err := time.Parse("2006-01-02T15:04:05Z", stamp)
	if err != nil {
		return Refuse(400, "InvalidTimeStamp.Format", "Specified time stamp or date value is not well formatted: %q must be UTC in the form 2006-01-02T15:04:05Z.", stamp)
	}
	if d := now.Sub(sent); d > signatureWindow || d < -signatureWindow {
		return Refuse(400, "InvalidTimeStamp.Expired", "Specified time stamp or date value is expired: it is %s off the server's clock.", d.Round(time.Second))
	}
	return nil
}

// readRPC reads the signature of version 1.0, which is among the parameters.
func readRPC(m Message, p Parameters) (signed, *Refusal) {
	for _, name := range []string{"AccessKeyId", "Signature", "SignatureMethod", "SignatureVersion", "SignatureNonce", "Timestamp"} {
		if p[name] == "" {
			return signed{}, Missing(name)
		}
	}
	if p["SignatureMethod"] != "HMAC-SHA1" {
		return signed{}, Refuse(400, "InvalidSignatureMethod", "Specified signature method is not valid: HMAC-SHA1, or %s in headers, is spoken here.", acs3)
	}
	if p["SignatureVersion"] != "1.0" {
		return signed{}, Refuse(400, "IncompleteSignature", "The request signature does not conform to the standards: SignatureVersion must be 1.0.")
	}
	return signed{
		keyID: p["AccessKeyId"], token: p["SecurityToken"], stamp: p["Timestamp"], nonce: p["SignatureNonce"],
		toSign: stringToSign(m.Method, p), signature: p["Signature"], sign: sign,
	}, nil
}

// stringToSign is what version 1.0 of the signature signs: the method, the
// path and all parameters but the signature, sorted.
func stringToSign(method string, p Parameters) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if name != "Signature" {
			pairs = append(pairs, percentEncode(name)+"="+percentEncode(p[name]))
		}
	}
	return method + "&%2F&" + percentEncode(strings.Join(pairs, "&"))
}

func sign(toSign, secret string) string {
	mac := hmac.New(sha1.New, []byte(secret+"&"))
	mac.Write([]byte(toSign))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// percentEncode encodes as RFC 3986 says: all but letters, digits and -_.~.
func percentEncode(s string) string {
	return strings.ReplaceAll(url.QueryEscape(s), "+", "%20")
}

// nonces remembers the nonces of the requests whose timestamps would still
// be taken: as hashes, for there is one of every request.
type nonces struct {
	seed maphash.Seed
	ages []nonceAge // the oldest first
}

// nonceAge is the nonces of one part of that time.
type nonceAge struct {
	began time.Time
	used  map[uint64]struct{}
}

// nonceAgeSpan is how long an age takes in nonces, and noncesKept how long
// a nonce could come once more at least.
const (
	nonceAgeSpan = 5 * time.Minute
	noncesKept   = 2 * signatureWindow
)

func newNonces() nonces { return nonces{seed: maphash.MakeSeed()} }

// use notes a nonce, and returns false if it was used before.
func (n *nonces) use(nonce string, now time.Time) bool {
	for len(n.ages) > 0 && now.Sub(n.ages[0].began) > noncesKept+nonceAgeSpan {
		n.ages = slices.Delete(n.ages, 0, 1)
	}
	hash := maphash.String(n.seed, nonce)
	if slices.ContainsFunc(n.ages, func(age nonceAge) bool { _, is := age.used[hash]; return is }) {
		return false
	}
	if last := len(n.ages) - 1; last < 0 || now.Sub(n.ages[last].began) > nonceAgeSpan {
		n.ages = append(n.ages, nonceAge{now, map[uint64]struct{}{}})
	}
	n.ages[len(n.ages)-1].used[hash] = struct{}{}
	return true
}
