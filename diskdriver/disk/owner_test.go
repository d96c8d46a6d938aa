package disk

import (
	"fmt"
	"strings"
	"testing"
)

// TestUsersHaveTheirTags: a disk or snapshot with every tag of the driver has room for those that users are promised, and a disk for one node
// that reads it besides.
func TestUsersHaveTheirTags(t *testing.T) {
	user := Tags{}
	for n := range MostUserTags {
		user[fmt.Sprint("user-", n)] = "x"
	}
	made := VolumeTags(user, "disk-1", "c1", "claim", "namespace").And(Tags{ArchiveTag: ArchiveForever, ReadOnlyTag("i-1"): "true"})
	object := Tags{SnapshotObjectTag: "snapshot", SnapshotNamespaceTag: "namespace"}
	d := Disk{ID: "d-1", Released: "2026-01-02T03:04:05Z", Tags: made.And(Tags{HistoryTag: string(HistoryNew)})}
	archive, _ := d.Archive("c1")
	for name, tags := range map[string]Tags{
		"a disk that was made empty": d.Tags,
		"a copy":                     made.And(Tags{CloneTag: "d-0"}),
		"a snapshot":                 SnapshotTags(user, Tags{ClusterTag: "c1", SnapshotNameTag: "snapshot-1"}).And(object),
		"a group":                    SnapshotTags(user, Tags{ClusterTag: "c1", GroupNameTag: "group-1"}).And(object),
		"a temporary snapshot":       Temporary("disk-1", "c1", "d-0").Tags.And(user),
		"an archive":                 archive.Tags.And(user),
	} {
		if n := tags.counted(); n > MostTags {
			t.Errorf("%s has %d tags; ECS allows %d: %v", name, n, MostTags, tags)
		}
		if tags[OwnerTag] != "c1" {
			t.Errorf("%s has tags %v, want %s", name, tags, OwnerTag)
		}
		for key := range tags {
			if !IsDriverTag(key) && !strings.HasPrefix(key, "user-") {
				t.Errorf("%s has %s, which users could set, too", name, key)
			}
		}
	}
}

// TestTagCommandsAreWordsOfAShell: an ID or a cluster can't end the command.
func TestTagCommandsAreWordsOfAShell(t *testing.T) {
	got := TagCommands("cn-hangzhou", "disk", "c1; rm -rf '/'", "d-1", "$(x)")[0].String()
	want := `aliyun ecs TagResources --RegionId cn-hangzhou --ResourceType disk --ResourceId.1 '$(x)' --ResourceId.2 d-1 ` +
		`--Tag.1.Key topodisk.io/cluster --Tag.1.Value 'c1; rm -rf '\''/'\'''`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
