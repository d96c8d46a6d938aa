package ecssim_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

// kind returns a change to a request: category, level and size.
func kind(category, level string, size int) func(*ecs.CreateDiskRequest) {
	return func(r *ecs.CreateDiskRequest) {
		r.DiskCategory, r.PerformanceLevel, r.Size = category, level, requests.NewInteger(size)
	}
}

// with joins changes to a request.
func with(changes ...func(*ecs.CreateDiskRequest)) func(*ecs.CreateDiskRequest) {
	return func(r *ecs.CreateDiskRequest) {
		for _, change := range changes {
			change(r)
		}
	}
}

func tags(n int) *[]ecs.CreateDiskTag {
	var list []ecs.CreateDiskTag
	for i := range n {
		list = append(list, ecs.CreateDiskTag{Key: fmt.Sprintf("key-%d", i), Value: "v"})
	}
	return &list
}

func TestCreateDiskTakes(t *testing.T) {
	regional := func(r *ecs.CreateDiskRequest) { r.ZoneId = "" }
	for name, change := range map[string]func(*ecs.CreateDiskRequest){
		"cloud at its least":            kind("cloud", "", 5),
		"cloud at its largest":          kind("cloud", "", 2000),
		"efficiency at its least":       kind("cloud_efficiency", "", 20),
		"ssd at its largest":            kind("cloud_ssd", "", 32768),
		"PL0 at its least":              kind("cloud_essd", "PL0", 1),
		"PL1 at its least":              kind("cloud_essd", "PL1", 20),
		"PL2 at its least":              kind("cloud_essd", "PL2", 461),
		"PL3 at its least":              kind("cloud_essd", "PL3", 1261),
		"auto at its least":             kind("cloud_auto", "", 1),
		"entry at its least":            kind("cloud_essd_entry", "", 10),
		"ephemeral at its least":        kind("elastic_ephemeral_disk_standard", "", 64),
		"regional without a zone":       with(kind("cloud_regional_disk_auto", "", 10), regional),
		"the service's key":             func(r *ecs.CreateDiskRequest) { r.Encrypted = "true" },
		"a key of one's own":            func(r *ecs.CreateDiskRequest) { r.Encrypted, r.KMSKeyId = "true", "key-1" },
		"twenty tags":                   func(r *ecs.CreateDiskRequest) { r.Tag = tags(20) },
		"a token of 64":                 func(r *ecs.CreateDiskRequest) { r.ClientToken = strings.Repeat("t", 64) },
		"IOPS up to the bound at 4 GiB": with(kind("cloud_auto", "", 4), func(r *ecs.CreateDiskRequest) { r.ProvisionedIops = "1000" }),
		"bursting above 3 GiB":          with(kind("cloud_auto", "", 4), func(r *ecs.CreateDiskRequest) { r.BurstingEnabled = "true" }),
		"multi-attach on ESSD":          func(r *ecs.CreateDiskRequest) { r.MultiAttach = "Enabled" },
		"a name of every kind of sign":  func(r *ecs.CreateDiskRequest) { r.DiskName = "盘a:1_.-" },
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil)
			create(t, newClient(t, s), change)
			if err := s.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCreateDiskRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*ecs.CreateDiskRequest)
		status int
		code   string
	}{
		{"no zone", func(r *ecs.CreateDiskRequest) { r.ZoneId = "" }, 400, "MissingParameter"},
		{"no size", func(r *ecs.CreateDiskRequest) { r.Size = "" }, 400, "MissingParameter"},
		{"an unknown zone", func(r *ecs.CreateDiskRequest) { r.ZoneId = "cn-hangzhou-z" }, 404, "InvalidZoneId.NotFound"},
		{"an unknown region", func(r *ecs.CreateDiskRequest) { r.RegionId = "cn-nowhere" }, 404, "InvalidRegionId.NotFound"},
		{"an unknown category", kind("cloud_fast", "", 20), 400, "InvalidDiskCategory.ValueNotSupported"},
		{"a local category", kind("local_ssd_pro", "", 20), 400, "InvalidDiskCategory.NotSupported"},
		{"a category not on offer", kind("cloud_essd_xc0", "", 40), 400, "InvalidDataDiskCategory.NotSupported"},
		{"a regional category with a zone", kind("cloud_regional_disk_auto", "", 20), 400, "InvalidZoneId.DiskCategoryUnsupported"},
		{"a size that is no number", func(r *ecs.CreateDiskRequest) { r.Size = "20Gi" }, 400, "InvalidSize.ValueNotSupported"},
		{"a size of zero", kind("cloud_essd", "", 0), 400, "InvalidSize.ValueNotSupported"},
		{"ssd below its least", kind("cloud_ssd", "", 19), 400, "InvalidDiskSize.NotSupported"},
		{"essd above its largest", kind("cloud_essd", "", 65537), 400, "InvalidDiskSize.NotSupported"},
		{"PL1 by default below its least", kind("cloud_essd", "", 19), 403, "OperationDenied.PerformanceLevelNotMatch"},
		{"PL2 below its least", kind("cloud_essd", "PL2", 460), 403, "OperationDenied.PerformanceLevelNotMatch"},
		{"PL3 below its least", kind("cloud_essd", "PL3", 1260), 403, "OperationDenied.PerformanceLevelNotMatch"},
		{"PL4", kind("cloud_essd", "PL4", 2000), 400, "InvalidPerformanceLevel.Malformed"},
		{"a level where there are none", kind("cloud_ssd", "PL1", 20), 400, "InvalidPerformanceLevel.Malformed"},
		{"a name too short", func(r *ecs.CreateDiskRequest) { r.DiskName = "a" }, 400, "InvalidDiskName.Malformed"},
		{"a name too long", func(r *ecs.CreateDiskRequest) { r.DiskName = strings.Repeat("a", 129) }, 400, "InvalidDiskName.Malformed"},
		{"a name that begins with a digit", func(r *ecs.CreateDiskRequest) { r.DiskName = "1a" }, 400, "InvalidDiskName.Malformed"},
		{"a name with a space", func(r *ecs.CreateDiskRequest) { r.DiskName = "a b" }, 400, "InvalidDiskName.Malformed"},
		{"a description too long", func(r *ecs.CreateDiskRequest) { r.Description = strings.Repeat("a", 257) }, 400, "InvalidDescription.Malformed"},
		{"a description that is a link", func(r *ecs.CreateDiskRequest) { r.Description = "https://a" }, 400, "InvalidDescription.Malformed"},
		{"a tag twice", func(r *ecs.CreateDiskRequest) {
			r.Tag = &[]ecs.CreateDiskTag{{Key: "a", Value: "1"}, {Key: "a", Value: "2"}}
		}, 400, "Duplicate.TagKey"},
		{"a reserved tag", func(r *ecs.CreateDiskRequest) { r.Tag = &[]ecs.CreateDiskTag{{Key: "aliyun.x", Value: "1"}} }, 400, "InvalidTagKey.Malformed"},
		{"a tag without a key", func(r *ecs.CreateDiskRequest) { r.Tag = &[]ecs.CreateDiskTag{{Value: "1"}} }, 400, "InvalidTagKey.Malformed"},
		{"a tag key too long", func(r *ecs.CreateDiskRequest) { r.Tag = &[]ecs.CreateDiskTag{{Key: strings.Repeat("a", 129)}} }, 400, "InvalidTagKey.Malformed"},
		{"a tag value too long", func(r *ecs.CreateDiskRequest) {
			r.Tag = &[]ecs.CreateDiskTag{{Key: "a", Value: strings.Repeat("a", 129)}}
		}, 400, "InvalidTagValue.Malformed"},
		{"twenty-one tags", func(r *ecs.CreateDiskRequest) { r.Tag = tags(21) }, 403, "QuotaExceed.Tags"},
		{"a key without encryption", func(r *ecs.CreateDiskRequest) { r.KMSKeyId = "key-1" }, 400, "InvalidEncrypted.NotMatchKmsKeyId"},
		{"an unknown key", func(r *ecs.CreateDiskRequest) { r.Encrypted, r.KMSKeyId = "true", "key-2" }, 404, "InvalidParameter.KMSKeyId.NotFound"},
		{"a truth value that is none", func(r *ecs.CreateDiskRequest) { r.Encrypted = "yes" }, 400, "InvalidParameter"},
		{"an unknown resource group", func(r *ecs.CreateDiskRequest) { r.ResourceGroupId = "rg-2" }, 404, "InvalidResourceGroup.NotFound"},
		{"an unknown storage cluster", func(r *ecs.CreateDiskRequest) { r.StorageClusterId = "dbsc-2" }, 404, "InvalidStorageClusterId.NotExist"},
		{"an unknown snapshot", func(r *ecs.CreateDiskRequest) { r.SnapshotId = "s-1" }, 404, "InvalidSnapshotId.NotFound"},
		{"an unknown instance", func(r *ecs.CreateDiskRequest) { r.InstanceId = "i-9" }, 404, "InvalidInstanceId.NotFound"},
		{"an instance and a zone", func(r *ecs.CreateDiskRequest) { r.InstanceId = "i-1" }, 403, "InvalidParam.ZoneIdAndInstanceId.Conflict"},
		{"a subscription disk", func(r *ecs.CreateDiskRequest) { r.InstanceId, r.ZoneId = "i-1", "" }, 403, "InvalidPayMethod"},
		{"IOPS above the bound at 4 GiB", with(kind("cloud_auto", "", 4), func(r *ecs.CreateDiskRequest) { r.ProvisionedIops = "1001" }), 400, "InvalidProvisionedIops.LimitExceed"},
		{"IOPS below 4 GiB", with(kind("cloud_auto", "", 3), func(r *ecs.CreateDiskRequest) { r.ProvisionedIops = "1" }), 400, "InvalidProvisionedIops.LimitExceed"},
		{"IOPS above the largest bound", with(kind("cloud_auto", "", 60000), func(r *ecs.CreateDiskRequest) { r.ProvisionedIops = "50001" }), 400, "InvalidProvisionedIops.LimitExceed"},
		{"IOPS on ESSD", func(r *ecs.CreateDiskRequest) { r.ProvisionedIops = "100" }, 400, "ProvisionedIopsForDiskCategoryUnsupported"},
		{"bursting on ESSD", func(r *ecs.CreateDiskRequest) { r.BurstingEnabled = "true" }, 400, "BurstingEnabledForDiskCategoryUnsupported"},
		{"bursting at 3 GiB", with(kind("cloud_auto", "", 3), func(r *ecs.CreateDiskRequest) { r.BurstingEnabled = "true" }), 400, "InvalidBurstingEnabled.DiskSizeTooSmall"},
		{"bursting and multi-attach", with(kind("cloud_auto", "", 20), func(r *ecs.CreateDiskRequest) { r.BurstingEnabled, r.MultiAttach = "true", "Enabled" }), 400, "BurstingEnabledForMultiAttachDiskUnsupported"},
		{"multi-attach on ssd", with(kind("cloud_ssd", "", 20), func(r *ecs.CreateDiskRequest) { r.MultiAttach = "Enabled" }), 403, "InvalidParameter.DiskCategoryAndMultiAttachNotMatch"},
		{"multi-attach that is neither", func(r *ecs.CreateDiskRequest) { r.MultiAttach = "true" }, 403, "InvalidParameter.MultiAttach"},
		{"a token of 65", func(r *ecs.CreateDiskRequest) { r.ClientToken = strings.Repeat("t", 65) }, 400, "InvalidParameter"},
		{"a token that is not ASCII", func(r *ecs.CreateDiskRequest) { r.ClientToken = "é" }, 400, "InvalidParameter"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t, func(c *ecssim.Config) {
				c.KMSKeys, c.ResourceGroups, c.StorageClusters = []string{"key-1"}, []string{"rg-1"}, []string{"dbsc-1"}
			})
			_, err := newClient(t, s).CreateDisk(newCreate(tt.change))
			wantCode(t, err, tt.status, tt.code)
			if made := s.State().DisksMade; made != 0 {
				t.Errorf("%d disks made, want none", made)
			}
		})
	}
}

func token(r *ecs.CreateDiskRequest) { r.ClientToken = "n:claim" }

func TestSameTokenAndParametersGiveTheSameDisk(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	first, second := create(t, c, token), create(t, c, token)
	if first != second || s.State().DisksMade != 1 {
		t.Errorf("disks %s and %s, %d made, want one", first, second, s.State().DisksMade)
	}
	if other := create(t, c, func(r *ecs.CreateDiskRequest) { r.ClientToken = "N:claim" }); other == first {
		t.Error("a token of another case gave the same disk")
	}
}

func TestTokenOutlivesItsDisk(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	id := create(t, c, token)
	if err := remove(c, id); err != nil {
		t.Fatal(err)
	}
	if again := create(t, c, token); again != id {
		t.Errorf("disk %s, want the deleted %s", again, id)
	}
	if len(s.Disks()) != 0 {
		t.Errorf("disks %v, want none", s.Disks())
	}
}

func TestTokenWithOtherParametersIsAMismatch(t *testing.T) {
	for name, change := range map[string]func(*ecs.CreateDiskRequest){
		"size":     kind("cloud_essd", "", 21),
		"category": kind("cloud_ssd", "", 20),
		"zone":     func(r *ecs.CreateDiskRequest) { r.ZoneId = zoneI },
		"a tag":    func(r *ecs.CreateDiskRequest) { r.Tag = tags(1) },
		"order of tags": func(r *ecs.CreateDiskRequest) {
			r.Tag = &[]ecs.CreateDiskTag{{Key: "b", Value: "2"}, {Key: "a", Value: "1"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, c := newServerAndClient(t, nil)
			first := token
			if name == "order of tags" {
				first = with(token, func(r *ecs.CreateDiskRequest) {
					r.Tag = &[]ecs.CreateDiskTag{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}}
				})
			}
			create(t, c, first)
			_, err := c.CreateDisk(newCreate(with(token, change)))
			wantCode(t, err, 400, "IdempotentParameterMismatch")
		})
	}
}

func TestRefusedCreateBindsTheTokenOnlyIfSet(t *testing.T) {
	for _, binds := range []bool{false, true} {
		t.Run(fmt.Sprint(binds), func(t *testing.T) {
			s := newServer(t, func(c *ecssim.Config) { c.BindFailedTokens = binds })
			if err := s.SetStock(zoneH, "cloud_ssd", 0); err != nil {
				t.Fatal(err)
			}
			c := newClient(t, s)
			_, err := c.CreateDisk(newCreate(with(token, kind("cloud_ssd", "", 20))))
			wantCode(t, err, 400, "InvalidDataDiskCategory.NotSupported")
			if !binds {
				create(t, c, with(token, kind("cloud_efficiency", "", 20)))
				return
			}
			_, err = c.CreateDisk(newCreate(with(token, kind("cloud_efficiency", "", 20))))
			wantCode(t, err, 400, "IdempotentParameterMismatch")
			if err := s.SetStock(zoneH, "cloud_ssd", 1); err != nil {
				t.Fatal(err)
			}
			_, err = c.CreateDisk(newCreate(with(token, kind("cloud_ssd", "", 20))))
			wantCode(t, err, 400, "InvalidDataDiskCategory.NotSupported")
			if err := s.Advance(24 * time.Hour); err != nil {
				t.Fatal(err)
			}
			create(t, c, with(token, kind("cloud_ssd", "", 20)))
		})
	}
}

func TestTokenIsForgottenAfterItsLife(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	first := create(t, c, token)
	if err := s.Advance(24*time.Hour - time.Second); err != nil {
		t.Fatal(err)
	}
	if again := create(t, c, token); again != first {
		t.Errorf("within its life: disk %s, want %s", again, first)
	}
	if err := s.Advance(time.Second + time.Minute); err != nil {
		t.Fatal(err)
	}
	if later := create(t, c, token); later == first {
		t.Error("after its life the token still gives the old disk")
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

func TestTokenInFlightIsLastTokenProcessing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(c *ecssim.Config) { c.Latency.API = map[string]time.Duration{"CreateDisk": time.Second} })
		first := make(chan string, 1)
		slow := newClient(t, s)
		go func() { first <- create(t, slow, token) }()
		time.Sleep(time.Second / 2)
		_, err := newClient(t, s).CreateDisk(newCreate(token)) // answered when the first one is long done
		wantCode(t, err, 403, "LastTokenProcessing")
		if again, id := create(t, newClient(t, s), token), <-first; again != id {
			t.Errorf("disks %s and %s, want one", again, id)
		}
	})
}

func TestConcurrentCreatesUnderOneTokenMakeOneDisk(t *testing.T) {
	s := newServer(t, nil)
	ids := make([]string, 16)
	var group sync.WaitGroup
	for i := range ids {
		c := newClient(t, s)
		group.Go(func() { ids[i] = create(t, c, token) })
	}
	group.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("disk %s, want %s", id, ids[0])
		}
	}
	if made := s.State().DisksMade; made != 1 {
		t.Errorf("%d disks made, want 1", made)
	}
}
