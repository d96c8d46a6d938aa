package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/topodisk/topodisk/provisioner"
)

func TestTheFlagsOfOldManifestsWarnAndWork(t *testing.T) {
	var warnings bytes.Buffer
	o, err := parse([]string{
		"--provisioner=diskplugin.csi.alibabacloud.com", "--csi-address=/csi/csi.sock", "--feature-gates=Topology=True",
		"--volume-name-prefix=disk", "--strict-topology=true", "--timeout=150s", "--enable-leader-election=true",
		"--leader-election-type=leases", "--retry-interval-start=500ms", "--connection-timeout=15s", "--metrics-address=127.0.0.1:9", "--v=5",
	}, &warnings)
	if err != nil {
		t.Fatal(err)
	}
	if !o.leaderElection || !o.topologyGate || o.httpEndpoint != "127.0.0.1:9" || o.provisioner != "diskplugin.csi.alibabacloud.com" {
		t.Errorf("got %+v", o)
	}
	c := o.config
	if c.VolumeNamePrefix != "disk" || !c.StrictTopology || c.Timeout != 150*time.Second || c.RetryStart != 500*time.Millisecond || c.PVNameSource != provisioner.VolumeID {
		t.Errorf("got %+v", c)
	}
	for _, flag := range []string{"--provisioner ", "--connection-timeout ", "--enable-leader-election ", "--leader-election-type ", "--metrics-address ", "--feature-gates"} {
		if !strings.Contains(warnings.String(), flag) {
			t.Errorf("no warning of %s in\n%s", flag, &warnings)
		}
	}
}

func TestTodaysFlagsDoNotWarn(t *testing.T) {
	var warnings bytes.Buffer
	if _, err := parse([]string{"--leader-election", "--http-endpoint=127.0.0.1:9", "--extra-create-metadata"}, &warnings); err != nil || warnings.Len() > 0 {
		t.Errorf("got %v and %q", err, &warnings)
	}
}

func TestAWrongFlagIsNamedWithWhatIsAllowed(t *testing.T) {
	for args, want := range map[string][]string{
		"--strict-topology true":                        {`"true"`, "--strict-topology=true"},
		"--feature-gates=Magic=true":                    {"Magic=true", "Topology=true|false"},
		"--feature-gates=Topology=maybe":                {"Topology=maybe", "Topology=true|false"},
		"--leader-election-type=configmaps":             {"configmaps", "leases"},
		"--metrics-address=:1 --http-endpoint=:2":       {"--metrics-address and --http-endpoint"},
		"--csi-address=":                                {"--csi-address", "/csi/csi.sock"},
		"--kube-api-qps=0":                              {"--kube-api-qps=0"},
		"--kube-api-burst=0":                            {"--kube-api-burst=0"},
		"--leader-election-lease-duration=1s":           {"--leader-election-lease-duration=1s", "--leader-election-renew-deadline=10s"},
		"--leader-election-renew-deadline=5s":           {"--leader-election-renew-deadline=5s", "--leader-election-retry-period=5s"},
		"--pv-name-source=uid":                          {"--pv-name-source=uid", "volume-id and volume-name"},
		"--volume-name-uuid-length=40":                  {"--volume-name-uuid-length=40", "1 to 32"},
		"--retry-interval-start=10m":                    {"--retry-interval-max=5m0s", "--retry-interval-start=10m0s"},
		"--timeout=soon":                                {"timeout", "soon"},
		"--enable-capacity --capacity-poll-interval=0s": {"--capacity-poll-interval=0s"},
		"--node-deployment":                             {"node-deployment"},
	} {
		_, err := parse(strings.Fields(args), io.Discard)
		for _, part := range want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v does not say %q", args, err, part)
			}
		}
	}
}

func TestHelpAndVersionAreNoErrors(t *testing.T) {
	var help bytes.Buffer
	if _, err := parse([]string{"--help"}, &help); !errors.Is(err, errHelp) || !strings.Contains(help.String(), "--pv-name-source") {
		t.Errorf("got %v and %q", err, &help)
	}
	if o, err := parse([]string{"--version"}, io.Discard); err != nil || !o.showVersion {
		t.Errorf("got %v", err)
	}
}

func TestAMissingKubeconfigIsNamed(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	o, err := parse([]string{"--kubeconfig=" + missing}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newClients(o); err == nil || !strings.Contains(err.Error(), "--kubeconfig="+missing) {
		t.Errorf("got %v", err)
	}
	if err := os.Unsetenv("KUBERNETES_SERVICE_HOST"); err != nil {
		t.Fatal(err)
	}
	if _, err := newClients(&options{}); err == nil || !strings.Contains(err.Error(), "--kubeconfig=FILE") {
		t.Errorf("got %v", err)
	}
}

func TestTheLeasesNamespace(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "storage")
	for args, want := range map[string]string{"": "storage", "--leader-election-namespace=other": "other"} {
		o, err := parse(strings.Fields(args), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if got := o.lease().Namespace; got != want {
			t.Errorf("%q: %s", args, got)
		}
	}
}
