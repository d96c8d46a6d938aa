package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWithoutAClusterTheDriverRunsAlone(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, args := range [][]string{nil, {"--node-facts=false", "--kubeconfig=/no/such/file"}} {
		o, err := parse(append(good, args...), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if facts, err := newNodeFacts(o, nil); facts != nil || err != nil {
			t.Errorf("%v: got %v, %v", args, facts, err)
		}
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "1")
	o, err := parse(good, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if facts, err := newNodeFacts(o, nil); facts != nil || err != nil { // a Pod without a token
		t.Errorf("without a token: got %v, %v", facts, err)
	}
}

func TestAKubeconfigThatIsNamedMustBeThere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	o, err := parse(append(good, "--kubeconfig="+file, "--leader-election-namespace=storage"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newNodeFacts(o, nil); err == nil || !strings.Contains(err.Error(), "--kubeconfig="+file) {
		t.Errorf("got %v", err)
	}
	text := `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if facts, err := newNodeFacts(o, nil); facts == nil || err != nil {
		t.Errorf("got %v, %v", facts, err)
	}
	if o.namespace() != "storage" {
		t.Errorf("the Lease is in %s", o.namespace())
	}
}
