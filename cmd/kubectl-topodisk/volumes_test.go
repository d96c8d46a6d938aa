package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/topodisk/topodisk/explain/inventory"
)

func claimOf(name, volume string) corev1.PersistentVolumeClaim {
	return corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour))},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: volume}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
}

func newVolumesServer() *listServer {
	return &listServer{forbidden: map[string]bool{}, lists: map[string]any{
		"/api/v1/persistentvolumeclaims":                    corev1.PersistentVolumeClaimList{Items: []corev1.PersistentVolumeClaim{claimOf("web", "d-1"), claimOf("mail", "d-2")}},
		"/api/v1/namespaces/default/persistentvolumeclaims": corev1.PersistentVolumeClaimList{},
		"/api/v1/persistentvolumes":                         corev1.PersistentVolumeList{Items: []corev1.PersistentVolume{volumeOf("d-1", "web"), volumeOf("d-2", "mail")}},
		"/api/v1/pods":                                      corev1.PodList{},
		"/api/v1/namespaces/default/pods":                   corev1.PodList{},
		"/apis/storage.k8s.io/v1/volumeattachments":         storagev1.VolumeAttachmentList{},
		"/apis/storage.k8s.io/v1/storageclasses":            storagev1.StorageClassList{},
	}}
}

func TestVolumes(t *testing.T) {
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"status":"success","data":{"result":[{"metric":{"namespace":"shop","persistentvolumeclaim":"web"},"value":[1,"1073741824"]}]}}`))
	}))
	defer prometheus.Close()
	s := newVolumesServer()
	config := "--kubeconfig=" + kubeconfigOf(t, s)
	code, out, diagnostics := ran(t, "volumes", "-A", "--sort-by=used", "--output=json", "--prometheus="+prometheus.URL, config)
	var list struct {
		Kind  string
		Items []inventory.Row
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != exitFine {
		t.Fatalf("exit code %d: %v, %q", code, err, diagnostics)
	}
	if list.Kind != "VolumeList" || len(list.Items) != 2 || list.Items[0].Claim != "web" || *list.Items[0].UsedBytes != 1<<30 || list.Items[1].UsedBytes != nil {
		t.Errorf("got %s", out)
	}
	code, out, diagnostics = ran(t, "volumes", config)
	if code != exitFine || out != "" || diagnostics != "No claims of "+defaultDriver+" found.\n" {
		t.Errorf("of a namespace without claims: exit code %d, printed %q and %q", code, out, diagnostics)
	}
	s.forbidden["/apis/storage.k8s.io/v1/volumeattachments"] = true
	code, out, diagnostics = ran(t, "volumes", "-A", "-o", "wide", config)
	if code != exitFine || !strings.Contains(out, "STORAGECLASS") || !strings.Contains(out, "web") || strings.Count(out, "Unknown") != 2 ||
		!strings.HasPrefix(diagnostics, "not read: VolumeAttachments: ") {
		t.Errorf("without VolumeAttachments: exit code %d, printed %q and %q", code, out, diagnostics)
	}
}

// watched watches all volumes, and returns what it prints. after is called between two reads, with how many there were, and ends the
// watch by an error.
func (s *listServer) watched(t *testing.T, after func(reads int) error) (out, diagnostics *bytes.Buffer) {
	t.Helper()
	streams, _, out, diagnostics := genericiooptions.NewTestIOStreams()
	f, reads := newFactory(streams), 0
	*f.config.KubeConfig = kubeconfigOf(t, s)
	o := &volumesOptions{driver: defaultDriver, all: true, sortBy: "name", interval: time.Second, watch: true, now: time.Now}
	o.wait = func(context.Context, time.Duration) error {
		s.mu.Lock() // requests that a failure has ended may still be served
		defer s.mu.Unlock()
		reads++
		return after(reads)
	}
	if err := o.printTable(t.Context(), f, false); err != nil {
		t.Fatal(err)
	}
	return out, diagnostics
}

func TestVolumesAreWatched(t *testing.T) {
	s := newVolumesServer()
	out, _ := s.watched(t, func(reads int) error {
		switch reads {
		case 2:
			name := "d-2"
			s.lists["/apis/storage.k8s.io/v1/volumeattachments"] = storagev1.VolumeAttachmentList{Items: []storagev1.VolumeAttachment{{
				Spec: storagev1.VolumeAttachmentSpec{NodeName: "node-1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name}}}}}
		case 4:
			return context.Canceled
		}
		return nil
	})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 || !strings.Contains(lines[0], "CLAIM") || !strings.Contains(lines[1], "mail") || !strings.Contains(lines[3], "Attaching") || bytes.Count(out.Bytes(), []byte("web")) != 1 {
		t.Errorf("it prints\n%s", out)
	}
}

// A watch outlives a read that fails, says once what can't be read, and shows claims that are gone.
func TestAWatchGoesOnAndShowsWhatIsGone(t *testing.T) {
	s := newVolumesServer()
	out, diagnostics := s.watched(t, func(reads int) error {
		switch reads {
		case 1:
			s.forbidden["/api/v1/persistentvolumeclaims"] = true
		case 3:
			s.forbidden = map[string]bool{"/apis/storage.k8s.io/v1/volumeattachments": true}
		case 5:
			s.lists["/api/v1/persistentvolumeclaims"] = corev1.PersistentVolumeClaimList{Items: []corev1.PersistentVolumeClaim{claimOf("web", "d-1")}}
		case 7:
			return context.Canceled
		}
		return nil
	})
	said := strings.Split(strings.TrimSpace(diagnostics.String()), "\n")
	if len(said) != 2 || !strings.Contains(said[0], "PersistentVolumeClaims") || !strings.HasPrefix(said[1], "not read: VolumeAttachments: ") {
		t.Errorf("it says %q", said)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 || !strings.Contains(lines[3], "mail") || !strings.Contains(lines[3], "Deleted") {
		t.Errorf("it prints\n%s", out)
	}
}

func TestVolumesRefusesWrongFlags(t *testing.T) {
	refuses(t, false, map[string]string{
		"volumes web":               `argument "web" is not allowed`,
		"volumes --sort-by=color":   `--sort-by: "color" is not allowed: allowed are name, zone, `,
		"volumes -l=a=b=c":          "--selector=a=b=c is not allowed",
		"volumes --interval=1ms":    "--interval=1ms is not allowed: allowed is 1s or more",
		"volumes --prometheus=host": `--prometheus: "host" is not allowed: allowed is the URL of a Prometheus`,
		"volumes --interval=5":      `invalid argument "5" for "--interval" flag: time: missing unit in duration "5"; allowed is a number with a unit, such as 90s`,
		"volumes -o=json --watch":   "--watch is not allowed with --output=json",
		"volumes -o=xml":            "--output=xml is not allowed: allowed are wide, json, ",
		"volumes --prices=/nowhere": "--prices: open /nowhere",
	}, "--kubeconfig="+fileWith(t, kubeconfig))
}
