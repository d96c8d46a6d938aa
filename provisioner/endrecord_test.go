package provisioner

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
)

// rejecting notes which requests are taken back.
type rejecting struct {
	noStore
	rejected []string
}

func (r *rejecting) RejectEnd(key string) { r.rejected = append(r.rejected, key) }

// unprovable is a bench on which nobody knows whether the claim has a volume; the cache shows the claims of shown.
func unprovable(t *testing.T, answers []answer, shown ...*v1.PersistentVolumeClaim) (*bench, *rejecting) {
	t.Helper()
	b, store := newBench(t, answers), &rejecting{}
	b.journal.store = store
	for _, claim := range shown {
		must(t, b.claims.Add(claim))
	}
	if _, outcome, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); err == nil || b.journal.find(testClaim().UID) == nil {
		t.Fatalf("%v, %v", outcome, err)
	}
	b.drained()
	return b, store
}

var unknownOutcome = []answer{{err: status.Error(codes.Aborted, "it may have been made before")}}

func TestAnOperatorEndsAnOrder(t *testing.T) {
	b, store := unprovable(t, unknownOutcome)
	c := &Controller{p: b.Provisioner}
	looked := 0
	b.look = func(*v1.PersistentVolumeClaim) { looked++ }
	c.endRequested(string(testClaim().UID), "the keys may not list disks")
	if b.journal.find(testClaim().UID) == nil || looked != 1 {
		t.Fatalf("it has ended beside an attempt that may be under way, or is not looked at (%d times)", looked)
	}
	_, outcome, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
	if outcome != Finished || !errors.Is(err, errRecordEnded) || b.journal.find(testClaim().UID) != nil || len(store.rejected) > 0 {
		t.Errorf("%v, %v; rejected %q", outcome, err, store.rejected)
	}
	if creates, _ := b.driver.calls(); creates != 1 {
		t.Errorf("the driver was asked %d times", creates)
	}
	const told = "ProvisioningEnded an operator has ended the record of disk-0f1e: the keys may not list disks"
	if events := b.drained(); len(events) != 1 || !strings.Contains(events[0], told) {
		t.Errorf("events %q", events)
	}
}

func TestARecordThatIsNeededIsNotEnded(t *testing.T) {
	for what, test := range map[string]struct {
		shown []*v1.PersistentVolumeClaim
		made  *csi.Volume
		says  string
	}{
		"the claim wants a volume": {[]*v1.PersistentVolumeClaim{testClaim()}, nil, "its claim still wants a volume"},
		"the volume is known":      {nil, &csi.Volume{VolumeId: "d-bp1", CapacityBytes: 20 * gib}, "volume d-bp1 was made"},
	} {
		t.Run(what, func(t *testing.T) {
			b, store := unprovable(t, unknownOutcome, test.shown...)
			o := b.journal.find(testClaim().UID)
			o.made = test.made
			(&Controller{p: b.Provisioner}).endRequested(string(testClaim().UID), "no proof")
			if err := b.endAsRequested(o); err != nil || b.journal.find(testClaim().UID) != o {
				t.Errorf("it has ended: %v", err)
			}
			events := strings.Join(b.drained(), "\n")
			if !strings.Contains(events, "ProvisioningNotEnded") || !strings.Contains(events, test.says) || len(store.rejected) != 1 {
				t.Errorf("events %q, rejected %q", events, store.rejected)
			}
			if err := b.endAsRequested(o); err != nil || len(store.rejected) != 1 {
				t.Errorf("one request was heeded twice: %v, %q", err, store.rejected)
			}
		})
	}
}

func TestAnEndOfWhatIsNotUnderWayIsRejected(t *testing.T) {
	b, store := newBench(t, nil), &rejecting{}
	b.journal.store = store
	(&Controller{p: b.Provisioner}).endRequested("uid-9", "no proof")
	if len(store.rejected) != 1 || store.rejected[0] != "uid-9" {
		t.Errorf("rejected %q", store.rejected)
	}
}

// records is the journal of an API server that has one record of each version.
func records(t *testing.T, objects ...runtime.Object) *Records {
	t.Helper()
	record, err := orderOf(t, 1).Encode()
	must(t, err)
	name := journalPrefix + ObjectName(driverName) + "-0"
	shard := &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name},
		Data:       map[string]string{"uid-1": string(record), "uid-2": `{"format":2}`},
	}
	config := testConfig()
	config.DriverName, config.Namespace = driverName, "kube-system"
	r, err := ReadRecords(t.Context(), config, fake.NewClientset(append(objects, shard)...))
	must(t, err)
	return r
}

func TestRecordsAreListedAndShown(t *testing.T) {
	failed := &v1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data.1"}, Reason: "ProvisioningFailed", Message: "Aborted: it may have been made before",
		InvolvedObject: v1.ObjectReference{UID: "uid-1"},
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

func TestAnEndIsRefusedWithTheReason(t *testing.T) {
	claim := testClaim()
	claim.UID = "uid-1"
	pv := testVolume("d-bp1")
	pv.Spec.ClaimRef = &v1.ObjectReference{Namespace: "shop", Name: "data", UID: "uid-1"}
	for what, test := range map[string]struct {
		objects []runtime.Object
		uid     string
		says    []string
	}{
		"unknown":    {nil, "uid-9", []string{`CLAIM-UID is "uid-9"`, "allowed are the UIDs of the journal's 2 records"}},
		"saved":      {[]runtime.Object{pv}, "uid-1", []string{`CLAIM-UID is "uid-1"`, "PersistentVolume d-bp1 stands for its volume"}},
		"wanted":     {[]runtime.Object{claim}, "uid-1", []string{`CLAIM-UID is "uid-1"`, "claim shop/data still wants a volume", "whose claim is deleted"}},
		"not ours":   {nil, "uid-2", []string{"form", "format 2", "the version that wrote it"}},
		"not heeded": {nil, "uid-1", []string{"not ended within 0s", "who leads next does"}},
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
