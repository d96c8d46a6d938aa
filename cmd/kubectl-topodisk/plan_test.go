package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// apiServer serves lists of the given objects, and empty lists of everything else; what is forbidden it refuses.
func apiServer(t *testing.T, lists map[string]string, forbidden string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		resource := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		switch {
		case r.Method != http.MethodGet:
			t.Errorf("%s %s", r.Method, r.URL)
		case resource == "version":
			_, _ = fmt.Fprint(w, `{"gitVersion":"v1.37.2"}`)
		case resource == forbidden:
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"%s is forbidden"}`, resource)
		case strings.Contains(r.URL.Path, "snapshot.storage.k8s.io"): // the cluster has no such kinds
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = fmt.Fprintf(w, `{"items":[%s]}`, lists[resource])
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

const oneNode = `{"metadata":{"name":"n1","labels":{"topology.kubernetes.io/zone":"cn-hangzhou-h"}},"spec":{"providerID":"cn-hangzhou.i-1"}}`

func TestPlansEndWithWhatTheyFound(t *testing.T) {
	t.Setenv("KUBECONFIG", os.DevNull)
	refused := map[string]string{"nodes": oneNode,
		"storageclasses": `{"metadata":{"name":"misspelt"},"provisioner":"diskplugin.csi.alibabacloud.com","parameters":{"type":"cloud_esd"}}`}
	for name, test := range map[string]struct {
		line      string
		lists     map[string]string
		forbidden string
		code      int
		out       string
	}{
		"nothing refused":  {"install --image=mirror.example.com/t", map[string]string{"nodes": oneNode}, "", exitFine, "image.repository=mirror.example.com/t"},
		"something":        {"install", refused, "", exitFound, "StorageClass   misspelt"},
		"unread":           {"install", map[string]string{"nodes": oneNode}, "daemonsets", exitUnknown, "DaemonSet: could not be read"},
		"nothing serves":   {"takeover", refused, "", exitFound, "Nothing serves diskplugin.csi.alibabacloud.com"},
		"another name":     {"takeover --driver-name=disk.example.com", refused, "", exitFine, "Nothing serves disk.example.com"},
		"a zone":           {"drain cn-hangzhou-h", map[string]string{"nodes": oneNode}, "", exitFine, "Without the 1 node of cn-hangzhou-h: 0 Pods"},
		"a zone and type":  {"soldout cn-hangzhou-h cloud_essd", refused, "", exitFine, "Without cloud_essd in cn-hangzhou-h"},
		"no such zone":     {"drain cn-hangzhou-x", map[string]string{"nodes": oneNode}, "", exitFailed, ""},
		"no such category": {"soldout cn-hangzhou-h ssd", map[string]string{"nodes": oneNode}, "", exitFailed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			line := "plan " + test.line + " --server=" + apiServer(t, test.lists, test.forbidden)
			code, out, diagnostics := ran(t, strings.Fields(line)...)
			if code != test.code || !strings.Contains(out, test.out) || (code == exitFailed) != (diagnostics != "") {
				t.Errorf("exit code %d, printed %s and %q; want %d and %q", code, out, diagnostics, test.code, test.out)
			}
		})
	}
}

func TestPlansForPrograms(t *testing.T) {
	t.Setenv("KUBECONFIG", os.DevNull)
	server := apiServer(t, map[string]string{"nodes": oneNode}, "")
	parsers := map[string]func([]byte, any) error{"json": json.Unmarshal, "yaml": func(text []byte, into any) error { return yaml.Unmarshal(text, into) }}
	for format, parse := range parsers {
		code, out, diagnostics := ran(t, "plan", "install", "--output="+format, "--server="+server)
		var plan struct {
			APIVersion, Kind, Plan, Summary string
			Steps                           []struct {
				Title    string
				Commands []string
			}
		}
		if err := parse([]byte(out), &plan); err != nil || code != exitFine || diagnostics != "" {
			t.Fatalf("%s: %v, exit code %d, printed %s and %q", format, err, code, out, diagnostics)
		}
		if plan.APIVersion != apiVersion || plan.Kind != "Plan" || plan.Plan != "install" || plan.Summary == "" || len(plan.Steps) != 3 || !strings.HasPrefix(plan.Steps[1].Commands[0], "helm install") {
			t.Errorf("%s: %+v", format, plan)
		}
	}
}

func TestArgumentsOfPlansAreNamed(t *testing.T) {
	refuses(t, true, map[string]string{
		"plan up":                 `error: command "up" is unknown; allowed are drain, install, soldout, takeover`,
		"plan install x":          `error: argument "x" is not allowed: allowed are flags`,
		"plan drain":              "error: ZONE is missing: the arguments are ZONE",
		"plan soldout h":          "error: TYPE is missing: the arguments are ZONE TYPE",
		"plan soldout h essd":     `error: TYPE "essd" is no disk category of ECS: allowed are `,
		"plan soldout h t x":      `error: argument "x" is not allowed: the arguments are ZONE TYPE`,
		"plan drain h --output=x": "error: --output=x is not allowed: allowed are ",
	})
}
