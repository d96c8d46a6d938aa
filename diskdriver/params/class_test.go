package params

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

var defaults = []disk.Choice{{Category: "cloud_ssd"}, {Category: "cloud_efficiency"}, {Category: "cloud_essd"}, {Category: "cloud_auto"}}

func TestParametersAreUnderstood(t *testing.T) {
	type m = map[string]string
	for _, row := range []struct {
		name           string
		class, mutable m
		want           Class
	}{
		{name: "none", want: Class{Choices: defaults}},
		{name: "available means the default types", class: m{"type": "available"}, want: Class{Choices: defaults}},
		{name: "empty values are none", class: m{"type": "", "encrypted": "", "zoneId": "", "sysConfig": ""}, want: Class{Choices: defaults}},
		{
			name:  "levels cross with cloud_essd alone",
			class: m{"type": "cloud_auto, cloud_essd,cloud_ssd", "performanceLevel": "PL1,PL0"},
			want: Class{Choices: []disk.Choice{
				{Category: "cloud_auto"}, {Category: "cloud_essd", Level: "PL1"}, {Category: "cloud_essd", Level: "PL0"}, {Category: "cloud_ssd"},
			}},
		},
		{
			name: "everything at once",
			class: m{
				"type": "cloud_auto", "zoneId": "cn-hangzhou-h,cn-hangzhou-i", "regionId": "cn-hangzhou", "fsType": "xfs",
				"csi.storage.k8s.io/fstype": "xfs", "mkfsOptions": "-m reflink=0", "xfsFeatures": "latest", "categoryAffinity": "true", "volumeSizeAutoAvailable": "1",
				"encrypted": "Yes", "kmsKeyId": "key-1", "alibabacloud.com/kms-key-id": "key-1", "provisionedIops": "3000",
				"burstingEnabled": "TRUE", "resourceGroupId": "rg-1", "diskTags": "team:web,url:a:b", "diskTags/team": "db", "diskTags/empty": "",
				"csi.storage.k8s.io/pvc/name": "data", "csi.storage.k8s.io/pvc/namespace": "shop", "csi.storage.k8s.io/pv/name": "pvc-1",
			},
			want: Class{
				Choices: []disk.Choice{{Category: "cloud_auto"}}, Zones: []disk.Zone{"cn-hangzhou-h", "cn-hangzhou-i"}, Region: "cn-hangzhou",
				Filesystem: "xfs", MkfsOptions: "-m reflink=0", XFSFeatures: disk.XFSLatest, CategoryAffinity: true, AtLeast20: true,
				Disk: disk.Spec{
					Encrypted: true, KMSKeyID: "key-1", ProvisionedIOPS: 3000, Bursting: true, ResourceGroupID: "rg-1",
					Tags: disk.Tags{"team": "db", "url": "a:b", "empty": ""},
				},
				ClaimName: "data", ClaimNamespace: "shop",
			},
		},
		{
			name:  "multi-attach in a storage cluster",
			class: m{"type": "cloud_essd", "performanceLevel": "PL1", "multiAttach": "Enabled", "storageClusterId": "dbsc-1"},
			want:  Class{Choices: []disk.Choice{{Category: "cloud_essd", Level: "PL1"}}, Disk: disk.Spec{MultiAttach: true, StorageClusterID: "dbsc-1"}},
		},
		{
			name:    "mutable parameters override the class",
			class:   m{"type": "cloud_ssd", "performanceLevel": "PL0", "diskTags/a": "1", "diskTags/b": "2", "burstingEnabled": "true"},
			mutable: m{"type": "cloud_essd", "performanceLevel": "PL2", "-diskTags/a": "", "diskTags/b": "3", "burstingEnabled": "f", "csi.storage.k8s.io/pvc/name": "x"},
			want:    Class{Choices: []disk.Choice{{Category: "cloud_essd", Level: "PL2"}}, Disk: disk.Spec{Tags: disk.Tags{"b": "3"}}},
		},
		{
			name:  "what does nothing says so",
			class: m{"readOnly": "true", "volumeExpandAutoSnapshot": "x", "volume.kubernetes.io/selected-node": "n1", "restrictToHpnZone": "never", "topodisk.io/strict-topology": "true", "type": "cloud_ssd", "performanceLevel": "PL1", "provisionedIops": "5"},
			want: Class{Choices: []disk.Choice{{Category: "cloud_ssd"}}, Disk: disk.Spec{ProvisionedIOPS: 5}, Warnings: []string{
				"parameter readOnly does nothing: mount the volume read-only in the Pod",
				"parameter restrictToHpnZone does nothing: volumes of Lingjun zones are not supported",
				"parameter topodisk.io/strict-topology does nothing: disk-provisioner keeps it to itself; with csi-provisioner its flag --strict-topology counts",
				"parameter volume.kubernetes.io/selected-node does nothing: the topology requirement says where the disk goes",
				"parameter volumeExpandAutoSnapshot does nothing: it is obsolete",
				"parameter performanceLevel does nothing: no disk type of the class takes it",
				"parameter provisionedIops does nothing: no disk type of the class takes it",
			}},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := Parse(row.class, row.mutable, Refuse)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, got, cmpopts.IgnoreUnexported(Class{}), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestBadParametersAreInvalidAndSayWhatIsAllowed(t *testing.T) {
	for _, row := range []struct{ name, value, want string }{
		{"type", "cloud_sdd", `parameter type: "cloud_sdd" is not allowed: cloud_sdd is no disk type; allowed are cloud, cloud_auto, cloud_efficiency`},
		{"type", "cloud_ssd,,cloud_auto", "an element of the list is empty"},
		{"type", "Cloud_SSD", "no disk type"},
		{"type", "elastic_ephemeral_disk_premium", "lives and dies with one instance"},
		{"type", "local_ssd_pro", "part of an instance"},
		{"type", "cloud_pperf", "private clouds only"},
		{"performanceLevel", "PL4", "allowed are PL0, PL1, PL2, PL3"},
		{"performanceLevel", "pl1", "allowed are PL0, PL1, PL2, PL3"},
		{"zoneId", "cn-hangzhou-h,", "an element of the list is empty"},
		{"zoneId", "cn-hangzhou-h;cn-hangzhou-i", "allowed is a list such as"},
		{"zoneid", "CN-h", "is no zone"},
		{"fsType", "btrfs", "allowed are ext3, ext4, xfs"},
		{"fstype", "ntfs", "allowed are ext3, ext4, xfs"},
		{"encrypted", "maybe", `parameter encrypted: "maybe" is not allowed: allowed are true, yes, 1, enabled and false, no, 0, disabled`},
		{"multiAttach", "2", "allowed are true"},
		{"readOnly", "ro", "allowed are true"},
		{"topodisk.io/strict-topology", "maybe", "allowed are true"},
		{"categoryAffinity", "strict", "allowed are true"},
		{"kmsKeyId", "key-1", `parameter kmsKeyId: "key-1" needs parameter encrypted`},
		{"alibabacloud.com/kms-key-id", "key-1", "needs parameter encrypted"},
		{"storageClusterId", "dbsc-1", "needs parameter performanceLevel"},
		{"provisionedIops", "-1", "allowed is a whole number from 0"},
		{"provisionedIops", "3k", "allowed is a whole number from 0"},
		{"diskTags", "team", `"team" has no colon`},
		{"diskTags", "createdby:me", "the driver itself sets the tag createdby"},
		{"diskTags/ack.aliyun.com", "c2", "the driver itself sets the tag ack.aliyun.com"},
		{"diskTags/acs:x", "1", "can't start with acs:"},
		{"diskTags/aliyunx", "1", "not with aliyun"},
		{"diskTags/x", "http://x", "http://"},
		{"diskTags/x", strings.Repeat("y", 129), "at most 128 characters"},
		{"diskTags", "a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1,j:1,k:1,l:1,m:1,n:1,o:1", "15 tags; at most 10 are allowed"},
		{"diskTags/", "1", "is unknown"},
		{"restrictToHpnZone", "always", "allowed is never"},
		{"sysConfig", "queue/nr_requests=8", `parameter sysConfig (value "queue/nr_requests=8") is not supported`},
		{"dataCacheSize", "10Gi", "is not supported"},
		{"dataCacheMode", "writeback", "is not supported"},
		{"readIOPS", "100", "is not supported"},
		{"writeIOPS", "100", "is not supported"},
		{"readBPS", "1M", "is not supported"},
		{"writeBPS", "1M", "is not supported"},
		{"sysConfig", "3", "is not supported"},
		{"volume.alibabacloud.com/disk-id", "d-1", "is not supported"},
		{"alibabacloud.com/createdisk-arn", "[]", "is not supported"},
		{"encripted", "true", `parameter encripted (value "true") is unknown; allowed are alibabacloud.com/kms-key-id, archiveOnDelete, burstingEnabled, categoryAffinity`},
		{"csi.storage.k8s.io/fstpye", "xfs", "is unknown"},
	} {
		t.Run(row.name+"="+row.value[:min(len(row.value), 20)], func(t *testing.T) {
			_, err := Parse(map[string]string{row.name: row.value}, nil, Refuse)
			if disk.KindOf(err) != disk.Invalid || err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), strings.TrimPrefix(row.name, "alibabacloud.com/kms-key-id")) {
				t.Errorf("got %v, want an Invalid error that holds %q and the parameter's name", err, row.want)
			}
		})
	}
}

func TestMutableParametersAreStrictToo(t *testing.T) {
	for name, row := range map[string]struct{ value, want string }{
		"type":             {"cloud_ssd,cloud_auto", "mutable parameter type: \"cloud_ssd,cloud_auto\" is not allowed: allowed is one of"},
		"performanceLevel": {"PL1,PL2", "allowed is one of PL0"},
		"provisionedIops":  {"x", "whole number"},
		"burstingEnabled":  {"x", "allowed are true"},
		"encrypted":        {"true", "mutable parameter encrypted (value \"true\") is unknown; allowed are -diskTags/<key>, burstingEnabled, csi.storage.k8s.io/<key>, diskTags/<key>, performanceLevel"},
	} {
		_, err := Parse(nil, map[string]string{name: row.value}, Refuse)
		if disk.KindOf(err) != disk.Invalid || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got %v, want %q", name, err, row.want)
		}
	}
}

func TestTwoNamesOfOneParameterMustAgree(t *testing.T) {
	for _, class := range []map[string]string{
		{"zoneId": "cn-hangzhou-h", "zoneid": "cn-hangzhou-i"},
		{"fsType": "xfs", "csi.storage.k8s.io/fstype": "ext4"},
		{"encrypted": "true", "kmsKeyId": "a", "alibabacloud.com/kms-key-id": "b"},
	} {
		if _, err := Parse(class, nil, Refuse); disk.KindOf(err) != disk.Invalid || !strings.Contains(err.Error(), "another name of the same parameter") {
			t.Errorf("%v: got %v", class, err)
		}
	}
}

func TestUnknownNamesMayBeWarnedOfButNotBadValues(t *testing.T) {
	p, err := Parse(map[string]string{"encripted": "true"}, nil, Warn)
	if err != nil || !cmp.Equal(p.Warnings, []string{"parameter encripted is unknown and does nothing"}) {
		t.Errorf("got %v, %v", p.Warnings, err)
	}
	if _, err := Parse(map[string]string{"encrypted": "maybe"}, nil, Warn); disk.KindOf(err) != disk.Invalid {
		t.Errorf("a bad value got %v", err)
	}
	if _, err := Parse(map[string]string{"dataCacheSize": "1Gi"}, nil, Warn); disk.KindOf(err) != disk.Invalid {
		t.Errorf("an unsupported feature got %v", err)
	}
}

func TestSpecCarriesTheDriversTagsAndTheUsers(t *testing.T) {
	p, err := Parse(map[string]string{
		"diskTags": "team:web", "csi.storage.k8s.io/pvc/name": strings.Repeat("n", 200), "csi.storage.k8s.io/pvc/namespace": "shop",
	}, nil, Refuse)
	if err != nil {
		t.Fatal(err)
	}
	want := disk.Tags{
		"k8s.aliyun.com": "true", "ack.aliyun.com": "c1", "topodisk.io/cluster": "c1", "createdby": "topodisk", "csi.alibabacloud.com/volume-name": "disk-1",
		"kubernetes.io/created-for/pvc/name": strings.Repeat("n", 128), "kubernetes.io/created-for/pvc/namespace": "shop", "team": "web",
	}
	if diff := cmp.Diff(want, p.Spec("disk-1", "c1").Tags); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(disk.Tags{"team": "web"}, p.Disk.Tags); diff != "" {
		t.Errorf("the user's tags changed: %s", diff)
	}
}

func FuzzParseNeverAcceptsWhatItCannotPlan(f *testing.F) {
	f.Add("type", "cloud_essd,cloud_auto", "performanceLevel", "PL0")
	f.Add("zoneId", "cn-hangzhou-h", "encrypted", "true")
	f.Add("diskTags", "a:b", "diskTags/c", "d")
	f.Add("-diskTags/c", "", "type", "available")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		p, err := Parse(map[string]string{k1: v1, k2: v2}, nil, Refuse)
		if err != nil {
			if disk.KindOf(err) != disk.Invalid {
				t.Errorf("Kind %v of %v", disk.KindOf(err), err)
			}
			return
		}
		if len(p.Choices) == 0 {
			t.Error("no choice")
		}
		for _, c := range p.Choices {
			if traits, known := c.Category.Traits(); !known || traits.Barred != "" || c.Sizes().Least < 1 {
				t.Errorf("choice %v can't be made", c)
			}
		}
		if len(p.Spec("n", "c").Tags) > 20 {
			t.Error("more tags than ECS takes")
		}
		if _, err := Parse(map[string]string{k1: v1}, map[string]string{k2: v2}, Warn); err != nil && disk.KindOf(err) != disk.Invalid {
			t.Errorf("Kind %v of %v", disk.KindOf(err), err)
		}
	})
}

// Whoever writes anything but a clear no gets an encrypted disk or none.
func FuzzEncryptionIsNeverLeftOutByMistake(f *testing.F) {
	for _, value := range []string{"true", "enabled", "Enabled", "yes", "YES", "1", "t", "on", "y", "maybe", "treu", "false", "disabled", "no", "0", "", " true", "true ", "\"true\""} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		p, err := Parse(map[string]string{"encrypted": value}, nil, Warn)
		switch strings.ToLower(value) {
		case "", "false", "f", "no", "0", "disabled":
			if err != nil || p.Disk.Encrypted {
				t.Errorf("%q: encrypted %v, %v", value, p.Disk.Encrypted, err)
			}
		default:
			if err == nil && !p.Disk.Encrypted {
				t.Errorf("%q makes a plain disk", value)
			}
			if err != nil && disk.KindOf(err) != disk.Invalid {
				t.Errorf("%q: %v is %v", value, err, disk.KindOf(err))
			}
		}
	})
}

func TestAClassSaysWhatItsDisksAreTaggedWith(t *testing.T) {
	for _, test := range []struct {
		class map[string]string
		want  string
	}{
		{nil, ""},
		{map[string]string{"archiveOnDelete": "false"}, ""},
		{map[string]string{"archiveOnDelete": "True"}, "true"},
		{map[string]string{"volumeDeleteSnapshotRetentionDays": "30"}, "30"},
		{map[string]string{"volumeDeleteSnapshotRetentionDays": "30", "archiveOnDelete": "yes"}, "30"},
	} {
		p, err := Parse(test.class, nil, Refuse)
		if err != nil {
			t.Errorf("%v: %v", test.class, err)
		}
		if tag := p.Spec("pvc-1", "c1").Tags[disk.ArchiveTag]; tag != test.want {
			t.Errorf("%v: the tag is %q, want %q", test.class, tag, test.want)
		}
	}
	for _, class := range []map[string]string{
		{"archiveOnDelete": "maybe"}, {"volumeDeleteSnapshotRetentionDays": "0"}, {"volumeDeleteSnapshotRetentionDays": "65537"}, {"volumeDeleteSnapshotRetentionDays": "x"},
		{"volumeDeleteSnapshotRetentionDays": "1", "archiveOnDelete": "no"},
	} {
		if _, err := Parse(class, nil, Warn); disk.KindOf(err) != disk.Invalid {
			t.Errorf("%v: %v", class, err)
		}
	}
}

func TestVolumeSizeAutoAvailableRaisesTo20(t *testing.T) {
	p := Class{AtLeast20: true}
	if w, err := p.Want(1<<30, 0, "ext4"); err != nil || w.Least != 20 {
		t.Errorf("got %v, %v", w, err)
	}
	if w, err := p.Want(30<<30, 0, "ext4"); err != nil || w.Least != 30 {
		t.Errorf("got %v, %v", w, err)
	}
	if _, err := p.Want(1<<30, 2<<30, "ext4"); disk.KindOf(err) != disk.OutOfRange || !strings.Contains(err.Error(), "volumeSizeAutoAvailable") {
		t.Errorf("got %v", err)
	}
}
