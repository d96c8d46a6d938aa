package ecs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
)

func TestCreateTakesOneCallAndOneRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := simulate(t, func(config *ecssim.Config) { config.Latency.Available = time.Minute })
		began := time.Now()
		got, err := create(t.Context(), c, "vol-1")
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 5*time.Millisecond {
			t.Errorf("an idle client adds %v, want at most 5ms", took)
		}
		want := disk.Disk{
			ID: got.ID, Name: "vol-1", Zone: zoneH, Size: 20, Category: "cloud_essd", PerformanceLevel: disk.PL1, State: disk.Creating,
			Serial: strings.TrimPrefix(string(got.ID), "d-"), NeverAttached: true, Created: began.UTC(),
			Tags: disk.Tags{disk.VolumeNameTag: "vol-1", disk.ClusterTag: cluster, disk.ManagedTag: "true", "empty": ""},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("disk (-want +got):\n%s", diff)
		}
		if calls(sim, "CreateDisk") != 1 || calls(sim, "DescribeDisks") != 1 {
			t.Errorf("calls: %v", sim.Calls())
		}
		if err := c.Delete(t.Context(), got.ID); disk.KindOf(err) != disk.InUse {
			t.Errorf("Delete of a disk that is being created says %v", err)
		}
		time.Sleep(time.Minute)
		if err := c.Delete(t.Context(), got.ID); err != nil {
			t.Fatal(err)
		}
		if calls(sim, "DeleteDisk") != 2 || calls(sim, "DescribeDisks") != 1 {
			t.Errorf("Delete read before it wrote: %v", sim.Calls())
		}
	})
}

func TestDeleteOfAnAbsentDiskIsNoError(t *testing.T) {
	for _, forgiving := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			_, c := simulate(t, func(config *ecssim.Config) { config.ForgiveUnknownDisk = forgiving })
			for _, id := range []disk.ID{"d-bp1neverwas", "not-a-disk", "", "d-bp1 space", "../x"} {
				if err := c.Delete(t.Context(), id); err != nil {
					t.Errorf("Delete(%q): %v", id, err)
				}
			}
		})
	}
}

func TestCreateSendsWhatTheSpecSays(t *testing.T) {
	for name, test := range map[string]struct {
		spec disk.Spec
		try  disk.Attempt
		want map[string]string
	}{
		"plain": {
			disk.Spec{Name: "vol-1"}, disk.Attempt{Zone: zoneH, Category: "cloud_ssd", Size: 40},
			map[string]string{"ZoneId": zoneH, "DiskCategory": "cloud_ssd", "Size": "40", "DiskName": "vol-1"},
		},
		"everything": {
			disk.Spec{Name: "vol-1", Encrypted: true, KMSKeyID: "key-1", ProvisionedIOPS: 100, Bursting: true,
				ResourceGroupID: "rg-1", StorageClusterID: "dbsc-1", Tags: disk.Tags{"b": "2", "a": "1", "c": ""}},
			disk.Attempt{Zone: zoneH, Category: "cloud_auto", Size: 40},
			map[string]string{"ZoneId": zoneH, "DiskCategory": "cloud_auto", "Size": "40", "DiskName": "vol-1", "Encrypted": "true", "KMSKeyId": "key-1",
				"ProvisionedIops": "100", "BurstingEnabled": "true", "ResourceGroupId": "rg-1", "StorageClusterId": "dbsc-1",
				"Tag.1.Key": "a", "Tag.1.Value": "1", "Tag.2.Key": "b", "Tag.2.Value": "2", "Tag.3.Key": "c"},
		},
		"a category without IOPS and bursting": {
			disk.Spec{Name: "vol-1", ProvisionedIOPS: 100, Bursting: true, MultiAttach: true}, disk.Attempt{Zone: zoneH, Category: "cloud_essd", Level: disk.PL0, Size: 40},
			map[string]string{"ZoneId": zoneH, "DiskCategory": "cloud_essd", "PerformanceLevel": "PL0", "Size": "40", "DiskName": "vol-1", "MultiAttach": "Enabled"},
		},
		"a key without encryption": {
			disk.Spec{Name: "vol-1", KMSKeyID: "key-1"}, disk.Attempt{Zone: zoneH, Category: "cloud_ssd", Size: 40},
			map[string]string{"ZoneId": zoneH, "DiskCategory": "cloud_ssd", "Size": "40", "DiskName": "vol-1"},
		},
		"a region and a name that can't be shown": {
			disk.Spec{Name: "1 volume"}, disk.Attempt{Category: "cloud_regional_disk_auto", Size: 40},
			map[string]string{"DiskCategory": "cloud_regional_disk_auto", "Size": "40"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, c := simulate(t, nil)
				if _, err := c.Create(t.Context(), test.spec, test.try, "n:vol-1"); err != nil {
					t.Fatal(err)
				}
				test.want["ClientToken"], test.want["RegionId"] = "n:vol-1", region
				if diff := cmp.Diff(test.want, sim.Calls()[0].Params); diff != "" {
					t.Errorf("parameters (-want +got):\n%s", diff)
				}
				if unknown := sim.State().UnknownParams; len(unknown) != 0 {
					t.Errorf("ECS doesn't know %v", unknown)
				}
			})
		})
	}
}

func TestCreateNeedsAToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := simulate(t, nil)
		spec, try, _ := wanted("vol-1")
		_, err := c.Create(t.Context(), spec, try, "")
		wantKind(t, err, disk.Invalid)
		if len(sim.Calls()) != 0 {
			t.Error("a call was made")
		}
	})
}

func TestATokenWithOtherParametersIsAMismatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := simulate(t, nil)
		if _, err := create(t.Context(), c, "vol-1"); err != nil {
			t.Fatal(err)
		}
		spec, try, token := wanted("vol-1")
		try.Size++
		_, err := c.Create(t.Context(), spec, try, token)
		wantKind(t, err, disk.Mismatch)
	})
}

func TestATokenThatOutlivedItsDiskIsNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := simulate(t, nil)
		if _, err := create(t.Context(), c, "bystander"); err != nil {
			t.Fatal(err)
		}
		made, err := create(t.Context(), c, "vol-1")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Delete(t.Context(), made.ID); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = create(t.Context(), c, "vol-1")
		if e := wantKind(t, err, disk.NotFound); e.Disk != made.ID || e.RequestID == "" {
			t.Errorf("error %+v doesn't name disk %s and the request", e, made.ID)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %v to find out", took)
		}
		if len(sim.Disks()) != 1 || calls(sim, "DescribeDisks") > 7 {
			t.Errorf("disks %v, reads %d", sim.Disks(), calls(sim, "DescribeDisks"))
		}
	})
}

func TestADiskThatIsShownLateIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := simulate(t, func(config *ecssim.Config) { config.Latency.Visible = 1200 * time.Millisecond })
		if _, err := create(t.Context(), c, "vol-1"); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWhatIsSoldOutIsNotMade(t *testing.T) {
	for _, code := range ecssim.SoldOutCodes {
		synctest.Test(t, func(t *testing.T) {
			sim, c := simulate(t, func(config *ecssim.Config) { config.SoldOutCode = code })
			if err := sim.SetStock(zoneH, "cloud_essd", 0); err != nil {
				t.Fatal(err)
			}
			_, err := create(t.Context(), c, "vol-1")
			if e := wantKind(t, err, disk.OutOfStock); e.RequestID == "" || !strings.Contains(e.Error(), code) {
				t.Errorf("error %q lacks the code %s or the request ID", e, code)
			}
			spec, try, token := wanted("vol-1")
			try.Zone = zoneI
			if _, err := c.Create(t.Context(), spec, try, token); err != nil {
				t.Errorf("the same token in another zone: %v", err)
			}
		})
	}
}

func TestConcurrentReadsShareCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := simulate(t, func(config *ecssim.Config) {
			config.Latency.API = map[string]time.Duration{"DescribeDisks": 100 * time.Millisecond}
		})
		ids := manyDisks(t, c, 150)
		for _, test := range []struct {
			name string
			ids  []disk.ID
			want int
		}{
			{"150 disks", ids, 2},
			{"a disk that isn't there, 50 times", slices.Repeat([]disk.ID{"d-bp1absent"}, 50), 3}, // it must be said twice, and that others are shown
			{"one disk 300 times", slices.Repeat(ids[:1], 300), 1},
		} {
			time.Sleep(time.Second)
			before := calls(sim, "DescribeDisks")
			var readers sync.WaitGroup
			for _, id := range test.ids {
				readers.Go(func() {
					got, err := c.Get(t.Context(), id)
					switch {
					case id == "d-bp1absent":
						wantKind(t, err, disk.NotFound)
					case err != nil || got.ID != id:
						t.Errorf("Get(%s) = %s, %v", id, got.ID, err)
					}
				})
			}
			readers.Wait()
			if n := calls(sim, "DescribeDisks") - before; n != test.want {
				t.Errorf("%s: %d calls, want %d", test.name, n, test.want)
			}
		}
	})
}

// manyDisks makes disks and returns their IDs.
func manyDisks(t *testing.T, c *Client, n int) []disk.ID {
	t.Helper()
	ids := make([]disk.ID, n)
	var makers sync.WaitGroup
	for i := range ids {
		makers.Go(func() {
			made, err := create(t.Context(), c, fmt.Sprintf("vol-%d", i))
			if err != nil {
				t.Errorf("vol-%d: %v", i, err)
			}
			ids[i] = made.ID
		})
	}
	makers.Wait()
	return ids
}

func TestAThousandCreatesReadFiftyTimesAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := simulate(t, func(config *ecssim.Config) {
			config.Latency.API = map[string]time.Duration{"CreateDisk": 500 * time.Millisecond, "DescribeDisks": 120 * time.Millisecond}
		})
		manyDisks(t, c, 1000)
		if creates, reads := calls(sim, "CreateDisk"), calls(sim, "DescribeDisks"); creates != 1000 || reads > 50 {
			t.Errorf("1000 creates took %d CreateDisk and %d DescribeDisks, want 1000 and at most 50", creates, reads)
		}
	})
}

func TestAFailedBatchIsNotRepeatedByItsMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := simulate(t, nil)
		if err := sim.AddFault(ecssim.Fault{Action: "DescribeDisks", Do: ecssim.FaultError, Status: 500}); err != nil {
			t.Fatal(err)
		}
		var readers sync.WaitGroup
		for i := range 80 {
			readers.Go(func() {
				id := disk.ID(fmt.Sprintf("d-bp1%d", i))
				_, err := c.Get(t.Context(), id)
				if e := wantKind(t, err, disk.Unreachable); e.Disk != id || e.RequestID == "" {
					t.Errorf("error %+v doesn't name disk %s and the request", e, id)
				}
			})
		}
		readers.Wait()
		if n := calls(sim, "DescribeDisks"); n != 1 {
			t.Errorf("%d calls, want 1", n)
		}
	})
}

func TestAnOddIDHitsNobodyElsesRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := newSim(t, nil)
		c := newClient(t, Config{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			var ids []string
			if json.Unmarshal([]byte(r.URL.Query().Get("DiskIds")), &ids) == nil && len(ids) > 0 && ids[0] == "Odd.One" {
				return answerWith(r, 403, `{"Code":"InvalidDiskIds.Malformed","Message":"bad","RequestId":"R1"}`), nil
			}
			return sim.RoundTrip(r)
		})})
		made, err := create(t.Context(), c, "vol-1")
		if err != nil {
			t.Fatal(err)
		}
		var readers sync.WaitGroup
		readers.Go(func() {
			_, err := c.Get(t.Context(), "Odd.One")
			wantKind(t, err, disk.Invalid)
		})
		readers.Go(func() {
			if _, err := c.Get(t.Context(), made.ID); err != nil {
				t.Error(err)
			}
		})
		readers.Wait()
		for _, id := range []disk.ID{"", "no good", "d-\n"} {
			_, err := c.Get(t.Context(), id)
			wantKind(t, err, disk.NotFound)
		}
	})
}

func TestOneReaderThatLeavesDoesNotEndTheOthersRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := simulate(t, func(config *ecssim.Config) {
			config.Latency.API = map[string]time.Duration{"DescribeDisks": 3 * time.Second}
		})
		manyDisks(t, c, 1)
		var readers sync.WaitGroup
		readers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := c.Get(ctx, "d-bp1a")
			wantKind(t, err, disk.Unreachable)
		})
		readers.Go(func() {
			_, err := c.Get(t.Context(), "d-bp1b")
			wantKind(t, err, disk.NotFound)
		})
		readers.Wait()
	})
}

func TestNamedReadsEveryPageAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := simulate(t, nil)
		const same = 230
		var makers sync.WaitGroup
		for i := range same {
			makers.Go(func() {
				spec, try, _ := wanted("twin")
				if _, err := c.Create(t.Context(), spec, try, disk.NewToken("twin", disk.Generation(i+1))); err != nil {
					t.Error(err)
				}
			})
		}
		makers.Wait()
		spec, try, token := wanted("single")
		if _, err := c.Create(t.Context(), spec, try, token); err != nil {
			t.Fatal(err)
		}
		foreign, try, _ := wanted("twin")
		foreign.Tags[disk.ClusterTag] = "another"
		if _, err := c.Create(t.Context(), foreign, try, "foreign"); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]int{"twin": same, "single": 1, "none": 0} {
			got, err := c.Named(t.Context(), name, false)
			if err != nil || len(got) != want {
				t.Errorf("Named(%s): %d disks, %v; want %d", name, len(got), err, want)
			}
			seen := map[disk.ID]bool{}
			for _, d := range got {
				if d.Name != name || d.Tags[disk.ClusterTag] != cluster || seen[d.ID] {
					t.Errorf("Named(%s) has %+v", name, d)
				}
				seen[d.ID] = true
			}
		}
		_, err := c.Named(t.Context(), "", false)
		wantKind(t, err, disk.Invalid)
		if unknown := sim.State().UnknownParams; len(unknown) != 0 {
			t.Errorf("ECS doesn't know %v", unknown)
		}
	})
}

// After a handover all that is under way is looked for by name at the same time.
func TestACrowdOfNamesSharesAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 600
		sim, c := simulate(t, func(config *ecssim.Config) {
			config.Latency.API = map[string]time.Duration{"DescribeDisks": 120 * time.Millisecond}
		})
		manyDisks(t, c, n)
		before := calls(sim, "DescribeDisks")
		var all sync.WaitGroup
		for i := range 2 * n {
			all.Go(func() {
				name := fmt.Sprintf("vol-%d", i)
				named, err := c.Named(t.Context(), name, false)
				if want := i < n; err != nil || (len(named) == 1) != want || want && named[0].Name != name {
					t.Errorf("%s: %v, %v", name, named, err)
				}
			})
		}
		all.Wait()
		if reads := calls(sim, "DescribeDisks") - before; reads > nameBatches+2 {
			t.Errorf("%d names took %d reads, want %d for the first and 2 pages", 2*n, reads, nameBatches)
		}

		// A few have a call each, and who goes leaves the others theirs.
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		before = calls(sim, "DescribeDisks")
		for i := range nameBatches + 3 {
			all.Go(func() {
				ctx := t.Context()
				if i%2 == 0 {
					ctx = short
				}
				if _, err := c.Named(ctx, fmt.Sprintf("vol-%d", i), false); (err != nil) != (i%2 == 0) {
					t.Errorf("vol-%d: %v", i, err)
				}
			})
		}
		all.Wait()
		if reads := calls(sim, "DescribeDisks") - before; reads > nameBatches+3 {
			t.Errorf("%d names took %d reads", nameBatches+3, reads)
		}
		if _, err := c.Named(t.Context(), "vol-1", false); err != nil {
			t.Error(err)
		}
	})
}

func TestPagesThatGoRoundInACircleEnd(t *testing.T) {
	c := newClient(t, Config{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		return answerWith(r, 200, `{"RequestId":"R1","NextToken":"again","Disks":{"Disk":[]}}`), nil
	})})
	_, err := c.Named(t.Context(), "vol-1", false)
	wantKind(t, err, disk.Unexpected)
}

func TestAttachmentsComeFromEitherPlace(t *testing.T) {
	c := newClient(t, Config{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		return answerWith(r, 200, `{"RequestId":"R1","Disks":{"Disk":[
			{"DiskId":"d-1","Status":"In_use","InstanceId":"i-1","AttachedTime":"2026-11-24T10:00:00Z"},
			{"DiskId":"d-2","Status":"In_use","MultiAttach":"Enabled","Attachments":{"Attachment":[{"InstanceId":"i-1","AttachedTime":"2026-11-24T11:00:00Z"},{"InstanceId":"i-2","Device":""}]},
			 "Tags":{"Tag":[{"Key":"old","Value":"form"}]}}]}}`), nil
	})})
	one, err := c.Get(t.Context(), "d-1")
	if err != nil {
		t.Fatal(err)
	}
	two, err := c.Get(t.Context(), "d-2")
	if err != nil {
		t.Fatal(err)
	}
	want := []disk.Disk{
		{ID: "d-1", State: disk.Attached, Attachments: []disk.Attachment{{Instance: "i-1", Since: "2026-11-24T10:00:00Z"}}, Tags: disk.Tags{}},
		{ID: "d-2", State: disk.Attached, MultiAttach: true, Attachments: []disk.Attachment{{Instance: "i-1", Since: "2026-11-24T11:00:00Z"}, {Instance: "i-2"}}, Tags: disk.Tags{"old": "form"}},
	}
	if diff := cmp.Diff(want, []disk.Disk{one, two}); diff != "" {
		t.Errorf("disks (-want +got):\n%s", diff)
	}
}
