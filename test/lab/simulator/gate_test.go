package simulator

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestShutGateRefusesAndReopensOnItsAddress(t *testing.T) {
	slowly, release := make(chan struct{}), make(chan struct{})
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(slowly)
			<-release
		}
		io.WriteString(w, "here")
	}))
	defer behind.Close()
	defer close(release)
	gate, err := NewGate(behind.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Shut()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{}}
	get := func(path string) error {
		answer, err := client.Get(gate.URL() + path)
		if err == nil {
			answer.Body.Close()
		}
		return err
	}
	if err := get("/"); err != nil {
		t.Fatalf("through the open gate: %v", err)
	}
	slow := make(chan error)
	go func() { slow <- get("/slow") }()
	<-slowly
	gate.Shut()
	if err := <-slow; err == nil {
		t.Error("a request that was under way got its answer through the shut gate")
	}
	if err := get("/"); err == nil {
		t.Error("a request got through the shut gate")
	}
	if err := gate.Open(); err != nil {
		t.Fatal(err)
	}
	if err := get("/"); err != nil {
		t.Errorf("through the gate that is open again: %v", err)
	}
}
