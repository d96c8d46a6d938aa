package ecs

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/ecstest"
	"github.com/topodisk/topodisk/ecssim"
)

const (
	region  = ecstest.Region
	zoneH   = ecstest.ZoneH
	zoneI   = ecstest.ZoneI
	cluster = "c0123456789abcdef"
)

var (
	keys = credentials.Keys{AccessKeyID: ecstest.KeyID, AccessKeySecret: ecstest.Secret, SecurityToken: ecstest.Token}

	newSim       = ecstest.NewSim
	answerWith   = ecstest.Answer
	wantKind     = ecstest.WantKind
	wantNoSecret = ecstest.WantNoSecret
	gauge        = ecstest.Gauge
)

// simulate returns a simulator that checks signatures, and a Client of it.
func simulate(t *testing.T, change func(*ecssim.Config)) (*ecssim.Server, *Client) {
	t.Helper()
	sim := newSim(t, change)
	return sim, newClient(t, Config{Transport: sim})
}

// newClient fills in what the config leaves out.
func newClient(t *testing.T, config Config) *Client {
	t.Helper()
	config.Region, config.ClusterID = region, cluster
	if config.Credentials == nil {
		config.Credentials = credentials.Static(keys)
	}
	c, err := NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wanted returns a spec and an attempt that the simulator takes.
func wanted(name string) (disk.Spec, disk.Attempt, disk.Token) {
	return disk.Spec{Name: name, Tags: disk.Tags{disk.VolumeNameTag: name, disk.ClusterTag: cluster, disk.ManagedTag: "true", "empty": ""}},
		disk.Attempt{Zone: zoneH, Category: "cloud_essd", Level: disk.PL1, Size: 20},
		disk.NewToken(name, 1)
}

func create(ctx context.Context, c *Client, name string) (disk.Disk, error) {
	spec, try, token := wanted(name)
	return c.Create(ctx, spec, try, token)
}

// calls counts the calls of an action, whatever came of them.
func calls(sim *ecssim.Server, action string) int {
	n := 0
	for _, c := range sim.Calls() {
		if c.Action == action {
			n++
		}
	}
	return n
}

type roundTrip = ecstest.RoundTrip

func TestNewClientNamesTheFieldTheValueAndWhatIsAllowed(t *testing.T) {
	good := Config{Region: region, Credentials: credentials.Static(keys), ClusterID: cluster}
	for name, test := range map[string]struct {
		change func(*Config)
		words  []string
	}{
		"no region":            {func(c *Config) { c.Region = "" }, []string{"Region", `""`, "cn-hangzhou"}},
		"bad region":           {func(c *Config) { c.Region = "cn hangzhou" }, []string{"Region", `"cn hangzhou"`}},
		"no credentials":       {func(c *Config) { c.Credentials = nil }, []string{"Credentials", "required"}},
		"no cluster":           {func(c *Config) { c.ClusterID = "" }, []string{"ClusterID", "1 to 128"}},
		"endpoint with scheme": {func(c *Config) { c.Endpoint = "ftp://host" }, []string{"Endpoint", `"ftp://host"`, "scheme", "https://host:port"}},
		"endpoint with path":   {func(c *Config) { c.Endpoint = "http://host/ecs" }, []string{"Endpoint", "host:port"}},
		"endpoint with query":  {func(c *Config) { c.Endpoint = "host?x=y" }, []string{"Endpoint", "not a host"}},
		"endpoint no host":     {func(c *Config) { c.Endpoint = "http://" }, []string{"Endpoint", "no host"}},
		"endpoint no URL":      {func(c *Config) { c.Endpoint = "http://[::1" }, []string{"Endpoint", "not a URL"}},
		"endpoint with user":   {func(c *Config) { c.Endpoint = "http://user:hunter2@host" }, []string{"Endpoint", "user name"}},
	} {
		t.Run(name, func(t *testing.T) {
			config := good
			test.change(&config)
			_, err := NewClient(config)
			if err == nil {
				t.Fatal("NewClient took it")
			}
			for _, word := range test.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("error %q lacks %s", err, word)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %q shows a password", err)
			}
		})
	}
}

func TestEndpointIsHTTPSUnlessItSaysOtherwise(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "https://ecs-cn-hangzhou.aliyuncs.com",
		"ecs.internal":              "https://ecs.internal",
		"ecs.internal:8443":         "https://ecs.internal:8443",
		"https://ecs.internal/":     "https://ecs.internal",
		"http://127.0.0.1:8080":     "http://127.0.0.1:8080",
		"http://[::1]:8080":         "http://[::1]:8080",
		"ecs-vpc.cn-x.aliyuncs.com": "https://ecs-vpc.cn-x.aliyuncs.com",
	} {
		synctest.Test(t, func(t *testing.T) {
			sim := newSim(t, nil)
			var got []string
			c := newClient(t, Config{Endpoint: text, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				got = append(got, r.URL.Scheme+"://"+r.URL.Host)
				return sim.RoundTrip(r)
			})})
			if err := c.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(got) != 1 || got[0] != want {
				t.Errorf("endpoint %q: calls went to %q, want %s", text, got, want)
			}
		})
	}
}

func TestRegionWithoutItsOwnEntryHasAnEndpointByRule(t *testing.T) {
	e, err := NewClient(Config{Region: "cn-beijing", Credentials: credentials.Static(keys), ClusterID: cluster, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.URL.Host != "ecs.cn-beijing.aliyuncs.com" {
			t.Errorf("call went to %s", r.URL.Host)
		}
		return nil, errors.New("enough seen")
	})})
	if err != nil {
		t.Fatal(err)
	}
	wantKind(t, e.Check(t.Context()), disk.Unreachable)
}

func TestCheckSaysWhetherKeysAreTaken(t *testing.T) {
	for name, test := range map[string]struct {
		keys credentials.Provider
		want disk.Kind
	}{
		"unknown key":   {credentials.Static(credentials.Keys{AccessKeyID: "LTAInobodyknows", AccessKeySecret: keys.AccessKeySecret}), disk.Unauthenticated},
		"wrong secret":  {credentials.Static(credentials.Keys{AccessKeyID: keys.AccessKeyID, AccessKeySecret: "anotherSecret"}), disk.Unauthenticated},
		"no key at all": {credentials.Static(credentials.Keys{}), disk.Unauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := newSim(t, nil)
				err := newClient(t, Config{Transport: sim, Credentials: test.keys}).Check(t.Context())
				wantKind(t, err, test.want)
				if _, err := create(t.Context(), newClient(t, Config{Transport: sim, Credentials: test.keys}), "x1"); disk.KindOf(err) != test.want {
					t.Errorf("Create says %v", err)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		_, c := simulate(t, nil)
		if err := c.Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestProxyVariablesThatTheSDKCantReadFailNoCall(t *testing.T) {
	t.Setenv("NO_PROXY", "*.internal,[,(")
	t.Setenv("HTTPS_PROXY", "http://%zz")
	t.Setenv("HTTP_PROXY", "http://%zz")
	synctest.Test(t, func(t *testing.T) {
		_, c := simulate(t, nil)
		if err := c.Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestMetricsHaveClosedLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		sim := newSim(t, nil)
		c := newClient(t, Config{Transport: sim, Registerer: registry})
		for _, f := range []ecssim.Fault{
			{Action: "CreateDisk", Count: 1, Do: ecssim.FaultError, Status: 400, Code: "Never.Heard.Of." + strings.Repeat("x", 99)},
			{Action: "CreateDisk", Count: 1, Do: ecssim.FaultThrottle},
		} {
			if err := sim.AddFault(f); err != nil {
				t.Fatal(err)
			}
		}
		_, err := create(t.Context(), c, "vol-1")
		wantKind(t, err, disk.UnknownOutcome)
		if _, err := create(t.Context(), c, "vol-1"); err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, m := range family.Metric {
				var labels []string
				for _, l := range m.Label {
					labels = append(labels, l.GetValue())
				}
				name := family.GetName() + " " + strings.Join(labels, " ")
				got[name] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		for name, want := range map[string]float64{
			"topodisk_ecs_requests_total CreateDisk unknown_outcome": 1,
			"topodisk_ecs_requests_total CreateDisk throttled":       1,
			"topodisk_ecs_requests_total CreateDisk ok":              1,
			"topodisk_ecs_requests_total DescribeDisks ok":           1,
			"topodisk_ecs_request_duration_seconds CreateDisk":       3,
			"topodisk_ecs_read_batch_disks ":                         1,
			"topodisk_ecs_throttle_wait_seconds CreateDisk":          1,
		} {
			if got[name] != want {
				t.Errorf("%s is %v, want %v; all: %v", name, got[name], want, got)
			}
		}
		for _, name := range []string{"requests_total DescribeDisks throttled", "requests_total DescribeDisks unreachable"} {
			if n, shown := got["topodisk_ecs_"+name]; !shown || n != 0 {
				t.Errorf("topodisk_ecs_%s is %v, %v, want a series at 0: alerts count its increase", name, n, shown)
			}
		}
		for name := range got {
			if strings.HasPrefix(name, "topodisk_ecs_throttle_wait_seconds") && got[name] == 0 {
				t.Errorf("%s: an action that was never throttled has series", name)
			}
		}
		if _, err := NewClient(Config{Region: region, ClusterID: cluster, Credentials: credentials.Static(keys), Registerer: registry}); err == nil || !strings.Contains(err.Error(), "Registerer") {
			t.Errorf("second registration: %v", err)
		}
	})
}

func TestCallsInFlightAreBounded(t *testing.T) {
	const atOnce = 32 // while ECS has accepted no call
	synctest.Test(t, func(t *testing.T) {
		sim, c := simulate(t, func(config *ecssim.Config) {
			config.Latency.API = map[string]time.Duration{"DeleteDisk": 10 * time.Second}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		errs := make(chan error)
		for range atOnce + 1 {
			go func() { errs <- c.Delete(ctx, "d-bp1absent") }()
		}
		count := map[disk.Kind]int{}
		for range atOnce + 1 {
			count[disk.KindOf(<-errs)]++
		}
		if count[disk.Unreachable] != 1 || count[disk.UnknownOutcome] != atOnce {
			t.Errorf("outcomes are %v; want one call that was not sent and %d that nobody knows of", count, atOnce)
		}
		time.Sleep(10 * time.Second)
		if n := calls(sim, "DeleteDisk"); n != atOnce {
			t.Errorf("%d calls reached ECS, want %d", n, atOnce)
		}
	})
}
