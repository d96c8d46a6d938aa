package main

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/golden"
)

// program is disk-driver itself, which serves a simulated region.
type program struct {
	conn    *grpc.ClientConn
	metrics string // URL
	stop    func() []string
}

// startProgram returns when the program answers; stop ends it and returns the lines of its log.
func startProgram(t *testing.T, args ...string) *program {
	t.Helper()
	cloud := httptest.NewServer(newRegion(t, nil))
	t.Cleanup(cloud.Close)
	return startProgramAt(t, cloud.URL, nil, args...)
}

// The access key of the program.
const programKey, programSecret = "id", "the-secret-itself"

// newRegion is a simulated region with one instance. Without keys it checks no signatures.
func newRegion(t *testing.T, keys map[string]string) *ecssim.Server {
	t.Helper()
	sim, err := ecssim.New(ecssim.Config{
		Region: "cn-hangzhou", Zones: []string{"cn-hangzhou-h"}, Instances: []ecssim.Instance{{ID: "i-1", Zone: "cn-hangzhou-h", Type: "ecs.g7.large"}}, AccessKeys: keys,
	})
	if err != nil {
		t.Fatal(err)
	}
	return sim
}

// startProgramAt starts the program with the URL of its ECS, and more variables in its environment.
func startProgramAt(t *testing.T, ecs string, env []string, args ...string) *program {
	t.Helper()
	dir, err := os.MkdirTemp("", "driver")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	writeFiles(t, dir, map[string]string{"access-key-id": programKey, "access-key-secret": programSecret})
	socket, http := "unix://"+dir+"/csi.sock", golden.Address(t)
	command := golden.Command(t, append(env, "KUBECONFIG=", "POD_NAME="), append([]string{"--endpoint=" + socket, "--region=cn-hangzhou", "--cluster-id=c1", "--node-facts=false",
		"--ecs-endpoint=" + ecs, "--credentials-dir=" + dir, "--http-endpoint=" + http}, args...)...)
	log, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines, all := make(chan []string, 1), []string{}
	go func() {
		for scanner := bufio.NewScanner(log); scanner.Scan(); {
			all = append(all, scanner.Text())
		}
		lines <- all
	}()
	conn, err := grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	p := &program{conn: conn, metrics: "http://" + http + "/metrics", stop: func() []string {
		_ = conn.Close()
		_ = command.Process.Signal(syscall.SIGTERM)
		got := <-lines
		_ = command.Wait()
		return got
	}}
	if _, err := csi.NewIdentityClient(conn).GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{}); err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(p.stop(), "\n"))
	}
	return p
}

// work makes a volume that a claim asked for, attaches it, and is refused another. It returns the volume's ID.
func (p *program) work(t *testing.T) string {
	t.Helper()
	controller := csi.NewControllerClient(p.conn)
	capability := &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
	made, err := controller.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: "disk-1", VolumeCapabilities: []*csi.VolumeCapability{capability}, CapacityRange: &csi.CapacityRange{RequiredBytes: 40 << 30},
		Parameters:                map[string]string{"type": "cloud_essd", "csi.storage.k8s.io/pvc/name": "data", "csi.storage.k8s.io/pvc/namespace": "shop"},
		AccessibilityRequirements: &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{"topology.kubernetes.io/zone": "cn-hangzhou-h"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	publish := &csi.ControllerPublishVolumeRequest{VolumeId: made.GetVolume().GetVolumeId(), NodeId: "i-1", VolumeCapability: capability}
	published, err := controller.ControllerPublishVolume(t.Context(), publish)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := controller.ControllerPublishVolume(t.Context(), publish); err != nil || !maps.Equal(again.GetPublishContext(), published.GetPublishContext()) {
		t.Errorf("the node is told %v, and then %v, %v", published.GetPublishContext(), again.GetPublishContext(), err)
	}
	if since, err := time.Parse(time.RFC3339, published.GetPublishContext()[disk.AttachedKey]); err != nil || time.Since(since) > time.Hour {
		t.Errorf("the node is told %v: the time of the attachment is missing", published.GetPublishContext())
	}
	if _, err := controller.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "disk-2", VolumeCapabilities: []*csi.VolumeCapability{capability}, Parameters: map[string]string{"tpye": "x"}}); err == nil {
		t.Fatal("a misspelt parameter was taken")
	}
	return made.GetVolume().GetVolumeId()
}

// A region of instances alone shows their system disks, so that what is not there is known to be gone.
func TestUnknownDisksAreGoneFromADefaultRegion(t *testing.T) {
	p := startProgram(t)
	defer p.stop()
	controller := csi.NewControllerClient(p.conn)
	const unknown = "d-bp1aaaaaaaaaaaaaaaaa"
	for range 2 {
		if _, err := controller.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: unknown, NodeId: "i-1"}); err != nil {
			t.Errorf("unpublish: %v", err)
		}
		if _, err := controller.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: unknown}); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
}

// U5: what the program serves is what the page says, and a fresh program has few series.
func TestMetricsAreThoseOfThePage(t *testing.T) {
	p := startProgram(t)
	fresh, series := golden.Scrape(t, p.metrics), 0
	for name, family := range fresh {
		if strings.HasPrefix(name, "topodisk_") {
			series += len(family.Metric)
		}
	}
	if series > 22 {
		t.Errorf("a fresh program has %d series of its own", series)
	}
	p.work(t)
	served := golden.Scrape(t, p.metrics)
	p.stop()
	golden.Metrics(t, "../../docs/monitoring.md", served)
	for _, name := range []string{"topodisk_build_info", "topodisk_driver_ready", "topodisk_csi_call_duration_seconds", "topodisk_ecs_requests_total", "topodisk_ecs_instance_operations",
		"go_goroutines", "process_resident_memory_bytes"} {
		if served[name] == nil {
			t.Errorf("%s is not served", name)
		}
	}
}

// U9: in a log of JSON each line is an object, and a call has fields, not one string of JSON.
func TestALogOfJSONHasFields(t *testing.T) {
	for _, verbosity := range []string{"--v=2", "--v=5"} {
		p := startProgram(t, "--logging-format=json", verbosity)
		p.work(t)
		calls := map[string]map[string]any{}
		lines := p.stop()
		for _, line := range lines {
			var object map[string]any
			if err := json.NewDecoder(strings.NewReader(line)).Decode(&object); err != nil && err != io.EOF {
				t.Fatalf("%s: %v", line, err)
			}
			if strings.Contains(line, `\"`) && strings.Contains(line, "request") || strings.Contains(line, "the-secret-itself") {
				t.Errorf("%s", line)
			}
			if object["msg"] == "Call done" || object["msg"] == "Call failed" {
				calls[object["method"].(string)+" "+object["code"].(string)] = object
			}
		}
		for call, fields := range map[string][]string{
			"CreateVolume OK": {"name", "volume", "claim", "duration"}, "ControllerPublishVolume OK": {"volume", "node", "duration"}, "CreateVolume Aborted": {"name", "err"},
		} {
			for _, field := range fields {
				if _, is := calls[call][field].(string); !is {
					t.Errorf("%s: the line of %s has no %s: %v", verbosity, call, field, calls[call])
				}
			}
		}
		if t.Failed() {
			t.Log(strings.Join(lines, "\n"))
		}
	}
}
