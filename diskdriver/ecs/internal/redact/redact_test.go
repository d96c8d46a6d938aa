package redact

import (
	"net/url"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	for name, test := range map[string]struct{ foreign, want string }{
		"a page":           {"<html>\n  <b>Bad\tGateway</b>\r\n</html>", "<html> <b>Bad Gateway</b> </html>"},
		"long":             {strings.Repeat("x", 501), strings.Repeat("x", 500) + "..."},
		"cut in a letter":  {strings.Repeat("x", 499) + "é", strings.Repeat("x", 499) + "..."},
		"not UTF-8":        {"a\xffb", "a?b"},
		"what was signed":  {"no match, server string to sign is:POST&%2F&AccessKeyId%3DLTAI", "no match, server string to sign is not shown"},
		"a signed header":  {"Authorization: ACS3-HMAC-SHA256 Credential=LTAI5t,SignedHeaders=host;x-acs-date,Signature=ab12", "Authorization: ACS3-HMAC-SHA256 Credential=***"},
		"a signed URL":     {"Post https://h/?AccessKeyId=LTAI5t&Action=X&Signature=ab%2Fcd", "Post https://h/?AccessKeyId=***&Action=X&Signature=***"},
		"at the very end":  {strings.Repeat("x", 495) + "the+secret", strings.Repeat("x", 495) + "***"},
		"a word as secret": {"it is short", "it is short"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Text(test.foreign, "the+secret", "is"); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func FuzzTextHidesSecrets(f *testing.F) {
	f.Add("https://host/?AccessKeyId=LTAI5t&Signature=ab%2Fcd&SecurityToken=x", 3)
	f.Add("server string to sign is:POST&%2F&AccessKeyId%3DLTAI", 0)
	const secret = "s3cr3t+Of/The=Tests~0123456789"
	once := url.QueryEscape(secret)
	f.Fuzz(func(t *testing.T, text string, at int) {
		at = min(max(at, 0), len(text))
		for _, form := range []string{secret, once, url.QueryEscape(once)} {
			if got := Text(text[:at]+" "+form+" "+text[at:], secret); strings.Contains(got, form) {
				t.Fatalf("%q still holds %q", got, form)
			}
		}
	})
}
