package main

import (
	"strings"
	"testing"

	"github.com/topodisk/topodisk/test/golden"
)

func TestWithoutAClusterTheDriverRunsAlone(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, args := range [][]string{nil, {"--node-facts=false", "--kubeconfig=/no/such/file"}} {
		if facts, err := newNodeFacts(parsed(t, args...), nil); facts != nil || err != nil {
			t.Errorf("%v: got %v, %v", args, facts, err)
		}
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "1")
	if facts, err := newNodeFacts(parsed(t), nil); facts != nil || err != nil { // a Pod without a token
		t.Errorf("without a token: got %v, %v", facts, err)
	}
}

func TestAKubeconfigThatIsNamedMustBeThere(t *testing.T) {
	missing := "--kubeconfig=" + t.TempDir() + "/kubeconfig"
	if _, err := newNodeFacts(parsed(t, missing), nil); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("got %v", err)
	}
	o := parsed(t, "--kubeconfig="+golden.Kubeconfig(t, "http://127.0.0.1:1"), "--leader-election-namespace=storage")
	if facts, err := newNodeFacts(o, nil); facts == nil || err != nil {
		t.Errorf("got %v, %v", facts, err)
	}
	if o.namespace() != "storage" {
		t.Errorf("the Lease is in %s", o.namespace())
	}
}
