package credentials

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/topodisk/topodisk/diskdriver/ecs/internal/ecstest"
)

// bare takes every variable that Choose reads out of the environment, and then
// sets some.
func bare(t *testing.T, set map[string]string) {
	t.Helper()
	for _, variable := range []string{idVariable, secretVariable, tokenVariable, tokenFileVariable, oidcArnVariable, roleArnVariable,
		sessionNameVariable, roleNameVariable, noMetadataVariable, onlyTokensVariable} {
		t.Setenv(variable, set[variable])
	}
}

var serviceAccount = map[string]string{tokenFileVariable: "/no/such/token", oidcArnVariable: "acs:ram::1:oidc-provider/ack", roleArnVariable: "acs:ram::1:role/disks"}

func with(all ...map[string]string) map[string]string {
	sum := map[string]string{}
	for _, m := range all {
		for k, v := range m {
			sum[k] = v
		}
	}
	return sum
}

func TestChooseTakesOneSource(t *testing.T) {
	pair := map[string]string{idVariable: "the-id", secretVariable: "the-secret"}
	for name, test := range map[string]struct {
		directory string
		set       map[string]string
		source    string
		words     string // of the error
	}{
		"directory over all":          {"/etc/keys", with(pair, serviceAccount), fromDirectory, ""},
		"OIDC over environment":       {"", with(pair, serviceAccount), fromOIDC, ""},
		"OIDC alone":                  {"", serviceAccount, fromOIDC, ""},
		"a role alone is no OIDC":     {"", with(pair, map[string]string{roleArnVariable: "acs:ram::1:role/x"}), fromEnvironment, ""},
		"environment":                 {"", pair, fromEnvironment, ""},
		"half a pair":                 {"", map[string]string{secretVariable: "the-secret"}, fromEnvironment, ""},
		"nothing":                     {"", nil, fromRAMRole, ""},
		"a named role":                {"", map[string]string{roleNameVariable: "disks"}, fromRAMRole, ""},
		"nothing and no metadata":     {"", map[string]string{noMetadataVariable: "true"}, "", noMetadataVariable},
		"OIDC without a role":         {"", map[string]string{tokenFileVariable: "/x", oidcArnVariable: "y"}, "", roleArnVariable},
		"OIDC without a token":        {"", map[string]string{roleArnVariable: "x", oidcArnVariable: "y"}, "", tokenFileVariable},
		"OIDC without a provider":     {"", with(pair, map[string]string{tokenFileVariable: "/x"}), "", oidcArnVariable},
		"OIDC with a bad name":        {"", with(serviceAccount, map[string]string{sessionNameVariable: "a b"}), "", `"a b"`},
		"a role that can't be a name": {"", map[string]string{roleNameVariable: "../x"}, "", `"../x"`},
	} {
		t.Run(name, func(t *testing.T) {
			bare(t, test.set)
			got, source, err := Choose(Sources{Directory: test.directory, Region: ecstest.Region})
			if source != test.source || (err != nil) != (got == nil) {
				t.Errorf("%T, %q, %v; want %q", got, source, err, test.source)
			}
			switch {
			case test.words != "" && (err == nil || !strings.Contains(err.Error(), test.words)):
				t.Errorf("error %v doesn't say %s", err, test.words)
			case err != nil && strings.Contains(err.Error(), "the-"):
				t.Errorf("error %v shows a value", err)
			}
		})
	}
}

func TestTheFirstChoiceStands(t *testing.T) {
	bare(t, with(serviceAccount, map[string]string{idVariable: "the-id", secretVariable: "the-secret"}))
	chosen, _, err := Choose(Sources{Region: ecstest.Region})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got, err := chosen.Get(t.Context()); err == nil || got != (Keys{}) || !strings.Contains(err.Error(), tokenFileVariable) {
			t.Errorf("a source that fails gives %v, %v", got, err)
		}
	}
}

func TestSourcesNameTheEndpointThatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		sources Sources
		set     map[string]string
		words   []string
	}{
		"STS":       {Sources{Region: ecstest.Region, STSEndpoint: "ftp://x"}, serviceAccount, []string{"STSEndpoint", `"ftp://x"`, "https://host:port"}},
		"metadata":  {Sources{Region: ecstest.Region, MetadataEndpoint: "http://h/latest"}, nil, []string{"MetadataEndpoint", "http://h/latest"}},
		"no region": {Sources{}, serviceAccount, []string{"Region", "cn-hangzhou"}},
	} {
		t.Run(name, func(t *testing.T) {
			bare(t, test.set)
			_, _, err := Choose(test.sources)
			for _, word := range test.words {
				if err == nil || !strings.Contains(err.Error(), word) {
					t.Errorf("error %v lacks %s", err, word)
				}
			}
		})
	}
}

func TestEndpointsOfTheKeyServices(t *testing.T) {
	for name, test := range map[string]struct {
		sources Sources
		set     map[string]string
		want    string
	}{
		"STS of the region":   {Sources{}, serviceAccount, "https://sts.cn-hangzhou.aliyuncs.com"},
		"STS by host":         {Sources{STSEndpoint: "sts-vpc.cn-hangzhou.aliyuncs.com"}, serviceAccount, "https://sts-vpc.cn-hangzhou.aliyuncs.com"},
		"STS by URL":          {Sources{STSEndpoint: "http://127.0.0.1:8080"}, serviceAccount, "http://127.0.0.1:8080"},
		"metadata":            {Sources{}, nil, "http://100.100.100.200"},
		"metadata by host":    {Sources{MetadataEndpoint: "127.0.0.1:80"}, nil, "http://127.0.0.1:80"},
		"metadata over HTTPS": {Sources{MetadataEndpoint: "https://meta.internal"}, nil, "https://meta.internal"},
	} {
		t.Run(name, func(t *testing.T) {
			set := with(test.set)
			if test.set != nil {
				set[tokenFileVariable] = tokenFileOf(t, "a-token")
			}
			bare(t, set)
			var asked string
			test.sources.Region = ecstest.Region
			test.sources.Transport = ecstest.RoundTrip(func(r *http.Request) (*http.Response, error) {
				asked = r.URL.Scheme + "://" + r.URL.Host
				return ecstest.Answer(r, 503, "busy"), nil
			})
			chosen, _, err := Choose(test.sources)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := chosen.Get(t.Context()); err == nil {
				t.Error("keys came from nowhere")
			}
			if asked != test.want {
				t.Errorf("asked was %s, want %s", asked, test.want)
			}
		})
	}
}

func TestCredentialsAreMeasuredUnderTheirSource(t *testing.T) {
	bare(t, nil)
	registry := prometheus.NewRegistry()
	chosen, source, err := Choose(Sources{Region: ecstest.Region, Registerer: registry, Transport: ecstest.RoundTrip(func(r *http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("no route to host")
	})})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := chosen.Get(t.Context()); err == nil || !strings.Contains(err.Error(), "no route to host") {
		t.Errorf("got %v", err)
	}
	if failing := ecstest.Gauge(t, registry, "topodisk_ecs_credentials_failing"); failing != 1 || source != fromRAMRole {
		t.Errorf("failing is %v of %s", failing, source)
	}
	if _, _, err := Choose(Sources{Region: ecstest.Region, Registerer: registry}); err == nil || !strings.Contains(err.Error(), "Registerer") {
		t.Errorf("second registration: %v", err)
	}
}
