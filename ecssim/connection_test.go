package ecssim_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	adminapi "github.com/topodisk/topodisk/ecssim/admin"
)

func TestConnectionsAreCountedWithoutTheAdminAPI(t *testing.T) {
	s := newServer(t, unsigned)
	server := httptest.NewUnstartedServer(adminapi.Handler(s))
	server.Config.ConnContext = s.Connected
	server.Start()
	t.Cleanup(server.Close)
	get := func(client *http.Client, path string) string {
		t.Helper()
		reply, err := client.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = reply.Body.Close() }()
		text, err := io.ReadAll(reply.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const call = "/?Action=DescribeRegions&Version=2014-05-26&Format=JSON"
	kept, fresh := &http.Client{Transport: &http.Transport{}}, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	t.Cleanup(kept.CloseIdleConnections)
	for range 5 {
		get(kept, call)
	}
	for range 3 {
		get(fresh, call)
		get(fresh, "/_sim/state")
	}
	if text := get(fresh, "/_sim/stats"); !strings.Contains(text, `"connections": 4`) {
		t.Errorf("stats %s, want 4 connections: one that was kept, and three", text)
	}
	s.ResetStats()
	get(kept, call)
	if n := s.Stats().Connections; n != 0 {
		t.Errorf("%d connections after a reset, want 0: the one that was kept is old", n)
	}
	get(fresh, call)
	if n := s.Stats().Connections; n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}
