package ecssim_test

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

func TestOlderCallsForTags(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	a, b := create(t, c, nil), create(t, c, nil)
	add := ecs.CreateAddTagsRequest()
	add.ResourceType, add.ResourceId = "disk", a
	add.Tag = &[]ecs.AddTagsTag{{Key: "app", Value: "db"}, {Key: "env", Value: "test"}, {Key: "empty"}}
	if _, err := c.AddTags(add); err != nil {
		t.Fatal(err)
	}
	tagDisk(t, c, b, "app", "db")
	remove := ecs.CreateRemoveTagsRequest()
	remove.ResourceType, remove.ResourceId = "disk", a
	remove.Tag = &[]ecs.RemoveTagsTag{{Key: "app", Value: "other"}, {Key: "env"}, {Key: "never"}}
	if _, err := c.RemoveTags(remove); err != nil {
		t.Fatal(err)
	}
	for _, d := range s.Disks() {
		if want := map[string]string{"app": "db", "empty": ""}; d.ID == a && !maps.Equal(d.Tags, want) {
			t.Errorf("tags %v, want %v", d.Tags, want)
		}
	}
	for _, call := range s.Calls() {
		if call.Action == "AddTags" && call.Disk != a {
			t.Errorf("the ledger says that AddTags was of disk %q, want %s", call.Disk, a)
		}
	}

	list := ecs.CreateDescribeTagsRequest()
	reply, err := c.DescribeTags(list)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, tag := range reply.Tags.Tag {
		got = append(got, tag.TagKey+"="+tag.TagValue)
	}
	if !slices.Equal(got, []string{"app=db", "empty="}) || reply.Tags.Tag[0].ResourceTypeCount.Disk != 2 || reply.Tags.Tag[1].ResourceTypeCount.Disk != 1 || reply.PageSize != 50 {
		t.Errorf("tags %v of %+v", got, reply.Tags.Tag)
	}
	list = ecs.CreateDescribeTagsRequest()
	list.ResourceType, list.ResourceId, list.PageSize = "disk", b, requests.NewInteger(1)
	if reply, err = c.DescribeTags(list); err != nil || reply.TotalCount != 1 || reply.Tags.Tag[0].TagKey != "app" {
		t.Errorf("tags of one disk: %v %v", reply, err)
	}
	list.QueryParams["MaxResults"] = "10" // which it doesn't know
	if reply, err = c.DescribeTags(list); err != nil || reply.TotalCount != 1 || len(reply.Tags.Tag) != 1 {
		t.Errorf("tags with MaxResults: %v %v", reply, err)
	}
	add = ecs.CreateAddTagsRequest()
	add.ResourceType, add.ResourceId, add.Tag = "disk", "d-none", &[]ecs.AddTagsTag{{Key: "a"}}
	_, err = c.AddTags(add)
	wantCode(t, err, 404, "InvalidResourceId.NotFound")
}

func TestTagFiltersFindByKeyValuesAndPattern(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newServerAndClient(t, func(c *ecssim.Config) { c.Latency.TagsVisible = 2 * time.Second })
		byName := map[string]string{}
		for name, app := range map[string]string{"web": "web-1", "db": "db-1", "none": ""} {
			id := create(t, c, nil)
			byName[id] = name
			if app != "" {
				tagDisk(t, c, id, "app", app)
			}
		}
		find := func(filters ...ecs.ListTagResourcesTagFilter) []string {
			t.Helper()
			var names []string
			for _, row := range listTags(t, c, func(r *ecs.ListTagResourcesRequest) { r.TagFilter = &filters }).TagResources.TagResource {
				names = append(names, byName[row.ResourceId])
			}
			slices.Sort(names)
			return names
		}
		filter := func(key string, values ...string) ecs.ListTagResourcesTagFilter {
			return ecs.ListTagResourcesTagFilter{TagKey: key, TagValues: &values}
		}
		if got := find(filter("app")); len(got) != 0 {
			t.Errorf("before the lag is over: %v", got)
		}
		time.Sleep(2 * time.Second)
		for _, tt := range []struct {
			filter ecs.ListTagResourcesTagFilter
			want   []string
		}{
			{filter("app"), []string{"db", "web"}},
			{filter("app", "db-1"), []string{"db"}},
			{filter("app", "db-1", "web-1"), []string{"db", "web"}},
			{filter("app", "w*1"), []string{"web"}},
			{filter("app", "*-1"), []string{"db", "web"}},
			{filter("app", "*b*"), []string{"db", "web"}},
			{filter("app", "db"), nil},
			{filter("other", "*"), nil},
		} {
			if got := find(tt.filter); !slices.Equal(got, tt.want) {
				t.Errorf("%s %v finds %v, want %v", tt.filter.TagKey, *tt.filter.TagValues, got, tt.want)
			}
		}
		if got := find(filter("app"), filter("app", "web*")); !slices.Equal(got, []string{"web"}) {
			t.Errorf("two filters find %v, want web", got)
		}
		r := ecs.CreateListTagResourcesRequest()
		r.ResourceType, r.TagFilter = "disk", &[]ecs.ListTagResourcesTagFilter{{TagValues: &[]string{"a"}}}
		_, err := c.ListTagResources(r)
		wantCode(t, err, 400, "InvalidTagKey.Malformed")
	})
}
