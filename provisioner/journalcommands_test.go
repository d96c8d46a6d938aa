package provisioner

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/topodisk/topodisk/internal/escape"
	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/test/hostile"
)

// records is the journal of an API server that has one record of each version.
func records(t *testing.T, objects ...runtime.Object) *Journal {
	t.Helper()
	record, err := requestFor(t, 1).Encode()
	must(t, err)
	name := request.JournalName(provisionertest.DriverName) + "-0"
	shard := &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name},
		Data:       map[string]string{"uid-1": string(record), "uid-2": `{"format":2}`},
	}
	config := testConfig()
	config.DriverName, config.Namespace = provisionertest.DriverName, "kube-system"
	r, err := ReadJournal(t.Context(), config, fake.NewClientset(append(objects, shard)...))
	must(t, err)
	return r
}

func TestRecordsAreListedAndShown(t *testing.T) {
	failed := &v1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data.1"}, Reason: "ProvisioningFailed", Message: "Aborted: it may have been made before",
		InvolvedObject: v1.ObjectReference{Namespace: "shop", Name: "data", UID: "uid-1"},
	}
	r := records(t, failed)
	var list, show, unreadable bytes.Buffer
	must(t, errors.Join(r.List(t.Context(), &list, true), r.Show(t.Context(), &show, "uid-1", true), r.Show(t.Context(), &unreadable, "uid-2", false)))
	for out, wants := range map[*bytes.Buffer][]string{
		&list:       {"CLAIM-UID", "uid-1", "shop/data", "disk-uid-1", "essd", "node-1", "it may have been made before", "uid-2", "format 2"},
		&show:       {"disk-uid-1", "claim now:", "gone", "PersistentVolume now:", "none", "it may have been made before", `"capacityRange"`, "zone-a"},
		&unreadable: {"uid-2", "unreadable:", "format 2"},
	} {
		for _, want := range wants {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q is not in\n%s", want, out)
			}
		}
	}
}

// What others write into events is not said of a claim of another namespace, and does nothing to a terminal or a table.
func TestEventsDontMisleadTheOperator(t *testing.T) {
	event := func(namespace, message string, minute int) *v1.Event {
		return &v1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data." + namespace}, Reason: "ProvisioningFailed", Message: message,
			InvolvedObject: v1.ObjectReference{Namespace: namespace, Name: "data", UID: "uid-1"},
			LastTimestamp:  metav1.NewTime(time.Unix(int64(minute)*60, 0)),
		}
	}
	r := records(t, event("shop", "may exist"+hostile.Text, 1), event("evil", "no disk was made", 2))
	for name, print := range map[string]func(io.Writer) error{
		"list": func(out io.Writer) error { return r.List(t.Context(), out, true) },
		"show": func(out io.Writer) error { return r.Show(t.Context(), out, "uid-1", true) },
	} {
		var out bytes.Buffer
		must(t, print(&out))
		if text := out.String(); !strings.Contains(text, "may exist ;touch OWNED") || strings.Contains(text, "no disk was made") || !escape.Is(text) ||
			strings.Contains(text, "\nINJECTED") || strings.Contains(text, "\t") {
			t.Errorf("%s prints\n%s", name, text)
		}
	}
}

func TestEndErrorsNameTheReason(t *testing.T) {
	claim := provisionertest.Claim()
	claim.UID = "uid-1"
	bound := provisionertest.Claim(func(c *v1.PersistentVolumeClaim) { c.UID, c.Spec.VolumeName = "uid-1", "by-hand" })
	volume := func(name, volumeName string) *v1.PersistentVolume {
		return provisionertest.Volume(name, func(pv *v1.PersistentVolume) {
			pv.Annotations[request.AnnVolumeName], pv.Spec.ClaimRef.UID = volumeName, "uid-1"
		})
	}
	for what, test := range map[string]struct {
		objects []runtime.Object
		uid     string
		says    []string
	}{
		"unknown": {nil, "uid-9", []string{`CLAIM-UID is "uid-9"`, "allowed are the UIDs of the journal's 2 records"}},
		"saved": {[]runtime.Object{bound, volume("by-hand", ""), volume("d-bp1", "disk-uid-1")}, "uid-1",
			[]string{`CLAIM-UID is "uid-1"`, "PersistentVolume d-bp1 stands for its volume"}},
		"wanted": {[]runtime.Object{claim}, "uid-1",
			[]string{`CLAIM-UID is "uid-1"`, "claim shop/data still wants a volume", "whose claim is deleted or bound"}},
		"by hand":     {[]runtime.Object{bound, volume("by-hand", "")}, "uid-1", []string{"not ended within 0s"}},
		"its PV only": {[]runtime.Object{claim, volume("by-hand", "")}, "uid-1", []string{"claim shop/data still wants a volume"}},
		"not ours":    {nil, "uid-2", []string{"form", "format 2", "the version that wrote it"}},
		"not handled": {nil, "uid-1", []string{"not ended within 0s", "the next leader will"}},
	} {
		t.Run(what, func(t *testing.T) {
			r := records(t, test.objects...)
			err := r.End(t.Context(), test.uid, "no proof", 0)
			var refused *RefusedError
			if errors.As(err, &refused) == strings.Contains(test.says[0], "not ended") || err == nil {
				t.Fatalf("got %v", err)
			}
			for _, want := range test.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in %q", want, err)
				}
			}
		})
	}
}

func TestEndOutlivesAnErrorOfTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := records(t)
		api := r.client.(*fake.Clientset)
		recovers := time.Now().Add(10 * time.Second)
		api.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return time.Now().Before(recovers), nil, errors.New("etcd is slow")
		})
		if err := r.End(t.Context(), "uid-1", "no proof", 5*time.Second); err == nil || !strings.Contains(err.Error(), "etcd is slow") {
			t.Errorf("got %v", err)
		}
		time.AfterFunc(10*time.Second, func() { // the leader ends it
			must(t, api.Tracker().Delete(v1.SchemeGroupVersion.WithResource("configmaps"), "kube-system", request.JournalName(provisionertest.DriverName)+"-0"))
		})
		if err := r.End(t.Context(), "uid-1", "no proof", time.Minute); err != nil {
			t.Error(err)
		}
	})
}
