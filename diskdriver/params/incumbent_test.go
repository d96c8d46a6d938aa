package params

import (
	"strings"
	"testing"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// TestEveryNameOfTheDriverBeforeTopodisk lists what the classes of that driver
// may hold, by name: each is taken, does nothing and says so, or is refused with
// the reason. None is unknown, and none is dropped in silence.
func TestEveryNameOfTheDriverBeforeTopodisk(t *testing.T) {
	const taken, idle, refused = "taken", "does nothing", "is not supported"
	type kind struct {
		parse func(map[string]string) ([]string, error)
		with  map[string]string // what the others need
		names map[string][2]string
	}
	ofClass := func(class map[string]string) ([]string, error) {
		p, err := Parse(class, nil, Refuse)
		return p.Warnings, err
	}
	ofSnapshots := func(parse func(map[string]string, Unknown) (SnapshotClass, error)) func(map[string]string) ([]string, error) {
		return func(class map[string]string) ([]string, error) {
			p, err := parse(class, Refuse)
			return p.Warnings, err
		}
	}
	for what, k := range map[string]kind{
		"StorageClass": {ofClass, map[string]string{"type": "cloud_essd,cloud_auto", "performanceLevel": "PL1", "encrypted": "true"}, map[string][2]string{
			"type":                                  {"cloud_auto,cloud_essd", taken},
			"performanceLevel":                      {"PL0,PL1", taken},
			"zoneId":                                {"cn-hangzhou-h", taken},
			"zoneid":                                {"cn-hangzhou-h", taken},
			"regionId":                              {"cn-hangzhou", taken},
			"fsType":                                {"xfs", taken},
			"csi.storage.k8s.io/fstype":             {"ext4", taken},
			"readOnly":                              {"true", idle},
			"encrypted":                             {"yes", taken},
			"kmsKeyId":                              {"key-1", taken},
			"alibabacloud.com/kms-key-id":           {"key-1", taken},
			"alibabacloud.com/createdisk-arn":       {"[]", refused},
			"multiAttach":                           {"enabled", taken},
			"resourceGroupId":                       {"rg-1", taken},
			"storageClusterId":                      {"dbsc-1", taken},
			"diskTags":                              {"a:b,c:d", taken},
			"diskTags/team":                         {"web", taken},
			"provisionedIops":                       {"100", taken},
			"burstingEnabled":                       {"1", taken},
			"volumeSizeAutoAvailable":               {"true", taken},
			"volumeDeleteSnapshotRetentionDays":     {"7", taken},
			"volumeExpandAutoSnapshot":              {"forced", idle},
			"restrictToHpnZone":                     {"never", idle},
			"mkfsOptions":                           {"-m 1", taken},
			"sysConfig":                             {"queue/x=y", refused},
			"omitfsck":                              {"true", taken},
			"dataCacheSize":                         {"20Gi", refused},
			"dataCacheMode":                         {"writeback", refused},
			"readIOPS":                              {"100", refused},
			"writeIOPS":                             {"100", refused},
			"readBPS":                               {"10M", refused},
			"writeBPS":                              {"10M", refused},
			"csi.alibabacloud.com/disk-snapshot-id": {"s-1", taken},
			"volume.alibabacloud.com/disk-id":       {"d-1", refused},
			"volume.kubernetes.io/selected-node":    {"node-1", idle},
			"csi.storage.k8s.io/pvc/name":           {"data", taken},
			"csi.storage.k8s.io/pvc/namespace":      {"shop", taken},
			"csi.storage.k8s.io/pv/name":            {"pv-1", taken},
		}},
		"VolumeSnapshotClass": {ofSnapshots(ParseSnapshotClass), nil, map[string][2]string{
			"snapshotType":                                {"InstantAccess", idle},
			"instantAccessRetentionDays":                  {"1", idle},
			"retentionDays":                               {"7", taken},
			"resourceGroupId":                             {"rg-1", taken},
			"snapshotTags/team":                           {"web", taken},
			"csi.storage.k8s.io/volumesnapshot/name":      {"daily", taken},
			"csi.storage.k8s.io/volumesnapshot/namespace": {"shop", taken},
		}},
		"VolumeGroupSnapshotClass": {ofSnapshots(ParseGroupClass), nil, map[string][2]string{
			"resourceGroupId":   {"rg-1", taken},
			"snapshotTags/team": {"web", taken},
			"retentionDays":     {"7", refused},
		}},
		"VolumeAttributesClass": {func(mutable map[string]string) ([]string, error) {
			_, err := ParseChange(mutable)
			return nil, err
		}, nil, map[string][2]string{
			"type":                        {"cloud_auto", taken},
			"performanceLevel":            {"PL2", taken},
			"provisionedIops":             {"100", taken},
			"burstingEnabled":             {"T", taken},
			"diskTags/team":               {"web", taken},
			"-diskTags/team":              {"", taken},
			"csi.storage.k8s.io/pvc/name": {"data", taken},
		}},
	} {
		for name, value := range k.names {
			class := map[string]string{}
			for n, v := range k.with {
				class[n] = v
			}
			class[name] = value[0]
			warnings, err := k.parse(class)
			said := strings.Join(warnings, "\n")
			switch value[1] {
			case taken:
				if err != nil || strings.Contains(said, name) {
					t.Errorf("%s %s: %v %s", what, name, err, said)
				}
			case idle:
				if err != nil || !strings.Contains(said, "parameter "+name+" does nothing: ") {
					t.Errorf("%s %s: %v; the log says %q", what, name, err, said)
				}
			case refused:
				if disk.KindOf(err) != disk.Invalid || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "is not supported: ") {
					t.Errorf("%s %s: %v", what, name, err)
				}
			}
		}
	}
}
