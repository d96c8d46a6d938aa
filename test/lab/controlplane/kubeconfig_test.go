package controlplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func TestKubeconfigsSignAsTheirUsers(t *testing.T) {
	p := &Plane{Options: Options{Dir: t.TempDir(), Kubelets: []string{"node-h1"}}}
	if err := p.prepare(); err != nil {
		t.Fatal(err)
	}
	tokens, err := os.ReadFile(filepath.Join(p.Dir, "pki", "tokens.csv"))
	if err != nil {
		t.Fatal(err)
	}
	kubelet, err := p.KubeletKubeconfig("node-h1")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct{ server, user string }{
		p.Admin: {"https://127.0.0.1:443", ",admin,admin,\"system:masters\"\n"},
		kubelet: {"https://10.88.0.1:443", ",system:node:node-h1,system:node:node-h1,\"system:nodes\"\n"},
	} {
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil || config.Host != want.server || !strings.Contains(string(tokens), config.BearerToken+want.user) {
			t.Errorf("%s: %v, %v", path, config, err)
		}
	}
}
