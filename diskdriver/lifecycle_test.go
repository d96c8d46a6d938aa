package diskdriver

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/topodisk/topodisk/diskdriver/creation"
	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/drivertest"
)

// pace is a number of lifecycles at once, and what they may cost: a call that is asked again after a pause of the sidecar's
// included.
type pace struct {
	name    string
	n       int
	queues  ecssim.Queues
	latency func(seed uint64) ecssim.Latency
	seeds   uint64
	warm    int     // lifecycles before, one at a time
	calls   float64 // a lifecycle; one of them tags the disk before its first attach
	ofLimit float64 // of the shortest time that ECS needs
}

func profileOf(name string) func(uint64) ecssim.Latency {
	return func(uint64) ecssim.Latency {
		l, err := ecssim.Profile(name)
		if err != nil {
			panic(err)
		}
		l.Spread = 0
		return l
	}
}

func drawnLatency(seed uint64) ecssim.Latency {
	l := profileOf("real")(0)
	random := rand.New(rand.NewPCG(seed, 0))
	l.Initializing = 0
	for _, span := range []*time.Duration{&l.Available, &l.Attach, &l.Detach} {
		*span = time.Duration(math.Exp(math.Log(0.1)+random.Float64()*math.Log(100)) * float64(time.Second))
	}
	l.Spread = 0.5
	return l
}

var paces = []pace{
	{"fast, 1, cold", 1, ecssim.Serial, profileOf("fast"), 1, 0, 13, 3},
	{"fast, 100, serial", 100, ecssim.Serial, profileOf("fast"), 1, 0, 7, 3},
	{"real, 1, cold", 1, ecssim.Serial, profileOf("real"), 1, 0, 27, 1.12},
	{"real, 1, warm", 1, ecssim.Serial, profileOf("real"), 1, 4, 17, 1.10},
	{"real, 100, serial", 100, ecssim.Serial, profileOf("real"), 1, 0, 7.5, 1.12},
	{"real, 100, parallel", 100, ecssim.Parallel, profileOf("real"), 1, 0, 6.5, 1.18},
	{"drawn, 1, cold", 1, ecssim.Serial, drawnLatency, 5, 0, 39, 1.35},
	{"drawn, 100, serial", 100, ecssim.Serial, drawnLatency, 3, 0, 9, 1.3},
}

// TestPaceOfLifecycles holds what a driver that has just started adds to ECS's own times against bounds, for an ECS of any
// speed. make bench WHAT=lifecycle measures the same on the shipped programs.
func TestPaceOfLifecycles(t *testing.T) {
	for _, p := range paces {
		for seed := range p.seeds {
			t.Run(fmt.Sprintf("%s/seed=%d", p.name, seed), func(t *testing.T) {
				var rounds []outlay
				for range 1 + 2*min(p.n-1, 1) { // the order of goroutines differs between those of a crowd
					synctest.Test(t, func(t *testing.T) { rounds = append(rounds, p.run(t, seed)) })
				}
				slices.SortFunc(rounds, func(a, b outlay) int { return cmp.Compare(a.ofLimit, b.ofLimit) })
				if m := rounds[len(rounds)/2]; m.calls > p.calls || m.ofLimit > p.ofLimit {
					t.Errorf("the median is %.2f calls and %.2f of the limit; at most %g and %g are allowed", m.calls, m.ofLimit, p.calls, p.ofLimit)
				}
			})
		}
	}
}

// outlay is what the lifecycles of a pace took.
type outlay struct{ calls, ofLimit float64 }

func (p pace) run(t *testing.T, seed uint64) outlay {
	config := ecssim.Config{Region: "cn-hangzhou", Zones: []string{"cn-hangzhou-h"}, Latency: p.latency(seed), Queues: p.queues, LedgerSize: 100000, Seed: uint32(seed)}
	instances := (p.n + 9) / 10
	for i := range instances {
		config.Instances = append(config.Instances, ecssim.Instance{ID: fmt.Sprintf("i-%d", i), Zone: "cn-hangzhou-h", Type: "ecs.g7.4xlarge"})
	}
	sim, err := ecssim.New(config)
	if err != nil {
		t.Fatal(err)
	}
	d := driverOn(t, sim)
	for i := range p.warm {
		live(t, d, fmt.Sprintf("warm-%d", i), "i-0")
	}
	before, began := len(sim.Calls()), time.Now()
	var all sync.WaitGroup
	for i := range p.n {
		all.Go(func() {
			time.Sleep(time.Duration(i) * time.Microsecond) // one after the other, as calls come on a socket, and spread over the instances
			live(t, d, fmt.Sprintf("v-%d", i), fmt.Sprintf("i-%d", i%instances))
		})
	}
	all.Wait()
	calls := sim.Calls()[before:]
	each := float64(len(calls)) / float64(p.n)
	took, limit := time.Since(began), drivertest.LifecycleLimit(calls, p.queues == ecssim.Serial)
	m := outlay{each, took.Seconds() / limit.Seconds()}
	t.Logf("%.2f calls a lifecycle, %v, %.2f of the %v that ECS needs", m.calls, took.Round(time.Millisecond), m.ofLimit, limit.Round(time.Millisecond))
	return m
}

// driverOn returns a driver whose calls of ECS go one way.
func driverOn(t *testing.T, way http.RoundTripper) *Driver {
	t.Helper()
	client, err := ecs.NewClient(ecs.Config{Region: "cn-hangzhou", ClusterID: cluster, Transport: way, Credentials: credentials.Static(credentials.Keys{AccessKeyID: "k", AccessKeySecret: "s"})})
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(Config{Region: "cn-hangzhou", ClusterID: cluster}, client)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// live calls a driver as the sidecars do, for all that happens to one volume.
func live(t *testing.T, d *Driver, name, node string) {
	use := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}, AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}}}
	insist := func(method string, limit time.Duration, req proto.Message) any {
		for pause := time.Second; ; pause = min(2*pause, 10*time.Second) { // as the chart starts the sidecars
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			answer, err := invoke(metadata.NewIncomingContext(ctx, metadata.Pairs(creation.FirstCallKey, "true")), d, method, req)
			cancel()
			if err == nil {
				return answer
			}
			time.Sleep(pause)
		}
	}
	made := insist("CreateVolume", 150*time.Second, &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: 20 << 30}, VolumeCapabilities: []*csi.VolumeCapability{use}, Parameters: map[string]string{"type": "cloud_essd"},
		AccessibilityRequirements: zoneRequirement("h"),
	}).(*csi.CreateVolumeResponse)
	id := made.Volume.VolumeId
	insist("ControllerPublishVolume", time.Minute, &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: node, VolumeCapability: use})
	insist("ControllerExpandVolume", time.Minute, &csi.ControllerExpandVolumeRequest{VolumeId: id, VolumeCapability: use, CapacityRange: &csi.CapacityRange{RequiredBytes: 30 << 30}})
	insist("ControllerUnpublishVolume", time.Minute, &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: node})
	insist("DeleteVolume", time.Minute, &csi.DeleteVolumeRequest{VolumeId: id})
}
