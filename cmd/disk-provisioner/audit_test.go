package main

import (
	"slices"
	"testing"
)

func TestTheClusterOfAnAuditIsTakenOutOfTheFlags(t *testing.T) {
	for _, c := range []struct {
		args    []string
		cluster string
		rest    []string
		fails   bool
	}{
		{args: []string{"--csi-address=/csi/csi.sock"}, rest: []string{"--csi-address=/csi/csi.sock"}},
		{args: []string{"--cluster-id=c1", "--v=2"}, cluster: "c1", rest: []string{"--v=2"}},
		{args: []string{"--v=2", "--cluster-id", "c1"}, cluster: "c1", rest: []string{"--v=2"}},
		{args: []string{"--cluster-id="}, fails: true},
		{args: []string{"--cluster-id"}, fails: true},
	} {
		cluster, rest, err := takeClusterID(c.args)
		if cluster != c.cluster || !slices.Equal(rest, c.rest) || (err != nil) != c.fails {
			t.Errorf("%q: got %q, %q, %v", c.args, cluster, rest, err)
		}
	}
}
