package main

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"k8s.io/client-go/rest"
)

type answering func()

func (f answering) RoundTrip(*http.Request) (*http.Response, error) {
	f()
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func TestReadsAndWritesDoNotWaitForEachOther(t *testing.T) {
	config := &rest.Config{QPS: 0.001, Burst: 2}
	limitEach(config)
	sent := 0
	// Two clients of one configuration share its limits.
	clients := []http.RoundTripper{config.WrapTransport(answering(func() { sent++ })), config.WrapTransport(answering(func() { sent++ }))}
	ended, end := context.WithCancelCause(t.Context())
	end(errors.New("no patience"))
	try := func(client int, method string, ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, method, "http://api", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := clients[client].RoundTrip(r)
		if err == nil {
			_ = response.Body.Close()
		}
		return err
	}
	for i, method := range []string{http.MethodPatch, http.MethodDelete, http.MethodGet, http.MethodHead} {
		if err := try(i%2, method, t.Context()); err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		if err := try(0, method, ended); err == nil || sent != 4 {
			t.Errorf("%s beyond the burst: %v, %d sent", method, err, sent)
		}
	}
}
