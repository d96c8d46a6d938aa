package wire

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"
)

// acs3 is the algorithm of signatures in headers, which newer SDKs use.
const acs3 = "ACS3-HMAC-SHA256"

// isACS3 tells whether a request is signed in headers.
func isACS3(m Message) bool { return strings.HasPrefix(m.Header["authorization"], "ACS3-") }

// acs3Headers are the headers that every request signed in headers has.
var acs3Headers = []string{"host", "x-acs-action", "x-acs-content-sha256", "x-acs-date", "x-acs-signature-nonce", "x-acs-version"}

// readACS3 reads a signature in headers: Authorization names the key, the
// headers that are signed, and the signature.
func readACS3(m Message, _ Parameters) (signed, *Refusal) {
	algorithm, rest, _ := strings.Cut(m.Header["authorization"], " ")
	fields := map[string]string{}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		fields[name] = value
	}
	if algorithm != acs3 {
		return signed{}, Refuse(400, "InvalidSignatureMethod", "Specified signature method is not valid: %s is spoken here.", acs3)
	}
	if fields["Credential"] == "" || fields["SignedHeaders"] == "" || fields["Signature"] == "" {
		return signed{}, Refuse(400, "IncompleteSignature", "The request signature does not conform to the standards: Authorization must be %s Credential=...,SignedHeaders=...,Signature=...", acs3)
	}
	for _, name := range acs3Headers {
		if m.Header[name] == "" {
			return signed{}, Missing(name)
		}
	}
	names := strings.Split(fields["SignedHeaders"], ";")
	slices.Sort(names)
	for name := range m.Header {
		if mustBeSigned(name) && !slices.Contains(names, name) {
			return signed{}, Refuse(400, "IncompleteSignature", "The request signature does not conform to the standards: SignedHeaders must have %s.", name)
		}
	}
	if want := HexHash(m.body); m.Header["x-acs-content-sha256"] != want {
		return signed{}, Refuse(400, "InvalidContentSha256", "The specified header x-acs-content-sha256 is not that of the body, which is %s.", want)
	}
	return signed{
		keyID: fields["Credential"], token: m.Header["x-acs-security-token"],
		stamp: m.Header["x-acs-date"], nonce: m.Header["x-acs-signature-nonce"],
		toSign: acs3 + "\n" + HexHash(canonicalRequest(m, names, fields["SignedHeaders"])), signature: fields["Signature"], sign: signACS3,
	}, nil
}

// mustBeSigned says whether a header that a request has is to be signed.
func mustBeSigned(name string) bool {
	return name == "host" || name == "content-type" || strings.HasPrefix(name, "x-acs-")
}

// canonicalRequest is the text whose hash is signed: method, path, query
// sorted, the signed headers sorted with their values, their names as the
// request has them, the body's hash.
func canonicalRequest(m Message, names []string, asSent string) string {
	var headers strings.Builder
	for _, name := range names {
		headers.WriteString(name + ":" + strings.TrimSpace(m.Header[name]) + "\n")
	}
	return strings.Join([]string{
		m.Method, cmp.Or(m.Path, "/"), canonicalQuery(m.query), headers.String(), asSent, m.Header["x-acs-content-sha256"],
	}, "\n")
}

// canonicalQuery writes a query in one way: sorted by names, those of one name
// by values, and encoded.
func canonicalQuery(raw string) string {
	values, _ := url.ParseQuery(raw) // what can't be read was refused before
	for _, list := range values {
		slices.Sort(list)
	}
	return strings.ReplaceAll(values.Encode(), "+", "%20")
}

// HexHash is the SHA-256 of a text, in hexadecimal digits.
func HexHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func signACS3(toSign, secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(toSign))
	return hex.EncodeToString(mac.Sum(nil))
}
