//go:build e2e

package handover

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab/simulator"
	"github.com/topodisk/topodisk/test/labtest"
)

const (
	region = "cn-hangzhou"
	zone   = "cn-hangzhou-a"

	attachTakes = 20 * time.Second
	detachTakes = 45 * time.Second
	readsLag    = 4 * time.Second
	// spread keeps a detach within the two minutes after which a driver takes a disk that several nodes have for attached
	// (docs/how-it-decides.md): one in 20 000 is longer. With the simulator's own 0.5 it is one in 40.
	spread = 0.25

	callTime = 15 * time.Second // csi-attacher's --timeout by default
)

// scene is a simulator with drivers A and B, which is the stand-by.
type scene struct {
	labtest.T
	*simulator.Replicas
	clients map[string]csi.ControllerClient
	conns   map[string]*grpc.ClientConn
	began   time.Time

	mu     sync.Mutex
	claims []claimed
	wrong  map[claimed]bool // told already
}

// claimed is what a driver has said of a disk.
type claimed struct {
	point    string
	disk     string
	instance string
	attached bool
	at       time.Time
}

// newScene starts everything. Each disk has instances of its own: what is in whose way is another test's business.
func newScene(t *testing.T, disks int) *scene {
	args := []string{"--zone=" + zone, "--latency=fast", "--queues=parallel"}
	for n := range max(disks, 1) { // a region without any disk shows nothing to anybody
		for _, instance := range []string{here(n), there(n), other(n)} {
			args = append(args, fmt.Sprintf("--instance=%s=%s/ecs.g7se.large", instance, zone))
		}
	}
	s := startScene(t, args)
	s.startDriver("A")
	s.startDriver("B")
	return s
}

// startScene starts a simulator alone.
func startScene(t *testing.T, args []string) *scene {
	dir, err := os.MkdirTemp("", "handover")
	if err != nil {
		t.Fatal(err)
	}
	replicas, err := simulator.StartReplicas(t.Context(), *built, dir, region, args...)
	s := &scene{T: labtest.T{T: t}, Replicas: replicas, clients: map[string]csi.ControllerClient{}, conns: map[string]*grpc.ClientConn{},
		wrong: map[claimed]bool{}, began: time.Now()}
	t.Cleanup(func() {
		if replicas != nil {
			if err := replicas.Stop(); err != nil {
				t.Error(err)
			}
		}
		if t.Failed() {
			t.Logf("the programs' logs are in %s", dir)
			return
		}
		os.RemoveAll(dir)
	})
	s.Must(err)
	return s
}

// The instances of a disk: the one that it is about, another one, and one that has it all the time if several may.
func here(n int) string  { return fmt.Sprintf("i-here%d", n) }
func there(n int) string { return fmt.Sprintf("i-there%d", n) }
func other(n int) string { return fmt.Sprintf("i-other%d", n) }

func (s *scene) startDriver(name string) {
	s.Helper()
	s.Must(s.StartDriver(s.Context(), name))
	conn, err := grpc.NewClient("unix://"+s.Socket(name), grpc.WithTransportCredentials(insecure.NewCredentials()))
	s.Must(err)
	s.conns[name], s.clients[name] = conn, csi.NewControllerClient(conn)
}

// pause waits until so long after a time.
func (s *scene) pause(from time.Time, d time.Duration) {
	select {
	case <-time.After(time.Until(from.Add(d))):
	case <-s.Context().Done():
	}
}

func capability(shared bool) *csi.VolumeCapability {
	if shared {
		return &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
			AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}}
	}
	return &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}}
}

func (s *scene) create(ctx context.Context, driver, name string, shared bool) (string, error) {
	return createWith(ctx, s.clients[driver], name, shared)
}

// createWith returns the ID of the disk of a name.
func createWith(ctx context.Context, driver csi.ControllerClient, name string, shared bool) (string, error) {
	req := &csi.CreateVolumeRequest{
		Name: name, Parameters: map[string]string{"type": "cloud_essd"}, CapacityRange: &csi.CapacityRange{RequiredBytes: 20 << 30},
		VolumeCapabilities:        []*csi.VolumeCapability{capability(shared)},
		AccessibilityRequirements: &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{"topology.kubernetes.io/zone": zone}}}},
	}
	if shared {
		req.Parameters["multiAttach"] = "true"
	}
	made, err := driver.CreateVolume(ctx, req)
	return made.GetVolume().GetVolumeId(), err
}

func (s *scene) publish(ctx context.Context, driver, id, instance string, shared bool) error {
	return publishWith(ctx, s.clients[driver], id, instance, shared)
}

func publishWith(ctx context.Context, driver csi.ControllerClient, id, instance string, shared bool) error {
	_, err := driver.ControllerPublishVolume(ctx,
		&csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: instance, VolumeCapability: capability(shared)})
	return err
}

func (s *scene) unpublish(ctx context.Context, driver, id, instance string) error {
	return unpublishWith(ctx, s.clients[driver], id, instance)
}

func unpublishWith(ctx context.Context, driver csi.ControllerClient, id, instance string) error {
	_, err := driver.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: instance})
	return err
}

// insist repeats a call as csi-attacher does until it is OK, ECS has refused it for good, or time is up. The error is the
// last one.
func (s *scene) insist(limit time.Duration, call func(context.Context) error) error {
	begin := time.Now()
	for wait := time.Second; ; wait = min(2*wait, 10*time.Second) {
		ctx, cancel := context.WithTimeout(s.Context(), callTime)
		err := call(ctx)
		cancel()
		if err == nil || status.Code(err) == codes.FailedPrecondition && time.Since(begin) > limit/2 || time.Since(begin)+wait > limit {
			return err
		}
		s.pause(time.Now(), wait)
	}
}

// claim takes down what a driver has just said, and holds it against ECS.
func (s *scene) claim(c claimed) {
	c.at = time.Now()
	s.mu.Lock()
	s.claims = append(s.claims, c)
	s.mu.Unlock()
	s.check([]claimed{c})
}

// check holds what drivers have said against what is so in ECS, which is not what its reads show.
func (s *scene) check(all []claimed) {
	state, err := s.Simulator.State(s.Context())
	if err != nil {
		s.Error(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range all {
		at := slices.IndexFunc(state.Disks, func(d ecssim.DiskState) bool { return d.ID == c.disk })
		if at < 0 {
			s.Errorf("%s: disk %s is gone", c.point, c.disk)
			continue
		}
		phase := "detached"
		for _, a := range state.Disks[at].Attachments {
			if a.Instance == c.instance {
				phase = a.Phase
			}
		}
		if !s.wrong[c] && (c.attached != (phase == "In_use") || !c.attached && phase != "detached") {
			s.wrong[c] = true
			s.Errorf("%s: %s after it was said that attached to %s is %v, the disk is %s there", c.point, time.Since(c.at).Round(time.Second), c.instance, c.attached, phase)
		}
	}
}
