//go:build e2e

package e2e

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
)

// The key of another account of the same ECS, and an instance that it has.
const (
	otherKey, otherSecret = "LTAI5tAnotherAccount", "not-secret-either"
	otherInstance         = "i-bp1another"
)

func TestAClassOfAnotherAccountHasItsDisksThere(t *testing.T) {
	s := newScene(t)
	other := s.otherAccount()
	s.allowSecrets()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "another-account"},
		StringData: map[string]string{"access-key-id": otherKey, "access-key-secret": otherSecret}}
	_, err := s.Client.CoreV1().Secrets(s.Namespace).Create(s.Context(), secret, metav1.CreateOptions{})
	s.Must(err)
	class := s.Class(atOnce, map[string]string{
		"type":                                "cloud_essd",
		"zoneId":                              s.Zones()[0], // where the other account has its instance
		"csi.storage.k8s.io/secret-name":      "another-account",
		"csi.storage.k8s.io/secret-namespace": "${pvc.namespace}",
	}, func(c *storagev1.StorageClass) { grows := true; c.AllowVolumeExpansion = &grows })
	s.Claim("at-home", s.Class(atOnce, essdThenAuto), "20Gi") // or the driver's own account would show no disk at all
	s.bound("at-home", soon)
	s.Claim("abroad", class, "20Gi")
	b, err := s.AwaitBound(s.Context(), s.Namespace, "abroad", soon)
	s.Must(err)
	disks := other.Disks()
	if len(disks) != 1 || disks[0].ID != b.Disk() || disks[0].Size != 20 {
		t.Fatalf("the other account has %v, want %s alone", disks, b.Disk())
	}
	if here := s.disks("abroad"); len(here) > 0 {
		t.Fatalf("the driver's own account has %v", here)
	}

	// What csi-attacher and csi-resizer would ask, each with the Secret that the volume names for it.
	driver, source := s.driver(), b.Volume.Spec.CSI
	once := &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: source.FSType}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
	publish := &csi.ControllerPublishVolumeRequest{VolumeId: b.Disk(), NodeId: otherInstance, VolumeCapability: once, VolumeContext: source.VolumeAttributes}
	if _, err := driver.ControllerPublishVolume(s.Context(), publish); status.Code(err) != codes.NotFound {
		t.Errorf("published without its Secret: %v, want NotFound, for the driver's own account has another disk alone", err)
	}
	publish.Secrets = s.secret(source.ControllerPublishSecretRef)
	_, err = driver.ControllerPublishVolume(s.Context(), publish)
	s.Must(err)
	if at := other.Disks()[0].Attachments; len(at) != 1 || at[0].Instance != otherInstance {
		t.Errorf("attached are %v, want %s", at, otherInstance)
	}
	grown, err := driver.ControllerExpandVolume(s.Context(), &csi.ControllerExpandVolumeRequest{
		VolumeId: b.Disk(), CapacityRange: &csi.CapacityRange{RequiredBytes: 30 << 30},
		VolumeCapability: once, Secrets: s.secret(source.ControllerExpandSecretRef),
	})
	s.Must(err)
	if size := other.Disks()[0].Size; size != 30 || grown.GetCapacityBytes() != 30<<30 {
		t.Errorf("grown to %d bytes, and the disk has %d GiB", grown.GetCapacityBytes(), size)
	}
	unpublish := &csi.ControllerUnpublishVolumeRequest{VolumeId: b.Disk(), NodeId: otherInstance, Secrets: publish.Secrets}
	_, err = driver.ControllerUnpublishVolume(s.Context(), unpublish)
	s.Must(err)

	s.deleteClaim("abroad")
	s.awaitNoVolume(b.Volume.Name)
	if left := other.Disks(); len(left) > 0 {
		t.Errorf("left in the other account are %v", left)
	}
	for _, action := range []string{"CreateDisk", "AttachDisk", "ResizeDisk", "DetachDisk", "DeleteDisk"} {
		if n := other.Count(action, ""); n != 1 {
			t.Errorf("%d %s in the other account, want 1", n, action)
		}
		calls, err := s.Simulator.Calls(s.Context(), action)
		s.Must(err)
		for _, c := range calls {
			if c.Params["DiskId"] == b.Disk() && c.Code == "" || tagsOf(c)[disk.ClaimNameTag] == "abroad" && tagsOf(c)[disk.ClaimNamespaceTag] == s.Namespace {
				t.Errorf("in the driver's own account: %+v", c)
			}
		}
	}
}

// otherAccount adds an account to ECS until the test is over: whoever signs with its key is answered by it.
func (s *scene) otherAccount() *ecssim.Server {
	s.Helper()
	latency, err := ecssim.Profile("fast")
	s.Must(err)
	zone := s.Zones()[0]
	other, err := ecssim.New(ecssim.Config{
		Region: s.Nodes[0].Region, Zones: s.Zones(), Account: "2345678901234567", Seed: 1, Latency: latency,
		AccessKeys: map[string]string{otherKey: otherSecret}, Instances: []ecssim.Instance{{ID: otherInstance, Zone: zone, Type: "ecs.g6.xlarge"}},
	})
	s.Must(err)
	own, err := url.Parse(s.Simulator.URL)
	s.Must(err)
	toOwn := httputil.NewSingleHostReverseProxy(own)
	both := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Authorization"), "Credential="+otherKey+",") {
			other.ServeHTTP(w, r)
			return
		}
		toOwn.ServeHTTP(w, r)
	}))
	s.Cleanup(both.Close)
	s.restartDriver("--ecs-endpoint=" + both.URL)
	s.Cleanup(func() { s.restartDriver() })
	return other
}

// driver is the driver as its sidecars reach it.
func (s *scene) driver() csi.ControllerClient {
	s.Helper()
	return csi.NewControllerClient(s.connection())
}

// connection is one to the driver's socket.
func (s *scene) connection() *grpc.ClientConn {
	s.Helper()
	conn, err := grpc.NewClient("unix://"+s.Topodisk.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	s.Must(err)
	s.Cleanup(func() { _ = conn.Close() })
	return conn
}

// secret reads what a reference of a volume names.
func (s *scene) secret(ref *corev1.SecretReference) map[string]string {
	s.Helper()
	if ref == nil {
		s.Fatal("the volume names no Secret")
	}
	secret, err := s.Client.CoreV1().Secrets(ref.Namespace).Get(s.Context(), ref.Name, metav1.GetOptions{})
	s.Must(err)
	content := map[string]string{}
	for key, value := range secret.Data {
		content[key] = string(value)
	}
	return content
}

// restartDriver gives the driver other flags. It works in clean-ups, too.
func (s *scene) restartDriver(args ...string) {
	s.Helper()
	s.Topodisk.Stop(lab.DriverProgram)
	if err := s.Topodisk.StartDriver(context.Background(), args...); err != nil {
		s.Errorf("restart the driver: %v", err)
	}
}
