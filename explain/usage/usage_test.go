package usage

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUsed(t *testing.T) {
	const good = `{"status":"success","data":{"resultType":"vector","result":[
		{"metric":{"namespace":"shop","persistentvolumeclaim":"web"},"value":[1700000000.1,"5368709120"]},
		{"metric":{"namespace":"shop","persistentvolumeclaim":"odd"},"value":[1700000000.1,"NaN"]}]}}`
	for name, c := range map[string]struct {
		status int
		body   string
		want   map[string]int64
		fails  string
	}{
		"an answer":    {200, good, map[string]int64{"shop/web": 5 << 30}, ""},
		"no volumes":   {200, `{"status":"success","data":{"result":[]}}`, map[string]int64{}, ""},
		"an error":     {422, `{"status":"error","error":"query timed out"}`, nil, "422 Unprocessable Entity: query timed out"},
		"a login page": {200, "<html>", nil, "nothing that Prometheus would say"},
		"elsewhere":    {302, "", nil, "redirects elsewhere"},
		"not allowed":  {401, "no", nil, "401 Unauthorized"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				user, password, _ := r.BasicAuth()
				if r.URL.Path != "/prom/api/v1/query" || r.FormValue("query") != query || user != "me" || password != "hidden" {
					t.Errorf("asked %s for %q as %s", r.URL, r.FormValue("query"), user)
				}
				w.Header().Set("Location", "http://elsewhere.example.com/")
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.body)
			}))
			defer server.Close()
			client, err := New(strings.Replace(server.URL, "://", "://me:hidden@", 1) + "/prom/")
			if err != nil {
				t.Fatal(err)
			}
			got, err := client.Used(t.Context())
			if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails) || strings.Contains(err.Error(), "hidden")) {
				t.Errorf("got error %v, want %q", err, c.fails)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAddresses(t *testing.T) {
	for address, allowed := range map[string]bool{
		"https://prometheus.example.com": true, "http://127.0.0.1:9090/prom": true, "prometheus:9090": false, "ftp://x": false, "https://": false, "https://x/?query=1": false,
	} {
		if _, err := New(address); (err == nil) != allowed {
			t.Errorf("%s: %v", address, err)
		}
	}
}
