package diskdriver

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"

	"github.com/topodisk/topodisk/ecssim"
)

func TestWhatWorksSideBySide(t *testing.T) {
	mode := func(m csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
		return &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: m}}
	}
	shared := func(node string) proto.Message {
		return &csi.ControllerPublishVolumeRequest{VolumeId: "d-1", NodeId: node, VolumeCapability: mode(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)}
	}
	alone := func(node string) proto.Message {
		return &csi.ControllerPublishVolumeRequest{VolumeId: "d-1", NodeId: node, VolumeCapability: mode(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)}
	}
	off := func(node string) proto.Message {
		return &csi.ControllerUnpublishVolumeRequest{VolumeId: "d-1", NodeId: node}
	}
	grow, gone, other := &csi.ControllerExpandVolumeRequest{VolumeId: "d-1"}, &csi.DeleteVolumeRequest{VolumeId: "d-1"}, &csi.DeleteVolumeRequest{VolumeId: "d-2"}
	modify := &csi.ControllerModifyVolumeRequest{VolumeId: "d-1"}
	for _, test := range []struct {
		what          string
		first, second proto.Message
		want          bool
	}{
		{"shared publishes to two nodes", shared("i-1"), shared("i-2"), true},
		{"shared publishes to one node", shared("i-1"), shared("i-1"), false},
		{"a shared publish and an unpublish of another node", shared("i-1"), off("i-2"), true},
		{"a shared publish and an unpublish of its node", shared("i-1"), off("i-1"), false},
		{"unpublishes of two nodes", off("i-1"), off("i-2"), true},
		{"unpublishes of one node and of all", off("i-1"), off(""), false},
		{"publishes for one node alone", alone("i-1"), alone("i-2"), false},
		{"a publish for one node alone, and a shared one", alone("i-1"), shared("i-2"), false},
		{"a publish for one node alone, and an unpublish of another", alone("i-1"), off("i-2"), false},
		{"a shared publish and an expansion", shared("i-1"), grow, false},
		{"an unpublish and a change", off("i-1"), modify, false},
		{"a shared publish and a deletion", shared("i-1"), gone, false},
		{"an unpublish and a deletion", off("i-1"), gone, false},
		{"a shared publish, and a deletion of another volume", shared("i-1"), other, true},
	} {
		for _, order := range [][2]proto.Message{{test.first, test.second}, {test.second, test.first}} {
			f := newInflight()
			first, second := targetOf(order[0]), targetOf(order[1])
			if !f.take(first) {
				t.Fatalf("%s: the first doesn't get in", test.what)
			}
			if got := f.take(second); got != test.want {
				t.Errorf("%s: the second gets in: %t", test.what, got)
			} else if got {
				f.release(second)
			}
			f.release(first)
			if len(f.held) != 0 {
				t.Errorf("%s: held at the end: %v", test.what, f.held)
			}
		}
	}
}

// Nodes that share a volume don't wait for one another, nor get Aborted.
func TestNodesThatShareAVolumeGetItTogether(t *testing.T) {
	for range 10 { // in which order they set marks is by chance
		synctest.Test(t, shareAVolume)
	}
}

func shareAVolume(t *testing.T) {
	const attach, n = 4 * time.Second, 16
	s := &story{t: t, config: ecssim.Config{
		Region: "cn-hangzhou", Zones: []string{"cn-hangzhou-a"}, AccessKeys: map[string]string{"story": "secret"},
		Latency: ecssim.Latency{Attach: attach, Detach: attach},
	}}
	nodes := make([]string, n)
	for i := range nodes {
		nodes[i] = "i-nvme" + string(rune('a'+i))
		s.config.Instances = append(s.config.Instances, ecssim.Instance{ID: nodes[i], Zone: "cn-hangzhou-a", Type: "ecs.g7se.large"})
	}
	s.start()
	if got := s.do(strings.Fields("create disk-1 size=20Gi zones=a type=cloud_essd multiAttach=true block mode=MULTI_NODE_MULTI_WRITER")); !strings.Contains(got, "OK d-") {
		t.Fatal(got)
	}
	together := func(verb string) {
		began := time.Now()
		var all sync.WaitGroup
		for _, node := range nodes {
			all.Go(func() {
				words := []string{"d-1", node, "block", "mode=MULTI_NODE_MULTI_WRITER"}
				var got string
				if verb == "publish" {
					got = s.call("ControllerPublishVolume", s.publishRequest(words))
				} else {
					got = s.call("ControllerUnpublishVolume", s.unpublishRequest(words))
				}
				if !strings.HasPrefix(got, "OK") {
					t.Errorf("%s %s: %s", verb, node, got)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > 2*attach {
			t.Errorf("%s: %d nodes took %v, one takes %v", verb, n, took, attach)
		}
	}
	together("publish")
	if held := len(s.sim.Disks()[0].Attachments); held != n {
		t.Errorf("%d nodes of %d have the disk", held, n)
	}
	together("unpublish")
	if held := len(s.sim.Disks()[0].Attachments); held != 0 {
		t.Errorf("%d nodes have the disk still", held)
	}
}
