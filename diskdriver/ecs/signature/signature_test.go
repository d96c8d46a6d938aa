package signature

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk"
	sdkcredentials "github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/ecstest"
)

// request is one that is not signed yet.
func request(t *testing.T, host, action, query string) *http.Request {
	t.Helper()
	r, err := http.NewRequest("POST", "https://"+host+"/?"+query, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Acs-Action", action)
	r.Header.Set("X-Acs-Version", "2014-05-26")
	return r
}

// The example is the one of the vendor's page on version 3.
func TestV3SignsThePublishedExample(t *testing.T) {
	r := request(t, "ecs.cn-shanghai.aliyuncs.com", "RunInstances", "RegionId=cn-shanghai&ImageId=win2019_1809_x64_dtc_zh-cn_40G_alibase_20230811.vhd")
	signV3(r, credentials.Keys{AccessKeyID: "YourAccessKeyId", AccessKeySecret: "YourAccessKeySecret"}, "2023-10-26T10:22:32Z", "3156853299f313e23d1673dc12e1703d")
	const want = "ACS3-HMAC-SHA256 Credential=YourAccessKeyId,SignedHeaders=host;x-acs-action;x-acs-content-sha256;x-acs-date;x-acs-signature-nonce;x-acs-version," +
		"Signature=06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0"
	if got := r.Header.Get("Authorization"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The request was recorded from the vendor's second generation of SDKs for Go (darabonba-openapi v2.1.13), which signs in headers.
func TestV3SignsAsTheNewerSDKDoes(t *testing.T) {
	r := request(t, "127.0.0.1:18082", "CreateDisk", "DiskCategory=cloud_essd&RegionId=cn-hangzhou&Size=20&Tag.1.Key=a+b%2A~&Tag.1.Value=x%2Fy%2Bz+%C3%A9&ZoneId=cn-hangzhou-h")
	r.Header.Set("X-Acs-Credentials-Provider", "static_ak")
	signV3(r, credentials.Keys{AccessKeyID: "LTAIexample", AccessKeySecret: "exampleSecret"}, "2026-11-21T03:28:08Z", "2a1d4a351b694332cd7688b5dc722c51")
	if got, want := r.Header.Get("Authorization"), "Signature=bac579d5360297391324296341ed04a4381836430bce0853ec16c1945e76ee73"; !strings.HasSuffix(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	if strings.Contains(r.URL.RawQuery, "+") {
		t.Errorf("the query is not encoded as it is signed: %s", r.URL.RawQuery)
	}
}

// The SDK signs with version 1.0: the same request has the same parameters and signature here.
func TestV1SignsAsTheSDKDoes(t *testing.T) {
	for name, token := range map[string]string{"a key": "", "a temporary key": ecstest.Token} {
		t.Run(name, func(t *testing.T) {
			sent := sentBySDK(t, token)
			query := sent.URL.Query()
			stamp, nonce := query.Get("Timestamp"), query.Get("SignatureNonce")
			unsigned := url.Values{}
			for _, name := range []string{"RegionId", "DiskName", "Size", "Tag.1.Key", "Tag.1.Value"} {
				unsigned[name] = query[name]
			}
			r := request(t, sent.URL.Host, "CreateDisk", unsigned.Encode())
			signV1(r, credentials.Keys{AccessKeyID: ecstest.KeyID, AccessKeySecret: ecstest.Secret, SecurityToken: token}, stamp, nonce)
			if got, want := r.URL.Query().Encode(), query.Encode(); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if got, want := r.Header.Get("Content-Type"), sent.Header.Get("Content-Type"); got != want {
				t.Errorf("Content-Type %q, want %q", got, want)
			}
		})
	}
}

// sentBySDK returns the request that the SDK's own client sends for a disk.
func sentBySDK(t *testing.T, token string) *http.Request {
	t.Helper()
	var sent *http.Request
	config := sdk.NewConfig()
	config.Transport = ecstest.RoundTrip(func(r *http.Request) (*http.Response, error) {
		sent = r
		return nil, io.EOF
	})
	client, err := sdkecs.NewClientWithOptions(ecstest.Region, config, sdkcredentials.NewStaticSTSCredentialsProvider(ecstest.KeyID, ecstest.Secret, token))
	if err != nil {
		t.Fatal(err)
	}
	order := sdkecs.CreateCreateDiskRequest()
	order.DiskName, order.Size = "a b*c~d+e/f%é", "20"
	order.Tag = &[]sdkecs.CreateDiskTag{{Key: "k&=", Value: "v v"}}
	if _, err := client.CreateDisk(order); err == nil || sent == nil {
		t.Fatalf("the SDK sent %v: %v", sent, err)
	}
	return sent
}

func TestSimulatorTakesEachVersionOnce(t *testing.T) {
	keys := credentials.Keys{AccessKeyID: ecstest.KeyID, AccessKeySecret: ecstest.Secret, SecurityToken: ecstest.Token}
	for _, v := range Versions {
		t.Run(string(v), func(t *testing.T) {
			sim := ecstest.NewSim(t, nil)
			unsigned := request(t, "ecs.test", "DescribeDisks", "DiskName=a%20b%2Ac~d%2Be%2Ff%25%C3%A9&RegionId=cn-hangzhou&ResourceGroupId=")
			signed := v.Sign(unsigned, keys, time.Now())
			for _, try := range []struct {
				request *http.Request
				code    string
			}{{signed, ""}, {signed, "SignatureNonceUsed"}, {v.Sign(unsigned, keys, time.Now()), ""}} {
				reply, err := sim.RoundTrip(try.request)
				if err != nil {
					t.Fatal(err)
				}
				text, _ := io.ReadAll(reply.Body)
				if try.code == "" && reply.StatusCode != 200 || !strings.Contains(string(text), try.code) {
					t.Errorf("%d %s, want %q", reply.StatusCode, text, try.code)
				}
			}
			if unsigned.Header.Get("Authorization") != "" || unsigned.URL.Query().Has("Signature") {
				t.Error("the request was signed in place")
			}
			if secrets := signed.URL.String(); v == V3 && (strings.Contains(secrets, ecstest.KeyID) || strings.Contains(secrets, "CAIS")) {
				t.Errorf("the URL, which proxies log, shows keys: %s", secrets)
			}
		})
	}
}

func TestCheckNamesWhatIsAllowed(t *testing.T) {
	for _, v := range Versions {
		if err := v.Check(); err != nil {
			t.Error(err)
		}
	}
	if err := Version("v2").Check(); err == nil || err.Error() != `version "v2" is not allowed: allowed are v3 and v1` {
		t.Errorf("%v", err)
	}
}
