package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestCapacityOffFlagErrors(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"off", `argument "off"`},
		{"--driver-name=", "--driver-name is empty"},
		{"--csi-address=/csi/csi.sock", "csi-address"},
		{"--kubeconfig=/nowhere/config", "--kubeconfig=/nowhere/config"},
	} {
		code, err := capacityOff(t.Context(), strings.Fields(c.args), io.Discard, io.Discard)
		if code != 1 || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: exit code %d, %v; want 1 and %q in it", c.args, code, err, c.says)
		}
	}
}

func TestCapacityOffHasHelpOfItsOwn(t *testing.T) {
	var help bytes.Buffer
	_, err := capacityOff(t.Context(), []string{"--help"}, io.Discard, &help)
	if !errors.Is(err, pflag.ErrHelp) || !strings.Contains(help.String(), "--namespace") || strings.Contains(help.String(), "--csi-address") {
		t.Errorf("%v: %s", err, help.String())
	}
}
