package provisioner

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestAClaimOrClassThatNoVolumeCanServeIsRefusedByName(t *testing.T) {
	source := func(group, kind string) func(*v1.PersistentVolumeClaim) {
		return func(c *v1.PersistentVolumeClaim) {
			c.Spec.DataSource = &v1.TypedLocalObjectReference{APIGroup: &group, Kind: kind, Name: "src"}
		}
	}
	tests := map[string]struct {
		claim      func(*v1.PersistentVolumeClaim)
		parameters map[string]string
		outcome    Outcome
		want       []string
	}{
		"selector": {
			claim: func(c *v1.PersistentVolumeClaim) { c.Spec.Selector = &metav1.LabelSelector{} },
			want:  []string{"claim.spec.selector", "remove it"},
		},
		"attributes class": {
			claim: func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = ptr.To("fast") },
			want:  []string{"volumeAttributesClassName=fast"},
		},
		"clone":    {claim: source("", "PersistentVolumeClaim"), want: []string{"claim.spec.dataSource", "src"}},
		"snapshot": {claim: source("snapshot.storage.k8s.io", "VolumeSnapshot"), want: []string{"claim.spec.dataSource", "src"}},
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
		"half a Secret by its old key": {parameters: map[string]string{"csiNodeStageSecretName": "a"}, want: []string{"csiNodeStageSecretName", "csiNodeStageSecretNamespace"}},
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
		"secret that is not there": {
			parameters: map[string]string{"csi.storage.k8s.io/secret-name": "x", "csi.storage.k8s.io/secret-namespace": "vault"},
			outcome:    Unchanged, // it may come
			want:       []string{"secret vault/x", "not found"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			claim := testClaim()
			if test.claim != nil {
				test.claim(claim)
			}
			_, outcome, err := b.provision(t.Context(), claim, testClass(test.parameters), "node-1")
			if outcome != test.outcome || err == nil {
				t.Fatalf("got %v, %v", outcome, err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if creates, _ := b.driver.calls(); creates != 0 {
				t.Errorf("the driver was asked %d times", creates)
			}
		})
	}
}

func TestWhatTheDriverIsAsked(t *testing.T) {
	tests := map[string]struct {
		claim  func(*v1.PersistentVolumeClaim)
		class  map[string]string
		config func(*Config)
		check  func(t *testing.T, r *csi.CreateVolumeRequest)
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
			config: func(c *Config) { c.DriverTellsWriters = true },
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
				if r.CapacityRange.LimitBytes != 30*gib {
					t.Errorf("got %v", r.CapacityRange)
				}
			},
		},
		"a shorter UID": {
			claim:  func(c *v1.PersistentVolumeClaim) { c.UID = "a8d5-42f0" },
			config: func(c *Config) { c.VolumeNameUUID = 6 },
			check: func(t *testing.T, r *csi.CreateVolumeRequest) {
				if r.Name != "disk-a8d542" {
					t.Errorf("got %s", r.Name)
				}
			},
		},
		"the claim's name": {
			class:  map[string]string{"type": "cloud_auto"},
			config: func(c *Config) { c.ExtraCreateMetadata = true },
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
		"no topology where the driver knows none": {
			config: func(c *Config) { c.SupportsTopology = false },
			check: func(t *testing.T, r *csi.CreateVolumeRequest) {
				if r.AccessibilityRequirements != nil {
					t.Errorf("got %v", r.AccessibilityRequirements)
				}
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, []answer{made("d-bp1", 0, "zone-a")})
			if test.config != nil {
				test.config(&b.config)
			}
			claim := testClaim()
			if test.claim != nil {
				test.claim(claim)
			}
			if _, _, err := b.provision(t.Context(), claim, testClass(test.class), "node-1"); err != nil {
				t.Fatal(err)
			}
			test.check(t, b.driver.created[0])
		})
	}
}

func TestSecretTemplates(t *testing.T) {
	claim := testClaim()
	refs, err := resolveSecrets(map[string]string{
		"csi.storage.k8s.io/secret-name": "all-${pvc.name}", "csi.storage.k8s.io/secret-namespace": "${pvc.namespace}",
		"csi.storage.k8s.io/node-publish-secret-name": "${pvc.annotations['team']}.${pv.name}", "csi.storage.k8s.io/node-publish-secret-namespace": "x-${pvc.namespace}",
	}, "disk-0f1e", claim)
	if err != nil {
		t.Fatal(err)
	}
	all := &v1.SecretReference{Name: "all-data", Namespace: "shop"}
	want := secretRefs{provisioner: all, controllerPublish: all, nodeStage: all, controllerExpand: all, nodeExpand: all, controllerModify: all,
		nodePublish: &v1.SecretReference{Name: "blue.disk-0f1e", Namespace: "x-shop"}}
	if diff := cmp.Diff(want, refs, cmp.AllowUnexported(secretRefs{})); diff != "" {
		t.Error(diff)
	}
}

func TestASecretThatVanishesDoesNotStopAnOrderUnderWay(t *testing.T) {
	secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vault", Name: "x"}, Data: map[string][]byte{"k": []byte("v1")}}
	b := newBench(t, []answer{unavailable()}, secret)
	class := testClass(map[string]string{"csi.storage.k8s.io/secret-name": "x", "csi.storage.k8s.io/secret-namespace": "vault"})
	try := func() { _, _, _ = b.provision(t.Context(), testClaim(), class, "node-1") }
	try()
	secret.Data["k"] = []byte("v2")
	if _, err := b.api.CoreV1().Secrets("vault").Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	try()
	if err := b.api.CoreV1().Secrets("vault").Delete(t.Context(), "x", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	try()
	for i, want := range []string{"v1", "v2", "v2"} {
		if got := b.driver.created[i].Secrets["k"]; got != want {
			t.Errorf("call %d had %q, want %q", i, got, want)
		}
	}
}

func TestIsTime(t *testing.T) {
	group := "cdi.kubevirt.io"
	tests := map[string]struct {
		claim *v1.PersistentVolumeClaim
		want  bool
	}{
		"plain":         {testClaim(), true},
		"being deleted": {testClaim(func(c *v1.PersistentVolumeClaim) { c.DeletionTimestamp = ptr.To(metav1.Now()) }), false},
		"left to a populator": {testClaim(func(c *v1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &v1.TypedObjectReference{APIGroup: &group, Kind: "VolumeImportSource", Name: "x"}
		}), false},
		"a clone, which is refused with an event": {testClaim(func(c *v1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &v1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "x"}
		}), true},
	}
	for name, test := range tests {
		if got := isTime(test.claim); got != test.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestIsOurs(t *testing.T) {
	annotated := func(annotations map[string]string) *v1.PersistentVolumeClaim {
		return testClaim(func(c *v1.PersistentVolumeClaim) { c.Annotations = annotations })
	}
	tests := map[string]struct {
		claim *v1.PersistentVolumeClaim
		want  bool
	}{
		"today's annotation": {annotated(map[string]string{annStorageProvisioner: driverName}), true},
		"the older one":      {annotated(map[string]string{annBetaStorageProvisioner: driverName}), true},
		"today's wins":       {annotated(map[string]string{annStorageProvisioner: "other", annBetaStorageProvisioner: driverName}), false},
		"none":               {annotated(nil), false},
		"bound":              {testClaim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "d-bp1" }), false},
	}
	for name, test := range tests {
		if got := isOurs(test.claim, driverName); got != test.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	if err := testConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Config){
		"--volume-name-prefix":      func(c *Config) { c.VolumeNamePrefix = "" },
		"--volume-name-prefix=Disk": func(c *Config) { c.VolumeNamePrefix = "Disk" },
		"--volume-name-uuid-length": func(c *Config) { c.VolumeNameUUID = 33 },
		"--pv-name-source=x":        func(c *Config) { c.PVNameSource = "x" },
		"--timeout":                 func(c *Config) { c.Timeout = 0 },
		"--retry-interval-start":    func(c *Config) { c.RetryStart = 0 },
		"--retry-interval-max":      func(c *Config) { c.RetryMax = 0 },
		"--worker-threads=0":        func(c *Config) { c.Workers = 0 },
		"driver's name":             func(c *Config) { c.DriverName = "" },
	} {
		c := testConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestAllowedTopologiesThatAreNotWhatTheySeemAreToldOf(t *testing.T) {
	allowed := []v1.TopologySelectorTerm{{}}
	tests := map[string]struct {
		zones   *zones
		allowed []v1.TopologySelectorTerm
		want    string // in the only event; empty for none
	}{
		"as they seem":          {zones: inZone("zone-a"), allowed: allowed},
		"an empty term":         {zones: &zones{}, allowed: allowed, want: "empty term"},
		"a zone without a node": {zones: &zones{requirement: inZone("zone-x").requirement, deserted: true}, allowed: allowed, want: "zone-x"},
		"none are given":        {zones: &zones{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, []answer{made("d-bp1", 0, "zone-a")})
			b.topology = test.zones
			class := testClass(nil)
			class.AllowedTopologies = test.allowed
			if _, _, err := b.provision(t.Context(), testClaim(), class, ""); err != nil {
				t.Fatal(err)
			}
			events := b.drained()
			if test.want == "" && len(events) > 0 || test.want != "" && (len(events) != 1 || !strings.Contains(events[0], test.want)) {
				t.Errorf("events %q, want %q", events, test.want)
			}
		})
	}
}
