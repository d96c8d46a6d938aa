package request

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/topology"
)

// fullRequest is a request that uses all fields of an entry.
func fullRequest(t *testing.T) *Request {
	t.Helper()
	class := provisionertest.Class(map[string]string{
		"type": "cloud_essd", fsTypeKey: "xfs",
		"csi.storage.k8s.io/secret-name": "x", "csi.storage.k8s.io/secret-namespace": "vault",
	})
	class.UID = "class-uid"
	claim := provisionertest.Claim(func(c *v1.PersistentVolumeClaim) {
		c.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	})
	plan, err := NewPlan(testOptions(), claim, class, "node-1")
	if err != nil {
		t.Fatal(err)
	}
	terms := []*csi.Topology{{Segments: map[string]string{topology.WellKnownZoneKey: "zone-a"}}}
	return plan.Request(Inputs{
		Requirement:       &csi.TopologyRequirement{Requisite: terms, Preferred: terms},
		Source:            &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: "s-1"}}},
		MutableParameters: map[string]string{"performanceLevel": "PL1"},
	})
}

// Another version of this program reads what this one has written, and the other way.
func TestTheEntryFormatIsStable(t *testing.T) {
	want, err := os.ReadFile("testdata/request.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := fullRequest(t).Encode()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEncodeDecodeRoundTrip(t *testing.T) {
	r := fullRequest(t)
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	read, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.Create, read.Create, protocmp.Transform()); diff != "" {
		t.Errorf("request (-encoded +decoded):\n%s", diff)
	}
	if read.Node != "node-1" || !IsOurs(read.Claim, provisionertest.DriverName) || read.Claim.Annotations[AnnSelectedNode] != "node-1" ||
		read.Class.Name != r.Class.Name || read.Class.UID != r.Class.UID {
		t.Errorf("decoded %+v", read)
	}
	r.Claim.ResourceVersion = "" // that of the claim is written as far as it is known
	made := &csi.Volume{VolumeId: "d-bp1", CapacityBytes: 20 * provisionertest.GiB, AccessibleTopology: r.Requisite()}
	if diff := cmp.Diff(r.PersistentVolume(testOptions(), made), read.PersistentVolume(testOptions(), made)); diff != "" {
		t.Errorf("PersistentVolume (-encoded +decoded):\n%s", diff)
	}
}

// All claims share the journal, so that none may take much of it.
func TestARecordIsBounded(t *testing.T) {
	encode := func(change func(*v1.PersistentVolumeClaim)) ([]byte, error) {
		plan, err := NewPlan(testOptions(), provisionertest.Claim(change), provisionertest.Class(nil), "node-1")
		if err != nil {
			t.Fatal(err)
		}
		return plan.Request(Inputs{}).Encode()
	}
	plain, err := encode(func(*v1.PersistentVolumeClaim) {})
	if err != nil {
		t.Fatal(err)
	}
	repeated, err := encode(func(c *v1.PersistentVolumeClaim) {
		c.Spec.AccessModes = slices.Repeat(c.Spec.AccessModes, 14_000)
		for n := range 1_000 {
			c.Spec.Resources.Requests[v1.ResourceName(fmt.Sprint("example.com/", n))] = c.Spec.Resources.Requests[v1.ResourceStorage]
		}
	})
	if err != nil || !bytes.Equal(plain, repeated) {
		t.Errorf("what repeats the same leads to a record of %d bytes instead of %d, %v", len(repeated), len(plain), err)
	}
	_, err = encode(func(c *v1.PersistentVolumeClaim) {
		c.Annotations["alibabacloud.com/kms-key-id"] = strings.Repeat("k", maxEntry)
	})
	if err == nil || !strings.Contains(err.Error(), "at most 16384 are allowed") {
		t.Errorf("a long one: %v", err)
	}
}

// Whatever a record says, it is a request that is encoded again as it was decoded, or an error.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{``, `{}`, `null`, `[]`, `{"format":1}`, `{"format":2}`, `{"request":"CgR2b2wx","claim":{"uid":"u"}}`,
		`{"request":"CgR2b2wx","node":"n","fsType":"xfs","secrets":{"csi.storage.k8s.io/provisioner-secret":{"name":"x","namespace":"y"}},` +
			`"claim":{"namespace":"shop","name":"data","uid":"u","created":"2026-01-01T00:00:00Z"},"class":{"name":"essd","provisioner":"p"}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		r, err := Decode(record)
		if err != nil {
			return
		}
		if r.Claim.UID == "" || r.Create.GetName() == "" || r.Class == nil {
			t.Fatalf("%q is %+v", record, r)
		}
		again, err := r.Encode()
		if err != nil && len(record) > maxEntry/2 {
			return // it may be too long
		}
		if err != nil {
			t.Fatalf("%q can't be written again: %v", record, err)
		}
		if !json.Valid(again) {
			t.Fatalf("%q is written as %q", record, again)
		}
		read, err := Decode(again)
		if err != nil {
			t.Fatal(err)
		}
		same := read.Claim.UID == r.Claim.UID && read.Node == r.Node && read.Class.Name == r.Class.Name && read.Class.UID == r.Class.UID
		if diff := cmp.Diff(r.Create, read.Create, protocmp.Transform()); diff != "" || !same {
			t.Errorf("%q is another request when it is decoded again: %s", record, diff)
		}
	})
}
