package ecssim_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"testing"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

type readChange = func(*ecs.DescribeDisksRequest)

// idList is the JSON array that DiskIds takes.
func idList(ids ...string) string {
	text, err := json.Marshal(ids)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// createMany makes n disks and returns their IDs, the oldest first.
func createMany(t *testing.T, c *ecs.Client, n int, change func(*ecs.CreateDiskRequest)) []string {
	t.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = create(t, c, change)
	}
	return ids
}

func shownIDs(r *ecs.DescribeDisksResponse) []string {
	var ids []string
	for _, d := range r.Disks.Disk {
		ids = append(ids, d.DiskId)
	}
	return ids
}

func TestAHundredIDsWithoutPageSizeShowTenDisks(t *testing.T) {
	c := newClient(t, newServer(t, nil))
	ids := createMany(t, c, 100, nil)
	byIDs := func(r *ecs.DescribeDisksRequest) { r.DiskIds = idList(ids...) }
	if got := describe(t, c, byIDs); len(got.Disks.Disk) != 10 || got.TotalCount != 100 || got.PageSize != 10 || got.PageNumber != 1 {
		t.Errorf("%d disks of %d, page %d of size %d; want 10 of 100, page 1 of size 10", len(got.Disks.Disk), got.TotalCount, got.PageNumber, got.PageSize)
	}
	got := describe(t, c, func(r *ecs.DescribeDisksRequest) { byIDs(r); r.PageSize = "100" })
	if len(got.Disks.Disk) != 100 {
		t.Errorf("%d disks with PageSize 100, want 100", len(got.Disks.Disk))
	}
}

func TestDiskIDsAreLimitedAndParsed(t *testing.T) {
	c := newClient(t, newServer(t, nil))
	id := create(t, c, nil)
	many := make([]string, 101)
	for i := range many {
		many[i] = fmt.Sprintf("d-%d", i)
	}
	for _, tt := range []struct {
		name, ids string
		status    int
		code      string
		want      []string
	}{
		{"101 IDs", idList(many...), 403, "InvalidDiskIds.Malformed", nil},
		{"100 IDs", idList(many[:100]...), 0, "", nil},
		{"a comma list", "d-1,d-2", 400, "InvalidParameter.DiskIds", nil},
		{"numbers", "[1]", 400, "InvalidParameter.DiskIds", nil},
		{"null", "null", 400, "InvalidParameter.DiskIds", nil},
		{"an empty list", "[]", 0, "", nil},
		{"unknown IDs beside a known one", idList("d-none", id), 0, "", []string{id}},
		{"one ID twice", idList(id, id), 0, "", []string{id}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := ecs.CreateDescribeDisksRequest()
			r.DiskIds = tt.ids
			got, err := c.DescribeDisks(r)
			if tt.code != "" {
				wantCode(t, err, tt.status, tt.code)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(shownIDs(got), tt.want) {
				t.Errorf("disks %v, want %v", shownIDs(got), tt.want)
			}
		})
	}
}

func TestMaxResultsIsRaisedToTenAndCutToFiveHundred(t *testing.T) {
	c := newClient(t, newServer(t, nil))
	createMany(t, c, 501, nil)
	for ask, want := range map[int]int{5: 10, 10: 10, 11: 11, 500: 500, 900: 500} {
		got := describe(t, c, func(r *ecs.DescribeDisksRequest) {
			r.MaxResults = requests.NewInteger(ask)
			r.PageSize, r.PageNumber = "1", "7" // overridden
		})
		if len(got.Disks.Disk) != want || got.NextToken == "" {
			t.Errorf("MaxResults %d shows %d disks, next %q; want %d and more to come", ask, len(got.Disks.Disk), got.NextToken, want)
		}
	}
}

func TestNextTokenListsEveryLastingDiskOnce(t *testing.T) {
	c := newClient(t, newServer(t, nil))
	ids := createMany(t, c, 25, nil)
	var seen []string
	next := ""
	for page := 0; ; page++ {
		got := describe(t, c, func(r *ecs.DescribeDisksRequest) { r.MaxResults, r.NextToken = "10", next })
		seen = append(seen, shownIDs(got)...)
		if next = got.NextToken; next == "" {
			break
		}
		create(t, c, nil)
		if err := remove(c, seen[len(seen)-1]); err != nil {
			t.Fatal(err)
		}
	}
	slices.Reverse(seen)
	if !slices.Equal(seen, ids) {
		t.Errorf("saw %d disks %v, want the 25 of the start, newest first", len(seen), seen)
	}
}

func TestPageNumbersCutTheList(t *testing.T) {
	c := newClient(t, newServer(t, nil))
	createMany(t, c, 23, nil)
	for page, want := range map[int]int{1: 10, 3: 3, 4: 0} {
		got := describe(t, c, func(r *ecs.DescribeDisksRequest) { r.PageNumber = requests.NewInteger(page) })
		if len(got.Disks.Disk) != want || got.TotalCount != 23 {
			t.Errorf("page %d shows %d of %d, want %d of 23", page, len(got.Disks.Disk), got.TotalCount, want)
		}
	}
}

func TestDescribeDisksRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change readChange
		status int
		code   string
	}{
		{"page 0", func(r *ecs.DescribeDisksRequest) { r.PageNumber = "0" }, 400, "InvalidParameter"},
		{"a page of 101", func(r *ecs.DescribeDisksRequest) { r.PageSize = "101" }, 400, "InvalidParameter"},
		{"a page size that is no number", func(r *ecs.DescribeDisksRequest) { r.PageSize = "ten" }, 400, "InvalidParameter"},
		{"a token of its own making", func(r *ecs.DescribeDisksRequest) { r.NextToken = "AAAA" }, 400, "InvalidParameter"},
		{"an unknown zone", func(r *ecs.DescribeDisksRequest) { r.ZoneId = "cn-hangzhou-z" }, 400, "InvalidZoneId.NotFound"},
		{"an unknown status", func(r *ecs.DescribeDisksRequest) { r.Status = "In_Use" }, 400, "InvalidStatus.ValueNotSupported"},
		{"an unknown category", func(r *ecs.DescribeDisksRequest) { r.Category = "cloud_fast" }, 400, "InvalidCategory.ValueNotSupported"},
		{"an unknown type", func(r *ecs.DescribeDisksRequest) { r.DiskType = "boot" }, 400, "InvalidDiskType.ValueNotSupported"},
		{"a value without a key", func(r *ecs.DescribeDisksRequest) { r.Tag = &[]ecs.DescribeDisksTag{{Value: "v"}} }, 400, "InvalidTagKey.Malformed"},
		{"multi-attach that is neither", func(r *ecs.DescribeDisksRequest) { r.MultiAttach = "yes" }, 403, "InvalidParameter.MultiAttach"},
		{"an unknown charge type", func(r *ecs.DescribeDisksRequest) { r.DiskChargeType = "Free" }, 404, "InvalidDiskChargeType.NotFound"},
		{"an unknown filter", func(r *ecs.DescribeDisksRequest) { r.Filter1Key, r.Filter1Value = "Size", "1" }, 404, "InvalidFilterKey.NotFound"},
		{"a filter that is no time", func(r *ecs.DescribeDisksRequest) { r.Filter1Key, r.Filter1Value = "CreationStartTime", "today" }, 404, "InvalidFilterValue"},
		{"a dry run", func(r *ecs.DescribeDisksRequest) { r.DryRun = "true" }, 400, "DryRunOperation"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := ecs.CreateDescribeDisksRequest()
			tt.change(r)
			_, err := newClient(t, newServer(t, nil)).DescribeDisks(r)
			wantCode(t, err, tt.status, tt.code)
		})
	}
}

func TestFiltersAreJoinedByAnd(t *testing.T) {
	_, c := newServerAndClient(t, nil)
	essd := create(t, c, func(r *ecs.CreateDiskRequest) {
		r.DiskName, r.MultiAttach, r.ResourceGroupId = "one", "Enabled", "rg-1"
		r.Tag = &[]ecs.CreateDiskTag{{Key: "app", Value: "db"}, {Key: "empty"}}
	})
	auto := create(t, c, func(r *ecs.CreateDiskRequest) {
		r.DiskName, r.ZoneId, r.DiskCategory, r.Encrypted, r.KMSKeyId = "two", zoneI, "cloud_auto", "true", "key-1"
		r.Tag = &[]ecs.CreateDiskTag{{Key: "app", Value: "web"}}
	})
	tag := func(key, value string) *[]ecs.DescribeDisksTag {
		return &[]ecs.DescribeDisksTag{{Key: key, Value: value}}
	}
	for _, tt := range []struct {
		name   string
		change readChange
		want   []string
	}{
		{"none", func(*ecs.DescribeDisksRequest) {}, []string{auto, essd}},
		{"name", func(r *ecs.DescribeDisksRequest) { r.DiskName = "one" }, []string{essd}},
		{"half a name", func(r *ecs.DescribeDisksRequest) { r.DiskName = "on" }, nil},
		{"a name that is all", func(r *ecs.DescribeDisksRequest) { r.DiskName = "all" }, nil},
		{"zone", func(r *ecs.DescribeDisksRequest) { r.ZoneId = zoneI }, []string{auto}},
		{"status", func(r *ecs.DescribeDisksRequest) { r.Status = "Available" }, []string{auto, essd}},
		{"another status", func(r *ecs.DescribeDisksRequest) { r.Status = "In_use" }, nil},
		{"every status", func(r *ecs.DescribeDisksRequest) { r.Status = "All" }, []string{auto, essd}},
		{"category", func(r *ecs.DescribeDisksRequest) { r.Category = "cloud_auto" }, []string{auto}},
		{"data disks", func(r *ecs.DescribeDisksRequest) { r.DiskType = "data" }, []string{auto, essd}},
		{"system disks", func(r *ecs.DescribeDisksRequest) { r.DiskType = "system" }, []string{"d-bp10000000s000000002", "d-bp10000000s000000001"}},
		{"encrypted", func(r *ecs.DescribeDisksRequest) { r.Encrypted = "true" }, []string{auto}},
		{"not encrypted", func(r *ecs.DescribeDisksRequest) { r.Encrypted = "false" }, []string{essd}},
		{"key", func(r *ecs.DescribeDisksRequest) { r.KMSKeyId = "key-1" }, []string{auto}},
		{"group", func(r *ecs.DescribeDisksRequest) { r.ResourceGroupId = "rg-1" }, []string{essd}},
		{"multi-attach", func(r *ecs.DescribeDisksRequest) { r.MultiAttach = "Enabled" }, []string{essd}},
		{"attached to an instance", func(r *ecs.DescribeDisksRequest) { r.InstanceId = "i-1" }, nil},
		{"subscription", func(r *ecs.DescribeDisksRequest) { r.DiskChargeType = "PrePaid" }, nil},
		{"not portable", func(r *ecs.DescribeDisksRequest) { r.Portable = "false" }, nil},
		{"tag", func(r *ecs.DescribeDisksRequest) { r.Tag = tag("app", "db") }, []string{essd}},
		{"tag of any value", func(r *ecs.DescribeDisksRequest) { r.Tag = tag("app", "") }, []string{auto, essd}},
		{"tag of an empty value", func(r *ecs.DescribeDisksRequest) { r.Tag = tag("empty", "") }, []string{essd}},
		{"two tags", func(r *ecs.DescribeDisksRequest) {
			r.Tag = &[]ecs.DescribeDisksTag{{Key: "app", Value: "web"}, {Key: "empty"}}
		}, nil},
		{"zone and category", func(r *ecs.DescribeDisksRequest) { r.ZoneId, r.Category = zoneH, "cloud_auto" }, nil},
		{"ID and tag", func(r *ecs.DescribeDisksRequest) { r.DiskIds, r.Tag = idList(essd), tag("app", "web") }, nil},
		{"made since 2000", func(r *ecs.DescribeDisksRequest) {
			r.Filter1Key, r.Filter1Value = "CreationStartTime", "2000-01-01T00:00Z"
		}, []string{auto, essd}},
		{"made until 2000", func(r *ecs.DescribeDisksRequest) {
			r.Filter2Key, r.Filter2Value = "CreationEndTime", "1999-12-31T00:00Z"
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := shownIDs(describe(t, c, tt.change)); !slices.Equal(got, tt.want) {
				t.Errorf("disks %v, want %v", got, tt.want)
			}
		})
	}
}

func TestTagSearchReachesAThousandDisks(t *testing.T) {
	c := newClient(t, newServer(t, nil))
	createMany(t, c, 1001, func(r *ecs.CreateDiskRequest) { r.Tag = &[]ecs.CreateDiskTag{{Key: "app", Value: "db"}} })
	got := describe(t, c, func(r *ecs.DescribeDisksRequest) { r.Tag = &[]ecs.DescribeDisksTag{{Key: "app", Value: "db"}} })
	if got.TotalCount != 1000 {
		t.Errorf("search by tag reaches %d disks, want 1000", got.TotalCount)
	}
	if got := describe(t, c, nil); got.TotalCount != 1001 {
		t.Errorf("a read without tags reaches %d disks, want 1001", got.TotalCount)
	}
}

func TestTagsAreShownUnderBothNames(t *testing.T) {
	c := newClient(t, newServer(t, nil))
	create(t, c, func(r *ecs.CreateDiskRequest) {
		r.Tag = &[]ecs.CreateDiskTag{{Key: "app", Value: "db"}, {Key: "empty"}}
	})
	got := describe(t, c, nil).Disks.Disk[0].Tags.Tag
	if len(got) != 2 {
		t.Fatalf("tags %+v, want 2", got)
	}
	if got[0].TagKey != "app" || got[0].TagValue != "db" || got[0].Key != "app" || got[0].Value != "db" || got[1].TagKey != "empty" || got[1].TagValue != "" {
		t.Errorf("tags %+v", got)
	}
}

func TestAdditionalAttributes(t *testing.T) {
	_, c := newServerAndClient(t, nil)
	create(t, c, kind("cloud_essd", "PL1", 100))
	create(t, c, with(kind("cloud_regional_disk_auto", "", 100), func(r *ecs.CreateDiskRequest) { r.ZoneId = "" }))
	plain := describe(t, c, nil).Disks.Disk
	full := describe(t, c, func(r *ecs.DescribeDisksRequest) { r.AdditionalAttributes = &[]string{"IOPS", "Placement"} }).Disks.Disk
	if plain[1].IOPS != 0 || full[1].IOPS != 6800 {
		t.Errorf("IOPS of 100 GiB PL1: %d unasked and %d asked, want 0 and 6800", plain[1].IOPS, full[1].IOPS)
	}
	if plain[0].Placement.ZoneIds != "" || full[0].Placement.ZoneIds != zoneH+"\n"+zoneI {
		t.Errorf("placement %q unasked and %q asked, want none and both zones", plain[0].Placement.ZoneIds, full[0].Placement.ZoneIds)
	}
}

func TestUnknownDiskCanBeForgivenByDeleteDisk(t *testing.T) {
	s := newServer(t, func(c *ecssim.Config) { c.ForgiveUnknownDisk = true })
	if err := remove(newClient(t, s), "d-none"); err != nil {
		t.Error(err)
	}
}

// BenchmarkDescribeDisksOfAll reads a page of 180 000 disks, without filters.
// Nearly all of the time the state is locked.
func BenchmarkDescribeDisksOfAll(b *testing.B) {
	s, err := ecssim.New(ecssim.Config{Region: region, Zones: []string{zoneH}, LedgerSize: 1})
	if err != nil {
		b.Fatal(err)
	}
	call := func(query string) string {
		r, err := http.NewRequest("POST", "http://ecs/?Version=2014-05-26&Format=JSON&RegionId="+region+"&"+query, nil)
		if err != nil {
			b.Fatal(err)
		}
		reply, err := s.RoundTrip(r)
		if err != nil || reply.StatusCode != 200 {
			b.Fatalf("%s: %v %v", query, reply, err)
		}
		text, err := io.ReadAll(reply.Body)
		if err != nil {
			b.Fatal(err)
		}
		return string(text)
	}
	for i := range 180_000 {
		call("Action=CreateDisk&ZoneId=" + zoneH + "&DiskCategory=cloud_essd&Size=20&Tag.1.Key=n&Tag.1.Value=" + strconv.Itoa(i%1000))
	}
	for _, page := range []string{"PageSize=10", "PageSize=100", "PageSize=100&PageNumber=1500", "MaxResults=500", "PageSize=10&Tag.1.Key=n&Tag.1.Value=7"} {
		b.Run(page, func(b *testing.B) {
			for b.Loop() {
				call("Action=DescribeDisks&" + page)
			}
		})
	}
}
