package params

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

func TestPlanOfAChangeIsWhatIsLeftToDo(t *testing.T) {
	iops := func(n int64) *int64 { return &n }
	ssd := disk.Disk{ID: "d-1", Category: "cloud_ssd", Size: 20, Tags: disk.Tags{"team": "web"}}
	essd := disk.Disk{ID: "d-1", Category: "cloud_essd", PerformanceLevel: disk.PL1, Size: 500}
	auto := disk.Disk{ID: "d-1", Category: "cloud_auto", Size: 20, ProvisionedIOPS: 100, Bursting: true}
	shared := disk.Disk{ID: "d-1", Category: "cloud_essd", PerformanceLevel: disk.PL1, Size: 500, MultiAttach: true}
	full := disk.Disk{ID: "d-1", Category: "cloud_ssd", Size: 20, Tags: disk.Tags{}}
	for c := 'a'; len(full.Tags) < disk.MostTags; c++ {
		full.Tags[string(c)] = "x"
	}
	owned := disk.Disk{ID: "d-1", Category: "cloud_ssd", Size: 20, Tags: disk.Tags{"acs:rm:rgId": "rg-1", "aliyun.x": "y"}}
	for c := 'a'; len(owned.Tags) < disk.MostTags+1; c++ {
		owned.Tags[string(c)] = "x"
	}
	for _, row := range []struct {
		name   string
		params map[string]string
		before disk.Disk
		want   disk.Steps
		text   string // of the Invalid error
	}{
		{name: "it is so already", params: map[string]string{"type": "cloud_ssd", "diskTags/team": "web", "-diskTags/stage": "", "provisionedIops": "0", "burstingEnabled": "false"}, before: ssd},
		{name: "another type", params: map[string]string{"type": "cloud_auto"}, before: ssd, want: disk.Steps{Move: disk.Move{Category: "cloud_auto"}}},
		{name: "a type with levels gets one", params: map[string]string{"type": "cloud_essd"}, before: ssd, want: disk.Steps{Move: disk.Move{Category: "cloud_essd", Level: disk.PL1}}},
		{name: "a level alone", params: map[string]string{"performanceLevel": "PL2"}, before: essd, want: disk.Steps{Move: disk.Move{Level: disk.PL2}}},
		{name: "IOPS alone", params: map[string]string{"provisionedIops": "200"}, before: auto, want: disk.Steps{Move: disk.Move{IOPS: iops(200)}}},
		{name: "no IOPS any more", params: map[string]string{"provisionedIops": "0"}, before: auto, want: disk.Steps{Move: disk.Move{IOPS: iops(0)}}},
		{name: "type, IOPS and bursting", params: map[string]string{"type": "cloud_auto", "provisionedIops": "0", "burstingEnabled": "true"}, before: ssd, want: disk.Steps{Move: disk.Move{Category: "cloud_auto", IOPS: iops(0)}, StartBurst: true}},
		{name: "a type that doesn't burst", params: map[string]string{"type": "cloud_essd"}, before: auto, want: disk.Steps{StopBurst: true, Move: disk.Move{Category: "cloud_essd", Level: disk.PL1}}},
		{name: "tags", params: map[string]string{"diskTags/team": "db", "diskTags/stage": "test", "-diskTags/team2": ""}, before: ssd, want: disk.Steps{Tag: disk.Tags{"team": "db", "stage": "test"}}},
		{name: "a tag goes", params: map[string]string{"-diskTags/team": ""}, before: ssd, want: disk.Steps{Untag: []string{"team"}}},
		{name: "one goes and one comes", params: map[string]string{"-diskTags/a": "", "diskTags/new": "x"}, before: full, want: disk.Steps{Untag: []string{"a"}, Tag: disk.Tags{"new": "x"}}},
		{name: "tags of ECS's own take no room", params: map[string]string{"diskTags/new": "x"}, before: owned, want: disk.Steps{Tag: disk.Tags{"new": "x"}}},

		{name: "too many tags", params: map[string]string{"diskTags/new": "x"}, before: full, text: "would have 21 tags; at most 20"},
		{name: "a level of a type without", params: map[string]string{"performanceLevel": "PL1"}, before: ssd, text: "cloud_ssd, which has no levels"},
		{name: "IOPS of a type without", params: map[string]string{"provisionedIops": "5"}, before: ssd, text: "5 is not allowed for cloud_ssd"},
		{name: "bursting of a type without", params: map[string]string{"burstingEnabled": "true"}, before: ssd, text: "cloud_ssd, which doesn't burst"},
		{name: "too small to burst", params: map[string]string{"burstingEnabled": "true"}, before: disk.Disk{Category: "cloud_auto", Size: 3}, text: "a disk of 3 GiB; it takes 4"},
		{name: "too small for the level", params: map[string]string{"performanceLevel": "PL3"}, before: essd, text: "has 500 GiB, and cloud_essd PL3 takes 1261"},
		{name: "shared", params: map[string]string{"performanceLevel": "PL2"}, before: shared, text: "a disk for several nodes keeps its type"},
		{name: "zonal to regional", params: map[string]string{"type": "cloud_regional_disk_auto"}, before: essd, text: "can't become cloud_regional_disk_auto"},
		{name: "comes and goes", params: map[string]string{"diskTags/a": "x", "-diskTags/a": ""}, before: ssd, text: "can't both go and stay"},
		{name: "the driver's own tag goes", params: map[string]string{"-diskTags/" + disk.CloneTag: ""}, before: ssd, text: "the driver itself needs"},
		{name: "the driver's own tag comes", params: map[string]string{"diskTags/" + disk.VolumeNameTag: "x"}, before: ssd, text: "the driver itself sets"},
		{name: "a list of types", params: map[string]string{"type": "cloud_ssd,cloud_auto"}, before: ssd, text: "allowed is one of"},
		{name: "unknown", params: map[string]string{"size": "1"}, before: ssd, text: "mutable parameter size"},
	} {
		t.Run(row.name, func(t *testing.T) {
			change, err := ParseChange(row.params)
			var got disk.Steps
			if err == nil {
				got, err = change.Plan(row.before)
			}
			if row.text != "" {
				if err == nil || disk.KindOf(err) != disk.Invalid || !strings.Contains(err.Error(), row.text) {
					t.Errorf("got %v, want an Invalid error that holds %q", err, row.text)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
			if got.Done() != cmp.Equal(got, disk.Steps{}) {
				t.Errorf("Done is %t of %+v", got.Done(), got)
			}
			if after := changed(row.before, got); !mustPlan(t, change, after).Done() {
				t.Errorf("after all steps there is something left: %+v", mustPlan(t, change, after))
			}
		})
	}
}

// changed is the disk after the steps.
func changed(d disk.Disk, s disk.Steps) disk.Disk {
	tags := disk.Tags{}
	for name, value := range d.Tags {
		tags[name] = value
	}
	for _, name := range s.Untag {
		delete(tags, name)
	}
	for name, value := range s.Tag {
		tags[name] = value
	}
	d.Tags = tags
	if s.Move.Category != "" {
		d.Category, d.PerformanceLevel, d.ProvisionedIOPS = s.Move.Category, "", 0
	}
	if s.Move.Level != "" {
		d.PerformanceLevel = s.Move.Level
	}
	if s.Move.IOPS != nil {
		d.ProvisionedIOPS = *s.Move.IOPS
	}
	d.Bursting = d.Bursting && !s.StopBurst || s.StartBurst
	return d
}

func mustPlan(t *testing.T, c disk.Change, d disk.Disk) disk.Steps {
	t.Helper()
	steps, err := c.Plan(d)
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

func FuzzAChangeEndsWithItsSteps(f *testing.F) {
	f.Add("type", "cloud_auto", "provisionedIops", "100", uint8(1))
	f.Add("performanceLevel", "PL2", "burstingEnabled", "false", uint8(0))
	f.Add("diskTags/a", "b", "-diskTags/c", "", uint8(2))
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string, which uint8) {
		change, err := ParseChange(map[string]string{k1: v1, k2: v2})
		if err != nil {
			if disk.KindOf(err) != disk.Invalid {
				t.Errorf("Kind %v of %v", disk.KindOf(err), err)
			}
			return
		}
		d := []disk.Disk{
			{Category: "cloud_essd", PerformanceLevel: disk.PL1, Size: 2000},
			{Category: "cloud_auto", Size: 2000, Bursting: true, ProvisionedIOPS: 50},
			{Category: "cloud_ssd", Size: 40, Tags: disk.Tags{"c": "d"}},
		}[which%3]
		steps, err := change.Plan(d)
		if err != nil {
			if disk.KindOf(err) != disk.Invalid {
				t.Errorf("Kind %v of %v", disk.KindOf(err), err)
			}
			return
		}
		if left := mustPlan(t, change, changed(d, steps)); !left.Done() {
			t.Errorf("after %+v there is %+v left", steps, left)
		}
	})
}

func TestSnapshotClassesAreReadStrictly(t *testing.T) {
	for _, row := range []struct {
		class map[string]string
		group bool
		text  string
	}{
		{class: map[string]string{"retentionDays": "65536", "resourceGroupId": "rg", "snapshotTags/a": "b", "snapshotType": "x", "csi.storage.k8s.io/volumesnapshotcontent/name": "c"}},
		{class: map[string]string{"resourceGroupId": "rg", "snapshotTags/a": "b"}, group: true},
		{class: map[string]string{"retentionDays": "65537"}, text: "from 1 to 65536"},
		{class: map[string]string{"retentionDays": "-1"}, text: "from 1 to 65536"},
		{class: map[string]string{"retentionDays": "a week"}, text: "from 1 to 65536"},
		{class: map[string]string{"retentionDays": "1"}, group: true, text: "is not supported"},
		{class: map[string]string{"snapshotTags/" + disk.SnapshotNameTag: "x"}, text: "the driver itself sets"},
		{class: map[string]string{"snapshotTags/" + disk.GroupNameTag: "x"}, group: true, text: "the driver itself sets"},
		{class: map[string]string{"snapshotTags": "a:b"}, text: "is unknown"},
	} {
		parse := ParseSnapshotClass
		if row.group {
			parse = ParseGroupClass
		}
		_, err := parse(row.class, Refuse)
		if row.text == "" && err != nil || row.text != "" && (err == nil || disk.KindOf(err) != disk.Invalid || !strings.Contains(err.Error(), row.text)) {
			t.Errorf("%v: got %v, want %q", row.class, err, row.text)
		}
	}
}

func TestASnapshotIsFoundByMarksThatNoOtherHas(t *testing.T) {
	params := SnapshotClass{Tags: disk.Tags{"team": "web"}, Object: strings.Repeat("ö", 200)}
	user := params.Snapshot("x", "c", "d-1")
	group := params.Group("x", "c", []disk.ID{"d-1"})
	clone := disk.Temporary("x", "c", "d-1")
	all := []struct{ marks, tags disk.Tags }{{user.Marks, user.Tags}, {group.Marks, group.Tags}, {clone.Marks, clone.Tags}}
	for i, a := range all {
		for j, b := range all {
			if b.tags.Have(a.marks) != (i == j) {
				t.Errorf("marks %v, tags %v", a.marks, b.tags)
			}
		}
		for key, value := range a.tags {
			if len([]rune(value)) > 128 {
				t.Errorf("tag %s has %d characters", key, len([]rune(value)))
			}
		}
	}
	if !clone.Tags.Have(disk.TemporaryTags("c")) || user.Tags.Have(disk.TemporaryTags("c")) {
		t.Error("the sweep finds others than the temporary ones")
	}
}
