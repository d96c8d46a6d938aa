package request

import (
	"fmt"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/topology"
)

func testOptions() Options {
	return Options{
		DriverName: provisionertest.DriverName, Identity: "test-identity", VolumeNamePrefix: "disk", PVNameSource: VolumeID,
		StrictTopology: true, ImmediateTopology: true, DefaultFSType: "ext4", ClaimAnnotations: []string{"alibabacloud.com/kms-key-id"},
	}
}

func TestNewPlanErrors(t *testing.T) {
	tests := map[string]struct {
		claim      func(*v1.PersistentVolumeClaim)
		parameters map[string]string
		want       []string
	}{
		"selector": {
			claim: func(c *v1.PersistentVolumeClaim) { c.Spec.Selector = &metav1.LabelSelector{} },
			want:  []string{"claim.spec.selector", "remove it"},
		},
		"annotation that is not passed": {
			claim: func(c *v1.PersistentVolumeClaim) { c.Annotations["volume.alibabacloud.com/disk-id"] = "d-1" },
			want:  []string{"annotation volume.alibabacloud.com/disk-id", "--claim-annotations=alibabacloud.com/kms-key-id", "make a PersistentVolume"},
		},
		"annotation that would encrypt": {
			claim: func(c *v1.PersistentVolumeClaim) { c.Annotations["encrypted"] = "true" },
			want:  []string{"annotation encrypted", "name a class"},
		},
		"annotation that tags": {
			claim: func(c *v1.PersistentVolumeClaim) { c.Annotations["diskTags/team"] = "x" },
			want:  []string{"annotation diskTags/team"},
		},
		"label that would encrypt": {
			claim: func(c *v1.PersistentVolumeClaim) { c.Labels = map[string]string{"kmsKeyId": "x"} },
			want:  []string{"label kmsKeyId"},
		},
		"annotation that contradicts the class": {
			claim:      func(c *v1.PersistentVolumeClaim) { c.Annotations["alibabacloud.com/kms-key-id"] = "key-2" },
			parameters: map[string]string{"alibabacloud.com/kms-key-id": "key-1"},
			want:       []string{"alibabacloud.com/kms-key-id", `"key-2"`, `"key-1"`},
		},
		"old and new keys of a Secret": {
			parameters: map[string]string{
				"csiProvisionerSecretName": "a", "csiProvisionerSecretNamespace": "b",
				"csi.storage.k8s.io/provisioner-secret-name": "a", "csi.storage.k8s.io/provisioner-secret-namespace": "b",
			},
			want: []string{"csi.storage.k8s.io/provisioner-secret-name and csiProvisionerSecretName"},
		},
		"half a Secret by its old key": {
			parameters: map[string]string{"csiNodeStageSecretName": "a"},
			want:       []string{"csiNodeStageSecretName", "csiNodeStageSecretNamespace"},
		},
		"access mode": {
			claim: func(c *v1.PersistentVolumeClaim) { c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{"Sometimes"} },
			want:  []string{`"Sometimes"`, "ReadWriteOnce"},
		},
		"no access mode": {claim: func(c *v1.PersistentVolumeClaim) { c.Spec.AccessModes = nil }, want: []string{"claim.spec.accessModes"}},
		"no UID":         {claim: func(c *v1.PersistentVolumeClaim) { c.UID = "" }, want: []string{"no UID"}},
		"two fsTypes": {
			parameters: map[string]string{fsTypeKey: "ext4", "fsType": "xfs"},
			want:       []string{"class essd", "csi.storage.k8s.io/fstype and fsType", "keep one"},
		},
		"two spellings of fsType": {
			parameters: map[string]string{"fstype": "ext4", "fsType": "xfs"},
			want:       []string{"fsType and fstype"},
		},
		"unknown reserved parameter": {
			parameters: map[string]string{"csi.storage.k8s.io/fs-type": "ext4"},
			want:       []string{"csi.storage.k8s.io/fs-type", "unknown", "csi.storage.k8s.io/fstype"},
		},
		"unknown parameter of ours": {
			parameters: map[string]string{"topodisk.io/strict": "true"},
			want:       []string{"topodisk.io/strict", "topodisk.io/strict-topology"},
		},
		"bad boolean": {
			parameters: map[string]string{strictTopologyKey: "perhaps"},
			want:       []string{strictTopologyKey, `"perhaps"`, "true and false"},
		},
		"secret without namespace": {
			parameters: map[string]string{"csi.storage.k8s.io/provisioner-secret-name": "x"},
			want:       []string{"provisioner-secret-name", "not csi.storage.k8s.io/provisioner-secret-namespace"},
		},
		"secret without name": {
			parameters: map[string]string{"csi.storage.k8s.io/secret-namespace": "x"},
			want:       []string{"csi.storage.k8s.io/secret-namespace", "not csi.storage.k8s.io/secret-name"},
		},
		"unknown token": {
			parameters: map[string]string{"csi.storage.k8s.io/secret-name": "${pvc.labels['x']}", "csi.storage.k8s.io/secret-namespace": "x"},
			want:       []string{"csi.storage.k8s.io/secret-name", "pvc.labels['x']", "pv.name, pvc.name, pvc.namespace, pvc.annotations['KEY']"},
		},
		"claim's name in the namespace": {
			parameters: map[string]string{"csi.storage.k8s.io/secret-name": "x", "csi.storage.k8s.io/secret-namespace": "${pvc.name}"},
			want:       []string{"csi.storage.k8s.io/secret-namespace", "allowed are pv.name, pvc.namespace"},
		},
		"not a namespace": {
			parameters: map[string]string{"csi.storage.k8s.io/secret-name": "x", "csi.storage.k8s.io/secret-namespace": "A_b"},
			want:       []string{`"A_b"`, "no namespace"},
		},
		"not a name": {
			parameters: map[string]string{"csi.storage.k8s.io/secret-name": "-", "csi.storage.k8s.io/secret-namespace": "x"},
			want:       []string{`"-"`, "no name of a Secret"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			claim := provisionertest.Claim()
			if test.claim != nil {
				test.claim(claim)
			}
			_, err := NewPlan(testOptions(), claim, provisionertest.Class(test.parameters), "node-1")
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

// A size that bytes in 64 bits can't count would be a small or negative one for the driver.
func TestASizeIsNotCut(t *testing.T) {
	for size, allowed := range map[string]bool{
		"1m": true, "20Gi": true, "9223372036854775807": true, "9223372036854775808": false, "8Ei": true, "9E": true, "10E": false, "1e30": false,
		"-1": false,
	} {
		for field, set := range map[string]func(*v1.VolumeResourceRequirements, v1.ResourceList){
			"requests": func(r *v1.VolumeResourceRequirements, l v1.ResourceList) { r.Requests = l },
			"limits":   func(r *v1.VolumeResourceRequirements, l v1.ResourceList) { r.Requests, r.Limits = nil, l },
		} {
			quantity, err := resource.ParseQuantity(size)
			if err != nil {
				t.Fatal(err)
			}
			claim := provisionertest.Claim(func(c *v1.PersistentVolumeClaim) {
				set(&c.Spec.Resources, v1.ResourceList{v1.ResourceStorage: quantity})
			})
			plan, err := NewPlan(testOptions(), claim, provisionertest.Class(nil), "")
			switch {
			case !allowed:
				want := fmt.Sprintf("claim.spec.resources.%s.storage is %s; allowed are 0 to 9223372036854775807 bytes", field, quantity.String())
				if fmt.Sprint(err) != want {
					t.Errorf("%s %s: got %v, want %s", field, size, err, want)
				}
			case err != nil:
				t.Errorf("%s %s: %v", field, size, err)
			default:
				asked := plan.Request(Inputs{}).Create.CapacityRange
				if got := max(asked.RequiredBytes, asked.LimitBytes); quantity.CmpInt64(got) > 0 {
					t.Errorf("%s %s: the driver is asked for %d bytes", field, size, got)
				}
			}
		}
	}
}

func TestCreateVolumeRequest(t *testing.T) {
	tests := map[string]struct {
		claim   func(*v1.PersistentVolumeClaim)
		class   map[string]string
		options func(*Options)
		check   func(t *testing.T, r *csi.CreateVolumeRequest)
	}{
		"a block volume has no file system": {
			claim: func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock) },
			check: func(t *testing.T, r *csi.CreateVolumeRequest) {
				if r.VolumeCapabilities[0].GetBlock() == nil {
					t.Errorf("got %v", r.VolumeCapabilities[0])
				}
			},
		},
		"a capability for each access mode": {
			claim: func(c *v1.PersistentVolumeClaim) {
				c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, v1.ReadWriteMany}
			},
			check: func(t *testing.T, r *csi.CreateVolumeRequest) {
				if len(r.VolumeCapabilities) != 2 || r.VolumeCapabilities[1].AccessMode.Mode != csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER {
					t.Errorf("got %v", r.VolumeCapabilities)
				}
			},
		},
		"one Pod or several on a node, to a driver that tells them apart": {
			claim: func(c *v1.PersistentVolumeClaim) {
				c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod, v1.ReadWriteOnce, v1.ReadOnlyMany}
			},
			options: func(o *Options) { o.SingleNodeMultiWriter = true },
			check: func(t *testing.T, r *csi.CreateVolumeRequest) {
				for i, want := range []csi.VolumeCapability_AccessMode_Mode{
					csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
					csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
					csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
				} {
					if got := r.VolumeCapabilities[i].AccessMode.Mode; got != want {
						t.Errorf("mode %d: %v, want %v", i, got, want)
					}
				}
			},
		},
		"the claim's limit": {
			claim: func(c *v1.PersistentVolumeClaim) {
				c.Spec.Resources.Limits = v1.ResourceList{v1.ResourceStorage: resource.MustParse("30Gi")}
			},
			check: func(t *testing.T, r *csi.CreateVolumeRequest) {
				if r.CapacityRange.LimitBytes != 30*provisionertest.GiB {
					t.Errorf("got %v", r.CapacityRange)
				}
			},
		},
		"the claim's name": {
			class:   map[string]string{"type": "cloud_auto"},
			options: func(o *Options) { o.ExtraCreateMetadata = true },
			check: func(t *testing.T, r *csi.CreateVolumeRequest) {
				want := map[string]string{"type": "cloud_auto", claimNameKey: "data", claimNamespaceKey: "shop", pvNameKey: "disk-0f1e"}
				if diff := cmp.Diff(want, r.Parameters); diff != "" {
					t.Error(diff)
				}
			},
		},
		"an annotation of the claim that is allowed": {
			claim: func(c *v1.PersistentVolumeClaim) { c.Annotations["alibabacloud.com/kms-key-id"] = "key-1" },
			class: map[string]string{"encrypted": "true"},
			check: func(t *testing.T, r *csi.CreateVolumeRequest) {
				if diff := cmp.Diff(map[string]string{"encrypted": "true", "alibabacloud.com/kms-key-id": "key-1"}, r.Parameters); diff != "" {
					t.Error(diff)
				}
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			options, claim := testOptions(), provisionertest.Claim()
			if test.options != nil {
				test.options(&options)
			}
			if test.claim != nil {
				test.claim(claim)
			}
			plan, err := NewPlan(options, claim, provisionertest.Class(test.class), "node-1")
			if err != nil {
				t.Fatal(err)
			}
			test.check(t, plan.Request(Inputs{}).Create)
		})
	}
}

func TestSecretTemplates(t *testing.T) {
	claim := provisionertest.Claim()
	refs, err := resolveSecrets(map[string]string{
		"csi.storage.k8s.io/secret-name": "all-${pvc.name}", "csi.storage.k8s.io/secret-namespace": "${pvc.namespace}",
		"csi.storage.k8s.io/node-publish-secret-name":      "${pvc.annotations['team']}.${pv.name}",
		"csi.storage.k8s.io/node-publish-secret-namespace": "x-${pvc.namespace}",
	}, "disk-0f1e", claim)
	if err != nil {
		t.Fatal(err)
	}
	all := &v1.SecretReference{Name: "all-data", Namespace: "shop"}
	want := SecretRefs{
		ProvisionerSecret: all, controllerPublishSecret: all, nodeStageSecret: all, controllerExpandSecret: all, nodeExpandSecret: all,
		controllerModifySecret: all, nodePublishSecret: &v1.SecretReference{Name: "blue.disk-0f1e", Namespace: "x-shop"},
	}
	if diff := cmp.Diff(want, refs); diff != "" {
		t.Error(diff)
	}
}

func TestAClassNamesItsSecretForAllCalls(t *testing.T) {
	named := func(purposes ...string) map[string]string {
		parameters := map[string]string{}
		for _, p := range purposes {
			parameters["csi.storage.k8s.io/"+p+"secret-name"], parameters["csi.storage.k8s.io/"+p+"secret-namespace"] = "keys", "storage"
		}
		return parameters
	}
	tests := map[string]struct {
		parameters map[string]string
		expandable bool
		missing    string
	}{
		"none":                       {named(), true, ""},
		"for all":                    {named(""), true, ""},
		"of the node alone":          {named("node-stage-", "node-publish-"), true, ""},
		"for all that there are":     {named("provisioner-", "controller-publish-"), false, ""},
		"and expansions":             {named("provisioner-", "controller-publish-", "controller-expand-"), true, ""},
		"not for expansions":         {named("provisioner-", "controller-publish-"), true, "has no csi.storage.k8s.io/controller-expand-secret-name"},
		"for CreateVolume alone":     {named("provisioner-"), false, "has no csi.storage.k8s.io/controller-publish-secret-name"},
		"for publishing alone":       {named("controller-publish-"), false, "has no csi.storage.k8s.io/provisioner-secret-name"},
		"for changes alone":          {named("controller-modify-"), false, "no csi.storage.k8s.io/provisioner-secret-name, no csi.storage.k8s.io/controller-publish-secret-name"},
		"for all by their old names": {map[string]string{"csiProvisionerSecretName": "keys", "csiProvisionerSecretNamespace": "storage", "csiControllerPublishSecretName": "keys", "csiControllerPublishSecretNamespace": "storage"}, false, ""},
		"for one by its old name":    {map[string]string{"csiProvisionerSecretName": "keys", "csiProvisionerSecretNamespace": "storage"}, false, "has no csi.storage.k8s.io/controller-publish-secret-name"},
	}
	for name, test := range tests {
		class := provisionertest.Class(test.parameters)
		class.AllowVolumeExpansion = &test.expandable
		_, err := NewPlan(testOptions(), provisionertest.Claim(), class, "node-1")
		if (test.missing == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.missing) {
			t.Errorf("%s: %v, want %q", name, err, test.missing)
		}
	}
}

func TestShouldProvision(t *testing.T) {
	group := "cdi.kubevirt.io"
	tests := map[string]struct {
		claim *v1.PersistentVolumeClaim
		want  bool
	}{
		"plain":         {provisionertest.Claim(), true},
		"being deleted": {provisionertest.Claim(func(c *v1.PersistentVolumeClaim) { c.DeletionTimestamp = ptr.To(metav1.Now()) }), false},
		"bound":         {provisionertest.Claim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "d-1" }), false},
		"lost":          {provisionertest.Claim(func(c *v1.PersistentVolumeClaim) { c.Status.Phase = v1.ClaimLost }), false},
		"about to be lost": {provisionertest.Claim(func(c *v1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
		}), false},
		"left to a populator": {provisionertest.Claim(func(c *v1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &v1.TypedObjectReference{APIGroup: &group, Kind: "VolumeImportSource", Name: "x"}
		}), false},
		"a clone, which is refused with an event": {provisionertest.Claim(func(c *v1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &v1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "x"}
		}), true},
	}
	for name, test := range tests {
		if got := ShouldProvision(test.claim); got != test.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestIsOurs(t *testing.T) {
	annotated := func(annotations map[string]string) *v1.PersistentVolumeClaim {
		return provisionertest.Claim(func(c *v1.PersistentVolumeClaim) { c.Annotations = annotations })
	}
	tests := map[string]struct {
		claim *v1.PersistentVolumeClaim
		want  bool
	}{
		"today's annotation": {annotated(map[string]string{AnnStorageProvisioner: provisionertest.DriverName}), true},
		"the older one":      {annotated(map[string]string{AnnBetaStorageProvisioner: provisionertest.DriverName}), true},
		"today's wins":       {annotated(map[string]string{AnnStorageProvisioner: "other", AnnBetaStorageProvisioner: provisionertest.DriverName}), false},
		"none":               {annotated(nil), false},
		"bound":              {provisionertest.Claim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "d-bp1" }), false},
	}
	for name, test := range tests {
		if got := IsOurs(test.claim, provisionertest.DriverName); got != test.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestClassName(t *testing.T) {
	type annotations = map[string]string
	tests := map[string]struct {
		annotations annotations
		class       *string
		want        string
	}{
		"none":                         {nil, nil, ""},
		"named":                        {nil, ptr.To("essd"), "essd"},
		"explicitly none":              {nil, ptr.To(""), ""},
		"annotated":                    {annotations{v1.BetaStorageClassAnnotation: "essd"}, nil, "essd"},
		"the annotation wins":          {annotations{v1.BetaStorageClassAnnotation: "essd"}, ptr.To("ssd"), "essd"},
		"an empty annotation wins too": {annotations{v1.BetaStorageClassAnnotation: ""}, ptr.To("ssd"), ""},
	}
	for name, test := range tests {
		claim := provisionertest.Claim(func(c *v1.PersistentVolumeClaim) {
			c.Annotations, c.Spec.StorageClassName = test.annotations, test.class
		})
		if got := ClassName(claim); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestOptionsValidateNamesTheField(t *testing.T) {
	if err := testOptions().Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Options){
		"--volume-name-prefix":      func(o *Options) { o.VolumeNamePrefix = "" },
		"--volume-name-prefix=Disk": func(o *Options) { o.VolumeNamePrefix = "Disk" },
		"--pv-name-source=x":        func(o *Options) { o.PVNameSource = "x" },
		"--claim-label-tags":        func(o *Options) { o.ClaimLabelTags = []string{"no/label/key"} },
		"--namespace-label-tags":    func(o *Options) { o.NamespaceLabelTags = []string{""} },
		"driver's name":             func(o *Options) { o.DriverName = "" },
	} {
		o := testOptions()
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestWithSecretsLeavesTheRequestAsItIs(t *testing.T) {
	r := fullRequest(t)
	if got := r.WithSecrets(nil); got != r.Create {
		t.Errorf("without secrets the request is copied: %v", got)
	}
	if got := r.WithSecrets(map[string]string{"k": "v"}); got.Secrets["k"] != "v" || got.Name != r.Create.Name || r.Create.Secrets != nil {
		t.Errorf("sent %v; kept %v", got, r.Create)
	}
}

func TestMayReschedule(t *testing.T) {
	r := fullRequest(t)
	if !r.MayReschedule() {
		t.Error("not with a selected node")
	}
	immediate := *r
	if immediate.Node = ""; immediate.MayReschedule() {
		t.Error("without a selected node")
	}
	r.Create.AccessibilityRequirements = nil
	if r.MayReschedule() {
		t.Error("without topology")
	}
}

func TestQuestion(t *testing.T) {
	allowed := []v1.TopologySelectorTerm{{MatchLabelExpressions: []v1.TopologySelectorLabelRequirement{{Key: "zone", Values: []string{"zone-a"}}}}}
	options := testOptions()
	options.ExtraLabelPrefix = "disktype."
	for parameter, strict := range map[string]bool{"": true, "false": false} {
		class := provisionertest.Class(nil)
		class.AllowedTopologies = allowed
		if parameter != "" {
			class.Parameters = map[string]string{strictTopologyKey: parameter}
		}
		plan, err := NewPlan(options, provisionertest.Claim(), class, "node-1")
		if err != nil {
			t.Fatal(err)
		}
		want := topology.Question{ClaimName: "data", SelectedNode: "node-1", Allowed: allowed, Strict: strict, Immediate: true, ExtraLabelPrefix: "disktype."}
		if diff := cmp.Diff(want, plan.Question()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", parameter, diff)
		}
	}
}
