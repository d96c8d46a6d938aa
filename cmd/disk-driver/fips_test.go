package main

import (
	"encoding/pem"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/test/golden"
)

// fips has the Go runtime refuse whatever FIPS 140-3 doesn't approve.
const fips = "GODEBUG=fips140=only"

// The program leads a disk through its life over HTTPS, and its requests are signed.
func TestFIPSModeLeadsADiskThroughItsLife(t *testing.T) {
	sim := newRegion(t, map[string]string{programKey: programSecret})
	cloud := httptest.NewTLSServer(sim)
	defer cloud.Close()
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"ca.pem": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cloud.Certificate().Raw}))})
	p := startProgramAt(t, cloud.URL, []string{fips, "SSL_CERT_FILE=" + filepath.Join(dir, "ca.pem")})
	controller := csi.NewControllerClient(p.conn)
	id := p.work(t)
	if _, err := controller.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: "i-1"}); err != nil {
		t.Error(err)
	}
	if _, err := controller.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: id}); err != nil {
		t.Error(err)
	}
	for _, action := range []string{"CreateDisk", "AttachDisk", "DetachDisk", "DeleteDisk"} {
		if n := sim.Count(action, ""); n != 1 {
			t.Errorf("%d calls of %s, want 1", n, action)
		}
	}
	log := strings.Join(p.stop(), "\n")
	if strings.Contains(log, "FIPS") || strings.Contains(log, programSecret) {
		t.Errorf("the log says\n%s", log)
	}
}

func TestFIPSModeRefusesSignatureV1(t *testing.T) {
	_, err := golden.Run(t, []string{fips}, "--endpoint=unix:///tmp/csi.sock", "--region=cn-hangzhou", "--cluster-id=c1", "--signature=v1")
	const want = `--signature: version "v1" is not allowed with GODEBUG=fips140=only, for it needs SHA-1: allowed is v3`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestFIPSModeRefusesAShortSecret(t *testing.T) {
	cloud := httptest.NewServer(newRegion(t, nil))
	defer cloud.Close()
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"access-key-id": programKey, "access-key-secret": "short-secret"})
	p := startProgramAt(t, cloud.URL, []string{fips}, "--credentials-dir="+dir)
	_, err := csi.NewControllerClient(p.conn).DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "d-bp1aaaaaaaaaaaaaaaaa"})
	const want = "the access key secret has 12 bytes: with GODEBUG=fips140=only at least 14 are required"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	p.stop()
}
