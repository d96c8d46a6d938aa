package ecssim

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// signatureWindow is how far a request's timestamp may be off.
const signatureWindow = 15 * time.Minute

// authenticate checks who sent a request, if the simulator has access keys.
func (s *Server) authenticate(m message, p parameters) *refusal {
	if len(s.config.AccessKeys) == 0 {
		return nil
	}
	for _, name := range []string{"AccessKeyId", "Signature", "SignatureMethod", "SignatureVersion", "SignatureNonce", "Timestamp"} {
		if p[name] == "" {
			return missing(name)
		}
	}
	if p["SignatureMethod"] != "HMAC-SHA1" || p["SignatureVersion"] != "1.0" {
		return refuse(400, "IncompleteSignature", "The request signature does not conform to the standards: SignatureMethod HMAC-SHA1 and SignatureVersion 1.0 are spoken here.")
	}
	secret, ok := s.config.AccessKeys[p["AccessKeyId"]]
	if !ok {
		return refuse(404, "InvalidAccessKeyId.NotFound", "Specified access key is not found.")
	}
	if no := checkTimestamp(p["Timestamp"], time.Now()); no != nil {
		return no
	}
	toSign := stringToSign(m.method, p)
	if !hmac.Equal([]byte(sign(toSign, secret)), []byte(p["Signature"])) {
		return refuse(400, "SignatureDoesNotMatch", "Specified signature is not matched with our calculation. server string to sign is:%s", toSign)
	}
	if !s.nonces.use(p["AccessKeyId"]+" "+p["SignatureNonce"], time.Now()) {
		return refuse(400, "SignatureNonceUsed", "The request signature nonce has been used.")
	}
	return nil
}

// checkTimestamp refuses a request whose time is off.
func checkTimestamp(stamp string, now time.Time) *refusal {
	sent, err := time.Parse("2006-01-02T15:04:05Z", stamp)
	if err != nil {
		return refuse(400, "IllegalTimestamp", "The input parameter Timestamp %q is illegal: it must be UTC in the form 2006-01-02T15:04:05Z.", stamp)
	}
	if d := now.Sub(sent); d > signatureWindow || d < -signatureWindow {
		return refuse(400, "InvalidTimeStamp.Expired", "Specified time stamp or date value is expired: it is %s off the server's clock.", d.Round(time.Second))
	}
	return nil
}

// stringToSign is what version 1.0 of the signature signs: the method, the
// path and all parameters but the signature, sorted.
func stringToSign(method string, p parameters) string {
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
// be taken.
type nonces struct {
	used  map[string]bool
	order []usedNonce
}

type usedNonce struct {
	at    time.Time
	nonce string
}

func newNonces() nonces { return nonces{used: map[string]bool{}} }

// use notes a nonce, and returns false if it was used before.
func (n *nonces) use(nonce string, now time.Time) bool {
	for len(n.order) > 0 && now.Sub(n.order[0].at) > 2*signatureWindow {
		delete(n.used, n.order[0].nonce)
		n.order = n.order[1:]
	}
	if n.used[nonce] {
		return false
	}
	n.used[nonce] = true
	n.order = append(n.order, usedNonce{now, nonce})
	return true
}
