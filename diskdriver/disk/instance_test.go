package disk

import (
	"strings"
	"testing"
)

func TestADiskIsRefusedOnlyForWhatIsKnown(t *testing.T) {
	known := Instance{Type: "ecs.old.large", Zone: "cn-hangzhou-h", Takes: []Category{"cloud", "cloud_efficiency"}, Refuses: []Category{"cloud_auto", "cloud_essd"}}
	for name, test := range map[string]struct {
		instance Instance
		disk     Disk
		kind     Kind
		says     []string // empty: nothing is refused
	}{
		"nothing is known":           {Instance{}, Disk{Zone: "cn-hangzhou-h", Category: "cloud_essd"}, 0, nil},
		"taken":                      {known, Disk{Zone: "cn-hangzhou-h", Category: "cloud_efficiency"}, 0, nil},
		"another zone":               {known, Disk{Zone: "cn-hangzhou-i", Category: "cloud_efficiency"}, Invalid, []string{"cn-hangzhou-i", "cn-hangzhou-h"}},
		"the disk is regional":       {known, Disk{Category: "cloud_regional_disk_auto"}, 0, nil},
		"the zone is not known":      {Instance{Type: "ecs.old.large"}, Disk{Zone: "cn-hangzhou-i", Category: "cloud"}, 0, nil},
		"not for the type":           {known, Disk{Zone: "cn-hangzhou-h", Category: "cloud_essd"}, Blocked, []string{"ecs.old.large", "cloud_essd", "they take cloud, cloud_efficiency"}},
		"not on sale, to nobody":     {known, Disk{Zone: "cn-hangzhou-h", Category: "cloud_ssd"}, 0, nil},
		"what is taken isn't denied": {Instance{Takes: []Category{"cloud"}, Refuses: []Category{"cloud"}}, Disk{Category: "cloud"}, 0, nil},
	} {
		err := test.instance.Attachable(test.disk)
		if len(test.says) == 0 {
			if err != nil {
				t.Errorf("%s: %v, want no error", name, err)
			}
			continue
		}
		if err == nil || KindOf(err) != test.kind {
			t.Errorf("%s: %v, want kind %v", name, err, test.kind)
			continue
		}
		for _, word := range test.says {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q doesn't say %q", name, err, word)
			}
		}
	}
}
