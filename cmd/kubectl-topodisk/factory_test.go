package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// kubeconfig has two clusters that nobody serves.
const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}, {name: d, cluster: {server: "http://127.0.0.1:2"}}]
contexts: [{name: c, context: {cluster: c, user: u}}, {name: d, context: {cluster: d, user: u, namespace: shop}}]
current-context: c
users: [{name: u, user: {}}]
`

func fileWith(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// kubeconfigOf returns a file in which both clusters are the one that the handler serves.
func kubeconfigOf(t *testing.T, handler http.Handler) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return fileWith(t, strings.NewReplacer("http://127.0.0.1:1", server.URL, "http://127.0.0.1:2", server.URL).Replace(kubeconfig))
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
		if err := cmd.ParseFlags(append([]string{"--kubeconfig=" + fileWith(t, kubeconfig)}, strings.Fields(line)...)); err != nil {
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
