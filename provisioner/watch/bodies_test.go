package watch

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// No verbosity shows a Secret, though client-go logs the bodies of all replies at 10.
func TestNoSecretIsLogged(t *testing.T) {
	const private = "a-key-of-somebody"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var object any = &v1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Data: map[string][]byte{"key": []byte(private)}}
		if strings.Contains(r.URL.Path, "configmaps") {
			object = &v1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Data: map[string]string{"key": "shown"}}
		}
		_ = json.NewEncoder(w).Encode(object)
	}))
	defer server.Close()
	var log bytes.Buffer
	logged(t, &log)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	values, err := ReadSecret(t.Context(), client, &v1.SecretReference{Namespace: "shop", Name: "keys"})
	if err != nil || values["key"] != private {
		t.Fatal(values, err)
	}
	if _, err := client.CoreV1().ConfigMaps("shop").Get(t.Context(), "other", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	klog.Flush()
	if !strings.Contains(log.String(), "shown") {
		t.Errorf("the body of a ConfigMap is not logged, so this shows nothing:\n%s", &log)
	}
	if !strings.Contains(log.String(), "secrets/keys") {
		t.Errorf("the request is not logged:\n%s", &log)
	}
	if strings.Contains(log.String(), private) || strings.Contains(log.String(), base64.StdEncoding.EncodeToString([]byte(private))) {
		t.Errorf("the Secret is logged:\n%s", &log)
	}
}

// logged has klog write everything to a log for the time of a test.
func logged(t *testing.T, to *bytes.Buffer) {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	state := klog.CaptureState()
	t.Cleanup(state.Restore)
	for name, value := range map[string]string{"v": "10", "logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	klog.SetOutput(to)
}
