package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/diskdriver/nodefacts"
	"github.com/topodisk/topodisk/test/golden"
)

// oneNode returns a kubeconfig of an API server that answers everything with the Node n1.
func oneNode(t *testing.T) (kubeconfig string) {
	t.Helper()
	node := corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{
			nodefacts.Annotation: `{"instance":"i-1","boot":"b1","type":"ecs.g7.large","zone":"cn-hangzhou-h","dataDisks":100}`}},
		Spec:   corev1.NodeSpec{ProviderID: "cn-hangzhou.i-1"},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "b1"}},
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(node); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(api.Close)
	return golden.Kubeconfig(t, api.URL)
}

// nodeOptions are those of a node plugin that lives in a directory.
func nodeOptions(t *testing.T, dir string, more ...string) *options {
	t.Helper()
	return parsed(t, append([]string{"--mode=node", "--node-name=n1", "--endpoint=unix://" + dir + "/csi.sock", "--kubelet-dir=" + dir, "--kubeconfig=" + oneNode(t)}, more...)...)
}

// The kubelet asks for the limit when the plugin registers and, with CSIDriver's nodeAllocatableUpdatePeriodSeconds, from
// time to time: it is the flags' each time.
func TestTheFlagsLimitIsWhatTheKubeletIsTold(t *testing.T) {
	for flag, want := range map[string]int64{"--volume-attach-limit=7": 7, "--reserved-attachments=90": 10} {
		plugin, err := newNodePlugin(nodeOptions(t, t.TempDir(), flag))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			info, err := plugin.server.NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
			if err != nil || info.MaxVolumesPerNode != want {
				t.Errorf("%s: %d volumes, %v; want %d", flag, info.GetMaxVolumesPerNode(), err, want)
			}
		}
	}
}

// A kubelet that never hears of the driver leaves every Pod with a volume waiting, so whoever restarts the process has to
// see that it has failed.
func TestAPluginThatCanNotRegisterEnds(t *testing.T) {
	dir := t.TempDir() // without plugins_registry
	o := nodeOptions(t, dir)
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- run(ctx, o) }()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "plugins_registry")) {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it goes on serving")
	}
	stop()
}
