package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}, {name: d, cluster: {server: "http://127.0.0.1:2"}}]
contexts: [{name: c, context: {cluster: c, user: u}}, {name: d, context: {cluster: d, user: u, namespace: shop}}]
current-context: c
users: [{name: u, user: {}}]
`

// kubeconfigFile returns a file with a cluster that nobody serves.
func kubeconfigFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestFlagsOfKubectlNameTheCluster(t *testing.T) {
	for line, want := range map[string]string{
		"":                      "http://127.0.0.1:1 default",
		"--context=d":           "http://127.0.0.1:2 shop",
		"--context=d -n till":   "http://127.0.0.1:2 till",
		"--server=127.0.0.1:3":  "127.0.0.1:3 default",
		"--context=e":           `context "e" does not exist`,
		"--kubeconfig=/nowhere": "the kubeconfig that --kubeconfig or $KUBECONFIG names can't be read: stat /nowhere: no such file or directory",
		"--cluster=d -n=market": "http://127.0.0.1:2 market",
	} {
		f, driver := newFactory(genericiooptions.NewTestIOStreamsDiscard()), ""
		cmd := &cobra.Command{}
		f.config.AddFlags(cmd.Flags())
		addDriverFlag(cmd, &driver)
		if err := cmd.ParseFlags(append([]string{"--kubeconfig=" + kubeconfigFile(t)}, strings.Fields(line)...)); err != nil {
			t.Fatal(err)
		}
		got := ""
		if config, err := f.restConfig(); err != nil {
			got = err.Error()
		} else if namespace, err := f.namespace(); err != nil {
			got = err.Error()
		} else {
			got = config.Host + " " + namespace
		}
		if got != want || driver != defaultDriver {
			t.Errorf("%s: got %q and driver %q, want %q", line, got, driver, want)
		}
	}
}
