// Package signature signs requests to the RPC APIs of Alibaba Cloud, of which ECS is one, as the vendor's pages on
// signatures say. The SDK signs with HMAC-SHA1 and takes its nonces from MD5, so none of its signatures is used.
package signature

import (
	"crypto/fips140"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // signature version 1.0
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
)

// Version is a version of the signature.
type Version string

// The versions.
const (
	V3 Version = "v3" // ACS3-HMAC-SHA256, in headers
	V1 Version = "v1" // HMAC-SHA1, SignatureVersion 1.0, among the parameters; the vendor has discontinued it
)

// Versions are all versions, the default first.
var Versions = []Version{V3, V1}

// shortestSecret is the shortest key in bytes that HMAC takes with GODEBUG=fips140=only.
const shortestSecret = 14

// Check returns an error if there is no such version, or if this process may not compute it.
func (v Version) Check() error {
	switch {
	case !slices.Contains(Versions, v):
		return fmt.Errorf("version %q is not allowed: allowed are %s and %s", v, V3, V1)
	case v == V1 && fips140.Enforced():
		return fmt.Errorf("version %q is not allowed with GODEBUG=fips140=only, for it needs SHA-1: allowed is %s", v, V3)
	}
	return nil
}

// CheckKeys returns an error if this process may not sign with the keys.
func CheckKeys(keys credentials.Keys) error {
	if length := len(keys.AccessKeySecret); length < shortestSecret && fips140.Enforced() {
		return fmt.Errorf("the access key secret has %d bytes: with GODEBUG=fips140=only at least %d are required", length, shortestSecret)
	}
	return nil
}

// Sign returns the request with a signature of the given time, and a nonce that was never used. The request has all of
// its parameters in the query and no body; the headers x-acs-action and x-acs-version say what is called.
func (v Version) Sign(request *http.Request, keys credentials.Keys, at time.Time) *http.Request {
	signed := request.Clone(request.Context())
	stamp := at.UTC().Format("2006-01-02T15:04:05Z")
	if v == V1 {
		signV1(signed, keys, stamp, rand.Text())
	} else {
		signV3(signed, keys, stamp, rand.Text())
	}
	return signed
}

const (
	algorithm = "ACS3-HMAC-SHA256"
	prefix    = "X-Acs-"
)

// signV3 signs the method, the query and the headers by which the gateway knows what is called, when and by whom.
func signV3(request *http.Request, keys credentials.Keys, stamp, nonce string) {
	request.URL.RawQuery = spaces(request.URL.Query().Encode())
	payload := hash("")
	header := request.Header
	header.Set("Accept", "application/json")
	header.Set(prefix+"Date", stamp)
	header.Set(prefix+"Signature-Nonce", nonce)
	header.Set(prefix+"Content-Sha256", payload)
	if keys.SecurityToken != "" {
		header.Set(prefix+"Security-Token", keys.SecurityToken)
	}
	names, lines := canonicalHeaders(request)
	canonical := strings.Join([]string{request.Method, "/", request.URL.RawQuery, lines, names, payload}, "\n")
	mac := hmac.New(sha256.New, []byte(keys.AccessKeySecret))
	mac.Write([]byte(algorithm + "\n" + hash(canonical)))
	header.Set("Authorization", fmt.Sprintf("%s Credential=%s,SignedHeaders=%s,Signature=%x", algorithm, keys.AccessKeyID, names, mac.Sum(nil)))
}

// canonicalHeaders returns the names of the headers that a signature covers, and a line for each.
func canonicalHeaders(request *http.Request) (names, lines string) {
	values := map[string]string{"host": request.URL.Host}
	for name, value := range request.Header {
		if strings.HasPrefix(name, prefix) || name == "Content-Type" {
			values[strings.ToLower(name)] = strings.TrimSpace(strings.Join(value, ","))
		}
	}
	sorted := slices.Sorted(maps.Keys(values))
	for _, name := range sorted {
		lines += name + ":" + values[name] + "\n"
	}
	return strings.Join(sorted, ";"), lines
}

// signV1 signs the method and the query, and adds what authenticates the caller to the query.
func signV1(request *http.Request, keys credentials.Keys, stamp, nonce string) {
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	query := request.URL.Query()
	for name, value := range map[string]string{
		"Action": request.Header.Get(prefix + "Action"), "Version": request.Header.Get(prefix + "Version"), "Format": "JSON",
		"SignatureMethod": "HMAC-SHA1", "SignatureVersion": "1.0", "SignatureType": "", "SignatureNonce": nonce,
		"Timestamp": stamp, "AccessKeyId": keys.AccessKeyID,
	} {
		query.Set(name, value)
	}
	if keys.SecurityToken != "" {
		query.Set("SecurityToken", keys.SecurityToken)
	}
	mac := hmac.New(sha1.New, []byte(keys.AccessKeySecret+"&"))
	mac.Write([]byte(request.Method + "&%2F&" + spaces(url.QueryEscape(spaces(query.Encode())))))
	query.Set("Signature", base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	request.URL.RawQuery = query.Encode()
}

// spaces has a text that Go has encoded as RFC 3986 says, which differs in the spaces alone.
func spaces(encoded string) string { return strings.ReplaceAll(encoded, "+", "%20") }

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
