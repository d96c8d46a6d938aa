package main

import (
	"io"
	"strings"
	"testing"
)

func TestAnAuditHasFlagsOfItsOwn(t *testing.T) {
	o, err := parseAudit([]string{"--csi-address=/csi/csi.sock", "--cluster-id", "c1", "--timeout=150s", "--leader-election-namespace=storage", "--kubeconfig=/k", "--v=2", "--logging-format=json"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if o.csiAddress != "/csi/csi.sock" || o.clusterID != "c1" || o.timeout.String() != "2m30s" || o.namespace != "storage" || o.cluster.Kubeconfig != "/k" || o.log.Format != "json" {
		t.Errorf("got %+v", o)
	}
	for arg, want := range map[string]string{
		"--cluster-id=":        "--cluster-id is empty",
		"--csi-address=":       "--csi-address is empty",
		"--timeout=0s":         "--timeout=0s; it must be positive",
		"--confirm-after=9s":   "--confirm-after=9s; it must be 1m0s or more",
		"--worker-threads=3":   "unknown flag: --worker-threads",
		"--logging-format=xml": "allowed are text and json",
		"now":                  `argument "now"`,
	} {
		if _, err := parseAudit([]string{arg}, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", arg, err, want)
		}
	}
}
