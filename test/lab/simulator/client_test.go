package simulator

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestClientHandsOverWhatTheSimulatorAnswers(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/_sim/state" {
			http.Error(w, "no such zone", http.StatusBadRequest)
			return
		}
		w.Write([]byte(`{"disks":[{"id":"d-1","tags":{"kubernetes.io/created-for/pvc/namespace":"shop"}},{"id":"d-2"}]}`))
	}))
	defer server.Close()
	c := New(server.URL)
	if of, err := c.Disks(t.Context(), "shop"); err != nil || len(of) != 1 || of[0].ID != "d-1" {
		t.Errorf("disks of the namespace are %v, %v", of, err)
	}
	if err := c.SetStock(t.Context(), "cn-hangzhou-x", "cloud_essd", SoldOut); err == nil || !strings.Contains(err.Error(), "no such zone") {
		t.Errorf("a refusal is %v", err)
	}
	want := []string{"--socket=/s", "--ecs=" + strings.TrimPrefix(server.URL, "http://"), "n-1"}
	if got := c.Fill([]string{"--socket={socket}", "--ecs={ecs}", "{node}"}, "/s", "cn-hangzhou", "{node}", "n-1"); !slices.Equal(got, want) {
		t.Errorf("filled are %q, want %q", got, want)
	}
}
