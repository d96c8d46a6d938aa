package endpoint

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{ // an URL, or what the error says
		"":                      "https://own",
		"ecs.internal":          "https://ecs.internal",
		"ecs.internal:8443":     "https://ecs.internal:8443",
		"https://ecs.internal/": "https://ecs.internal",
		"http://127.0.0.1:8080": "http://127.0.0.1:8080",
		"http://[::1]:8080":     "http://[::1]:8080",

		"ftp://host":               "the scheme is ftp",
		"http://host/ecs":          "more than a host and a port",
		"host?x=y":                 "not a host",
		"http://":                  "no host",
		"http://[::1":              "not a URL",
		"http://user:hunter2@host": "a user name",
		"user:hunter2@host":        "not a host",
		"host:port":                "not a host",
	} {
		e, err := Parse("Config.Endpoint", text, "https")
		switch got := e.URL("https://own"); {
		case err == nil && got != want:
			t.Errorf("%q is %s, want %s", text, got, want)
		case err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "Config.Endpoint")):
			t.Errorf("%q: error %v, want %s", text, err, want)
		case err != nil && strings.Contains(err.Error(), "hunter2"):
			t.Errorf("%q: error %v shows a password", text, err)
		}
	}
}

func TestCheckRegion(t *testing.T) {
	for region, ok := range map[string]bool{"cn-hangzhou": true, "us-east-1": true, "": false, "cn hangzhou": false, "cn-": false, "x/y": false} {
		if err := CheckRegion("Config.Region", region); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "Config.Region") {
			t.Errorf("%q: %v", region, err)
		}
	}
}
