// Package ecstest has what the tests of the packages below diskdriver/ecs share.
package ecstest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
)

// Where the simulators are that NewSim makes, and who may call them. The keys
// look like real ones, with characters that a URL escapes.
const (
	Region = "cn-hangzhou"
	ZoneH  = "cn-hangzhou-h"
	ZoneI  = "cn-hangzhou-i"

	KeyID  = "LTAI5tExampleKeyOfTests"
	Secret = "s3cr3t+Of/The=Tests~0123456789"
	Token  = "CAISt0ken/Of+Tests=="
)

// NewSim returns a simulator that checks signatures; change may be nil.
func NewSim(t *testing.T, change func(*ecssim.Config)) *ecssim.Server {
	t.Helper()
	config := ecssim.Config{
		Region: Region, Zones: []string{ZoneH, ZoneI},
		AccessKeys: map[string]string{KeyID: Secret}, SecurityTokens: map[string]string{KeyID: Token},
	}
	if change != nil {
		change(&config)
	}
	sim, err := ecssim.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return sim
}

// RoundTrip is an http.RoundTripper of one function.
type RoundTrip func(*http.Request) (*http.Response, error)

// RoundTrip calls the function.
func (f RoundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Answer returns an HTTP response with a body.
func Answer(r *http.Request, status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}
}

// WantKind returns the error, or an empty one if it is none of package disk.
func WantKind(t *testing.T, err error, want disk.Kind) *disk.Error {
	t.Helper()
	var e *disk.Error
	if !errors.As(err, &e) {
		t.Errorf("error %v is no disk.Error; want kind %v", err, want)
		return &disk.Error{}
	}
	if e.Kind != want {
		t.Errorf("error %q has kind %v, want %v", err, e.Kind, want)
	}
	return e
}

// Gauge returns a gauge of a registry.
func Gauge(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.Metric[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// WantNoSecret fails if an error, or one that it wraps, shows one of the keys, also
// percent-encoded once or twice, or one of more.
func WantNoSecret(t *testing.T, err error, more ...string) {
	t.Helper()
	hidden := more
	for _, secret := range []string{KeyID, Secret, Token} {
		once := url.QueryEscape(secret)
		hidden = append(hidden, secret, once, url.QueryEscape(once))
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		for _, text := range []string{e.Error(), fmt.Sprintf("%+v %#v", e, e)} {
			for _, secret := range hidden {
				if strings.Contains(text, secret) {
					t.Errorf("error shows %q: %s", secret, text)
				}
			}
		}
	}
}
