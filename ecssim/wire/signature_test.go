package wire

import (
	"testing"
	"time"
)

// The vector is the one that the documentation of the signature publishes.
func TestSignatureOfThePublishedExample(t *testing.T) {
	p := Parameters{
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

// acs3Example is the example that the documentation of signatures in headers
// publishes.
func acs3Example() Message {
	return Message{
		Method: "POST", Path: "/", query: "RegionId=cn-shanghai&ImageId=win2019_1809_x64_dtc_zh-cn_40G_alibase_20230811.vhd",
		Header: map[string]string{
			"host": "ecs.cn-shanghai.aliyuncs.com", "x-acs-action": "RunInstances", "x-acs-version": "2014-05-26",
			"x-acs-content-sha256":  "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
			"x-acs-date":            "2023-10-26T10:22:32Z",
			"x-acs-signature-nonce": "3156853299f313e23d1673dc12e1703d",
			"authorization": "ACS3-HMAC-SHA256 Credential=YourAccessKeyId,SignedHeaders=host;x-acs-action;x-acs-content-sha256;x-acs-date;x-acs-signature-nonce;x-acs-version," +
				"Signature=06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0",
		},
	}
}

func TestSignatureInHeadersOfThePublishedExample(t *testing.T) {
	claim, no := readACS3(acs3Example(), nil)
	if no != nil {
		t.Fatal(no)
	}
	if want := "ACS3-HMAC-SHA256\n7ea06492da5221eba5297e897ce16e55f964061054b7695beedaac1145b1e259"; claim.toSign != want {
		t.Errorf("string to sign %q, want %q", claim.toSign, want)
	}
	if got := claim.sign(claim.toSign, "YourAccessKeySecret"); got != claim.signature {
		t.Errorf("signature %q, want %q", got, claim.signature)
	}
	if claim.keyID != "YourAccessKeyId" || claim.stamp != "2023-10-26T10:22:32Z" || claim.nonce != "3156853299f313e23d1673dc12e1703d" {
		t.Errorf("claim %+v", claim)
	}
}

// The requests were recorded from an SDK of another make, the generic OpenAPI
// client of Alibaba Cloud's second generation of SDKs (darabonba-openapi
// v2.1.13), which signs in headers. One has its parameters in the query, with
// spaces written as +, the other in a form.
func TestSignatureInHeadersOfRecordedRequests(t *testing.T) {
	const names = "host;x-acs-action;x-acs-content-sha256;x-acs-credentials-provider;x-acs-date;x-acs-signature-nonce;x-acs-version"
	recorded := func(action, query, body, nonce, names, signature string) Message {
		m := Message{Method: "POST", Path: "/", query: query, body: body, Header: map[string]string{
			"host": "127.0.0.1:18082", "x-acs-action": action, "x-acs-version": "2014-05-26",
			"x-acs-content-sha256": HexHash(body), "x-acs-credentials-provider": "static_ak", "x-acs-date": "2026-11-21T03:28:08Z", "x-acs-signature-nonce": nonce,
			"authorization": "ACS3-HMAC-SHA256 Credential=LTAIexample,SignedHeaders=" + names + ",Signature=" + signature,
		}}
		if body != "" {
			m.Header["content-type"] = "application/x-www-form-urlencoded"
		}
		return m
	}
	for name, m := range map[string]Message{
		"query": recorded("CreateDisk", "DiskCategory=cloud_essd&RegionId=cn-hangzhou&Size=20&Tag.1.Key=a+b%2A~&Tag.1.Value=x%2Fy%2Bz+%C3%A9&ZoneId=cn-hangzhou-h", "",
			"2a1d4a351b694332cd7688b5dc722c51", names, "bac579d5360297391324296341ed04a4381836430bce0853ec16c1945e76ee73"),
		"form": recorded("TagResources", "RegionId=cn-hangzhou", "ResourceId.1=d-bp10tou1mv0000000001&ResourceType=disk&Tag.1.Key=form&Tag.1.Value=in+the+body",
			"935950f2ea9b6f3bac9587a2ee35be2b", "content-type;"+names, "086d25f0235c20d6ef4623fa425864c479c63055957f136a43a964718f5c0691"),
	} {
		claim, no := readACS3(m, nil)
		if no != nil {
			t.Fatalf("%s: %v", name, no)
		}
		if got := claim.sign(claim.toSign, "exampleSecret"); got != claim.signature {
			t.Errorf("%s: signature %q, want %q", name, got, claim.signature)
		}
	}
}

// The order is that of the names alone: a name that goes on comes after the name, though = comes after digits.
func TestCanonicalQueryIsSortedByNames(t *testing.T) {
	if got, want := canonicalQuery("A.10=x&A.1=z&A.1=y+*&A.2="), "A.1=y%20%2A&A.1=z&A.10=x&A.2="; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestNoncesAreForgottenWithTheirTimestamps(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	n := newNonces()
	if !n.use("a", now) || n.use("a", now.Add(2*signatureWindow)) {
		t.Error("a nonce must be taken once while a timestamp of its time could be")
	}
	if !n.use("b", now.Add(noncesKept+nonceAgeSpan+time.Second)) || len(n.ages) != 1 || len(n.ages[0].used) != 1 {
		t.Errorf("old nonces must go: %v", n.ages)
	}
}
