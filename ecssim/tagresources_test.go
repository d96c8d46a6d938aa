package ecssim_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
)

func tagRequest(kind string, ids []string, tags ...ecs.TagResourcesTag) *ecs.TagResourcesRequest {
	r := ecs.CreateTagResourcesRequest()
	r.ResourceType, r.ResourceId, r.Tag = kind, &ids, &tags
	return r
}

func tagDisk(t *testing.T, c *ecs.Client, id, key, value string) {
	t.Helper()
	if _, err := c.TagResources(tagRequest("disk", []string{id}, ecs.TagResourcesTag{Key: key, Value: value})); err != nil {
		t.Fatal(err)
	}
}

func listTags(t *testing.T, c *ecs.Client, change func(*ecs.ListTagResourcesRequest)) *ecs.ListTagResourcesResponse {
	t.Helper()
	r := ecs.CreateListTagResourcesRequest()
	r.ResourceType = "disk"
	change(r)
	reply, err := c.ListTagResources(r)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func TestTagsComeAndGo(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	a, b := create(t, c, nil), create(t, c, nil)
	if _, err := c.TagResources(tagRequest("disk", []string{a, b}, ecs.TagResourcesTag{Key: "app", Value: "db"}, ecs.TagResourcesTag{Key: "env"})); err != nil {
		t.Fatal(err)
	}
	tagDisk(t, c, a, "app", "web")
	want := func(id string, want map[string]string) {
		t.Helper()
		for _, d := range s.Disks() {
			if d.ID == id && !maps.Equal(d.Tags, want) {
				t.Errorf("tags of %s: %v, want %v", id, d.Tags, want)
			}
		}
	}
	want(a, map[string]string{"app": "web", "env": ""})
	want(b, map[string]string{"app": "db", "env": ""})

	untag := ecs.CreateUntagResourcesRequest()
	untag.ResourceType, untag.ResourceId, untag.TagKey = "disk", &[]string{a}, &[]string{"app", "never"}
	if _, err := c.UntagResources(untag); err != nil {
		t.Fatal(err)
	}
	want(a, map[string]string{"env": ""})
	untag = ecs.CreateUntagResourcesRequest()
	untag.ResourceType, untag.ResourceId, untag.All = "disk", &[]string{b}, "true"
	if _, err := c.UntagResources(untag); err != nil {
		t.Fatal(err)
	}
	want(b, map[string]string{})
}

func TestTagsOfInstances(t *testing.T) {
	c := newClient(t, newServer(t, nil))
	if _, err := c.TagResources(tagRequest("instance", []string{"i-2"}, ecs.TagResourcesTag{Key: "app", Value: "db"})); err != nil {
		t.Fatal(err)
	}
	r := ecs.CreateDescribeInstancesRequest()
	r.Tag = &[]ecs.DescribeInstancesTag{{Key: "app", Value: "db"}}
	got, err := c.DescribeInstances(r)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Instances.Instance) != 1 || got.Instances.Instance[0].InstanceId != "i-2" {
		t.Errorf("instances %+v, want i-2", got.Instances.Instance)
	}
}

func TestTagResourcesRefusesAllOrNothing(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	full := create(t, c, func(r *ecs.CreateDiskRequest) { r.Tag = tags(20) })
	bare := create(t, c, nil)
	one := ecs.TagResourcesTag{Key: "one", Value: "1"}
	var many []ecs.TagResourcesTag
	for i := range 21 {
		many = append(many, ecs.TagResourcesTag{Key: fmt.Sprint("k", i), Value: "v"})
	}
	for _, tt := range []struct {
		name   string
		r      *ecs.TagResourcesRequest
		status int
		code   string
	}{
		{"51 resources", tagRequest("disk", slices.Repeat([]string{bare}, 51), one), 400, "NumberExceed.ResourceIds"},
		{"21 tags", tagRequest("disk", []string{bare}, many...), 400, "NumberExceed.Tags"},
		{"more than a resource carries", tagRequest("disk", []string{bare, full}, one), 403, "QuotaExceed.Tags"},
		{"an unknown resource", tagRequest("disk", []string{bare, "d-none"}, one), 404, "InvalidResourceId.NotFound"},
		{"an unknown type", tagRequest("house", []string{bare}, one), 404, "InvalidResourceType.NotFound"},
		{"no type", tagRequest("", []string{bare}, one), 404, "MissingParameter.ResourceType"},
		{"no resource", tagRequest("disk", nil, one), 400, "MissingParameter"},
		{"no tag", tagRequest("disk", []string{bare}), 400, "MissingParameter"},
		{"a reserved key", tagRequest("disk", []string{bare}, ecs.TagResourcesTag{Key: "acs:x", Value: "1"}), 400, "InvalidTagKey.Malformed"},
		{"a link", tagRequest("disk", []string{bare}, ecs.TagResourcesTag{Key: "x", Value: "see https://a"}), 400, "InvalidTagValue.Malformed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := c.TagResources(tt.r)
			wantCode(t, err, tt.status, tt.code)
			if disks := s.Disks(); len(disks[1].Tags) != 0 {
				t.Errorf("tags %v put all the same", disks[1].Tags)
			}
		})
	}
}

func TestListTagResourcesFindsByIDAndByTag(t *testing.T) {
	c := newClient(t, newServer(t, nil))
	a := create(t, c, func(r *ecs.CreateDiskRequest) {
		r.Tag = &[]ecs.CreateDiskTag{{Key: "app", Value: "db"}, {Key: "n", Value: "1"}}
	})
	create(t, c, func(r *ecs.CreateDiskRequest) { r.Tag = &[]ecs.CreateDiskTag{{Key: "app", Value: "web"}} })
	for name, change := range map[string]func(*ecs.ListTagResourcesRequest){
		"by ID":  func(r *ecs.ListTagResourcesRequest) { r.ResourceId = &[]string{a, "d-none"} },
		"by tag": func(r *ecs.ListTagResourcesRequest) { r.Tag = &[]ecs.ListTagResourcesTag{{Key: "app", Value: "db"}} },
	} {
		got := listTags(t, c, change).TagResources.TagResource
		if len(got) != 2 || got[0].ResourceId != a || got[0].TagKey != "app" || got[0].TagValue != "db" || got[0].ResourceType != "disk" || got[1].TagKey != "n" {
			t.Errorf("%s: %+v, want the two tags of %s", name, got, a)
		}
	}
	r := ecs.CreateListTagResourcesRequest()
	r.ResourceType = "disk"
	_, err := c.ListTagResources(r)
	wantCode(t, err, 400, "MissingParameter")
}

func TestListTagResourcesPagesByFifty(t *testing.T) {
	c := newClient(t, newServer(t, nil))
	createMany(t, c, 6, func(r *ecs.CreateDiskRequest) { r.Tag = tags(20) })
	rows, next, pages := 0, "", 0
	for {
		got := listTags(t, c, func(r *ecs.ListTagResourcesRequest) {
			r.Tag, r.NextToken = &[]ecs.ListTagResourcesTag{{Key: "key-0"}}, next
		})
		rows, pages = rows+len(got.TagResources.TagResource), pages+1
		if next = got.NextToken; next == "" {
			break
		}
	}
	if rows != 120 || pages != 3 {
		t.Errorf("%d rows in %d pages, want 120 in 3", rows, pages)
	}
}
