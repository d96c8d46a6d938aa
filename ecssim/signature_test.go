package ecssim

import "testing"

// The vector is the one that the documentation of the signature publishes.
func TestSignatureOfThePublishedExample(t *testing.T) {
	p := parameters{
		"Timestamp": "2016-02-23T12:46:24Z", "Format": "XML", "AccessKeyId": "testid", "Action": "DescribeRegions",
		"SignatureMethod": "HMAC-SHA1", "SignatureNonce": "3ee8c1b8-83d3-44af-a94f-4e0ad82fd6cf",
		"Version": "2014-05-26", "SignatureVersion": "1.0",
	}
	if got, want := sign(stringToSign("GET", p), "testsecret"), "OLeaidS1JvxuMvnyHOwuJ+uX5qY="; got != want {
		t.Errorf("signature %q, want %q", got, want)
	}
}

func TestPercentEncodeFollowsRFC3986(t *testing.T) {
	for in, want := range map[string]string{
		"a b": "a%20b", "*": "%2A", "~": "~", "+": "%2B", "/": "%2F", "é": "%C3%A9", "AZaz09-_.": "AZaz09-_.",
	} {
		if got := percentEncode(in); got != want {
			t.Errorf("percentEncode(%q) = %q, want %q", in, got, want)
		}
	}
}
