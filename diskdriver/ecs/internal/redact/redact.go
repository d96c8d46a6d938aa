// Package redact prepares texts of other systems for errors and logs: each becomes
// one short line without secrets.
package redact

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/topodisk/topodisk/internal/escape"
)

// longest is how much of a foreign text goes into an error.
const longest = 500

// shortestSecret is less than any key has; shorter ones would stand in any word.
const shortestSecret = 6

// signedText is what ECS quotes when a signature is wrong: the whole query, or the
// headers with the token among them.
const signedText = "server string to sign is"

// signedParameter is a parameter of a signed URL, once or twice percent-encoded, or a field of the header Authorization.
var signedParameter = regexp.MustCompile(`(?i)(AccessKeyId|Credential|SecurityToken|Signature|SignatureNonce|BearerToken)(=|%3D|%253D)[^&\s"']+`)

// Text returns a foreign text, which may be a web page, on one line of at most
// 500 bytes, with control characters escaped. The secrets are hidden, also where they stand percent-encoded, once
// or twice, and so are the parameters by which a URL is signed.
func Text(foreign string, secrets ...string) string {
	for _, secret := range secrets {
		if len(secret) < shortestSecret {
			continue
		}
		once := url.QueryEscape(secret)
		for _, form := range []string{secret, once, url.QueryEscape(once)} {
			foreign = strings.ReplaceAll(foreign, form, "***")
		}
	}
	text := signedParameter.ReplaceAllString(foreign, "$1=***")
	if at := strings.Index(text, signedText); at >= 0 {
		text = text[:at] + signedText + " not shown"
	}
	return escape.Line(strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "?"), longest)
}
