// Package endpoint reads the addresses of Alibaba Cloud's services.
package endpoint

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// Endpoint is the scheme, http or https, and the host of a service. An empty host
// stands for the service's own endpoint.
type Endpoint struct{ Scheme, Host string }

var (
	regionForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	hostForm   = regexp.MustCompile(`^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)(:[0-9]{1,5})?$`)
)

// Parse reads a host, host:port or URL without a path; a text without a scheme
// gets the one given. The error names the field and what is allowed.
func Parse(field, text, scheme string) (Endpoint, error) {
	refuse := func(why string) (Endpoint, error) {
		return Endpoint{}, fmt.Errorf("%s %q: %s; allowed are host, host:port, https://host:port and http://host:port",
			field, hideUser(text), why)
	}
	parsed := Endpoint{Scheme: scheme, Host: text}
	if strings.Contains(text, "://") {
		u, err := url.Parse(text)
		switch {
		case err != nil:
			return refuse("not a URL")
		case u.Scheme != "http" && u.Scheme != "https":
			return refuse("the scheme is " + u.Scheme)
		case u.User != nil:
			return refuse("it holds a user name")
		case u.Path != "" && u.Path != "/", u.RawQuery != "", u.Fragment != "":
			return refuse("it has more than a host and a port")
		case u.Host == "":
			return refuse("it has no host")
		}
		parsed = Endpoint{Scheme: u.Scheme, Host: u.Host}
	}
	if parsed.Host != "" && !hostForm.MatchString(parsed.Host) {
		return refuse("not a host name or address")
	}
	return parsed, nil
}

// URL returns the URL of an endpoint, or the service's own one if it has no host.
func (e Endpoint) URL(own string) string {
	if e.Host == "" {
		return own
	}
	return e.Scheme + "://" + e.Host
}

// hideUser hides what stands before an @, for it may be a password.
func hideUser(text string) string {
	if at := strings.LastIndexByte(text, '@'); at >= 0 {
		return "***" + text[at:]
	}
	return text
}

// CheckRegion returns an error that names the field if a text can't be a region.
func CheckRegion(field, region string) error {
	if !regionForm.MatchString(region) {
		return fmt.Errorf("%s %q: an ECS region is required, such as cn-hangzhou", field, region)
	}
	return nil
}
