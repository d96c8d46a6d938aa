package credentials

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/topodisk/topodisk/diskdriver/ecs/internal/endpoint"
)

// metadataAddress is where every instance finds its metadata service.
const metadataAddress = "http://100.100.100.200"

// Sources says where credentials may come from.
type Sources struct {
	// Directory holds the files of an access key. Empty: none.
	Directory string
	// Files are what the directory's files are called; UsualFiles if empty.
	Files FileNames
	// Region is the ECS region, whose STS is asked.
	Region string
	// STSEndpoint is a host, host:port or URL of STS; HTTPS is spoken unless it
	// starts with http://. Empty: that of the region.
	STSEndpoint string
	// MetadataEndpoint is a host, host:port or URL of the instance metadata
	// service; HTTP is spoken unless it starts with https://. Empty: that of
	// every instance, 100.100.100.200.
	MetadataEndpoint string
	// Transport carries the requests to STS and to the metadata service; nil
	// stands for ones of their own, of which that to the metadata service uses
	// no proxy.
	Transport http.RoundTripper
	// Registerer takes the metrics; nil keeps them unregistered.
	Registerer prometheus.Registerer
}

// The sources, as metrics and logs call them.
const (
	fromDirectory   = "directory"
	fromOIDC        = "oidc"
	fromEnvironment = "environment"
	fromRAMRole     = "ram-role"
)

// Choose returns the one source of credentials of this process, and its name.
// It is the first of these that is there:
//
//   - the directory, if one is named;
//   - OIDC, a RAM role for the Pod's service account, if
//     ALIBABA_CLOUD_OIDC_TOKEN_FILE or ALIBABA_CLOUD_OIDC_PROVIDER_ARN is set;
//   - the environment, if it holds any part of an access key;
//   - the RAM role of the instance, unless ALIBABA_CLOUD_ECS_METADATA_DISABLED
//     is true.
//
// The choice stands: a source that fails later is never replaced by another
// one, for that might be another account. Choose calls nothing, so that a service
// that is down decides nothing. Its error names the field or the environment
// variable, and what is allowed.
func Choose(s Sources) (Provider, string, error) {
	source := s.source()
	m := newMetrics(source)
	provider, err := s.open(source, m)
	if err != nil {
		return nil, "", err
	}
	if s.Registerer != nil {
		if err := m.register(s.Registerer); err != nil {
			return nil, "", fmt.Errorf("credentials.Sources.Registerer: %w", err)
		}
	}
	return provider, source, nil
}

// source returns the name of the first source that is there.
func (s *Sources) source() string {
	switch {
	case s.Directory != "":
		return fromDirectory
	case os.Getenv(tokenFileVariable) != "" || os.Getenv(oidcArnVariable) != "":
		return fromOIDC
	case os.Getenv(idVariable) != "" || os.Getenv(secretVariable) != "" || os.Getenv(tokenVariable) != "":
		return fromEnvironment
	}
	return fromRAMRole
}

func (s *Sources) open(source string, m *metrics) (Provider, error) {
	switch source {
	case fromDirectory:
		return &directory{path: s.Directory, files: cmp.Or(s.Files, UsualFiles), metrics: m}, nil
	case fromEnvironment:
		return environment(), nil
	case fromOIDC:
		address, err := s.stsAddress()
		if err != nil {
			return nil, err
		}
		role, err := newOIDC(address, s.transport(http.ProxyFromEnvironment))
		if err != nil {
			return nil, err
		}
		return newCache(role, m), nil
	}
	at, err := endpoint.Parse("credentials.Sources.MetadataEndpoint", s.MetadataEndpoint, "http")
	if err != nil {
		return nil, err
	}
	role, err := newRAMRole(at.URL(metadataAddress), s.transport(nil))
	if err != nil {
		return nil, fmt.Errorf("no credentials: set %s and %s, or name a directory with the files %s and %s (%w)", idVariable, secretVariable, idFile, secretFile, err)
	}
	return newCache(role, m), nil
}

// stsAddress returns the URL of STS.
func (s *Sources) stsAddress() (string, error) {
	at, err := endpoint.Parse("credentials.Sources.STSEndpoint", s.STSEndpoint, "https")
	if err != nil {
		return "", err
	}
	if at.Host == "" {
		if err := endpoint.CheckRegion("credentials.Sources.Region", s.Region); err != nil {
			return "", err
		}
	}
	return at.URL("https://sts." + s.Region + ".aliyuncs.com"), nil
}

// transport returns a transport for a few small requests an hour: it keeps no
// connection, which would be gone by the next.
func (s *Sources) transport(proxy func(*http.Request) (*url.URL, error)) http.RoundTripper {
	if s.Transport != nil {
		return s.Transport
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	return &http.Transport{
		Proxy: proxy, DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: 10 * time.Second,
		DisableKeepAlives: true,
	}
}
