package request

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
)

// Whatever the driver is asked for that may change its answer makes requests of a class differ, but for their size and topology, which
// are compared apart.
func TestSpecifics(t *testing.T) {
	parameters := map[string]string{
		"type": "cloud_essd", "csi.storage.k8s.io/secret-namespace": "ecs", "csi.storage.k8s.io/secret-name": "keys",
	}
	tests := map[string]struct {
		claim      func(*v1.PersistentVolumeClaim)
		parameters map[string]string
		options    func(*Options)
		inputs     Inputs
		differs    bool
	}{
		"what every claim asks for": {},
		"another size": {claim: func(c *v1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse("999Gi")
		}},
		"another name":  {claim: func(c *v1.PersistentVolumeClaim) { c.Name, c.UID = "logs", "uid-2" }, options: func(o *Options) { o.ExtraCreateMetadata = true }},
		"a tag":         {claim: func(c *v1.PersistentVolumeClaim) { c.Labels = map[string]string{"team": "x"} }, options: func(o *Options) { o.ClaimLabelTags = []string{"team"} }},
		"another place": {inputs: Inputs{Requirement: &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{"zone": "b"}}}}}},
		"one node": {claim: func(c *v1.PersistentVolumeClaim) {
			c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
		}},
		"several nodes": {claim: func(c *v1.PersistentVolumeClaim) {
			c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
		}, differs: true},
		"a key":          {claim: func(c *v1.PersistentVolumeClaim) { c.Annotations["alibabacloud.com/kms-key-id"] = "k-1" }, differs: true},
		"its attributes": {inputs: Inputs{MutableParameters: map[string]string{"type": "cloud_essd_entry"}}, differs: true},
		"a source": {inputs: Inputs{Source: &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: "s-1"},
		}}}, differs: true},
		"its own account": {parameters: map[string]string{
			"type": "cloud_essd", "csi.storage.k8s.io/secret-namespace": "${pvc.namespace}", "csi.storage.k8s.io/secret-name": "keys",
		}, differs: true},
	}
	seen := map[string]string{}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			options, claim, class := testOptions(), provisionertest.Claim(), provisionertest.Class(parameters)
			if test.options != nil {
				test.options(&options)
			}
			if test.claim != nil {
				test.claim(claim)
			}
			if test.parameters != nil {
				class.Parameters = test.parameters
			}
			plan, err := NewPlan(options, claim, class, "node-1")
			if err != nil {
				t.Fatal(err)
			}
			specifics := plan.Request(test.inputs).Specifics()
			if (specifics != "") != test.differs {
				t.Errorf("got %x, want some: %v", specifics, test.differs)
			}
			if other, same := seen[specifics]; same && test.differs {
				t.Errorf("it is taken for %s", other)
			}
			seen[specifics] = name
		})
	}
}

// What a request from the journal shares with its class is not known, so it shares nothing.
func TestSpecificsOfARequestFromTheJournal(t *testing.T) {
	plan, err := NewPlan(testOptions(), provisionertest.Claim(), provisionertest.Class(map[string]string{"type": "cloud_essd"}), "node-1")
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := plan.Request(Inputs{}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := Decode(bytes)
	if err != nil {
		t.Fatal(err)
	}
	if decoded.Specifics() == "" {
		t.Error("its refusal would be one of its class")
	}
}
