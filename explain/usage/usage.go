// Package usage asks a Prometheus how many bytes the volumes of claims use.
package usage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// query is the kubelet's metric. After a Pod has moved, two nodes may have told of its volume.
	query = "max by (namespace, persistentvolumeclaim) (kubelet_volume_stats_used_bytes)"
	// timeout is for the whole answer, and largest its size.
	timeout = 10 * time.Second
	largest = 64 << 20
)

// Client asks one Prometheus.
type Client struct {
	address *url.URL
	http    http.Client
}

// New returns a client. The address is the URL of Prometheus, without /api; user and password in it are sent. The error says what is
// allowed.
func New(address string) (*Client, error) {
	const allowed = "allowed is the URL of a Prometheus, such as https://prometheus.example.com"
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("it is no URL: " + allowed) // without the error, which has what may be a password
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%q is not allowed: %s", u.Redacted(), allowed)
	}
	refuse := func(*http.Request, []*http.Request) error {
		return errors.New("it redirects elsewhere, which is not followed")
	}
	return &Client{address: u.JoinPath("api/v1/query"), http: http.Client{Timeout: timeout, CheckRedirect: refuse}}, nil
}

// answer is the part of Prometheus' answer that is read.
type answer struct {
	Status string `json:"status"`
	Error  string `json:"error"`
	Data   struct {
		Result []struct {
			Metric struct {
				Namespace string `json:"namespace"`
				Claim     string `json:"persistentvolumeclaim"`
			} `json:"metric"`
			Value [2]any `json:"value"` // the time, and the number as text
		} `json:"result"`
	} `json:"data"`
}

// Used returns the bytes that claims use, by namespace/name. A claim that no Pod has mounted has none.
func (c *Client) Used(ctx context.Context) (map[string]int64, error) {
	form := strings.NewReader(url.Values{"query": {query}}.Encode())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.address.String(), form)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err // which doesn't show a password
	}
	defer func() { _ = response.Body.Close() }()
	var a answer
	switch err := json.NewDecoder(io.LimitReader(response.Body, largest)).Decode(&a); {
	case a.Status == "error":
		return nil, fmt.Errorf("%s answers %s: %s", c.address.Redacted(), response.Status, a.Error)
	case response.StatusCode != http.StatusOK || err != nil || a.Status != "success":
		return nil, fmt.Errorf("%s answers %s, and nothing that Prometheus would say", c.address.Redacted(), response.Status)
	}
	used := map[string]int64{}
	for _, r := range a.Data.Result {
		text, _ := r.Value[1].(string)
		if bytes, err := strconv.ParseFloat(text, 64); err == nil && bytes >= 0 {
			used[r.Metric.Namespace+"/"+r.Metric.Claim] = int64(bytes)
		}
	}
	return used, nil
}
