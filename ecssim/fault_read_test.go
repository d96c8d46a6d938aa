package ecssim_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

// ids returns the IDs of the disks of a reply.
func ids(reply *ecs.DescribeDisksResponse) []string {
	var list []string
	for _, d := range reply.Disks.Disk {
		list = append(list, d.DiskId)
	}
	return list
}

func TestStaleReadShowsTheDisksAsTheyWere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, nil)
		old := create(t, c, nil)
		time.Sleep(time.Minute)
		gone, grown := create(t, c, nil), create(t, c, nil)
		time.Sleep(time.Minute)
		// Three seconds ago: one disk was deleted, one resized, one tagged, one attached and one made.
		if err := remove(c, gone); err != nil {
			t.Fatal(err)
		}
		resize := ecs.CreateResizeDiskRequest()
		resize.DiskId, resize.NewSize = grown, requests.NewInteger(40)
		if _, err := c.ResizeDisk(resize); err != nil {
			t.Fatal(err)
		}
		tagDisk(t, c, old, "app", "db")
		attach := ecs.CreateAttachDiskRequest()
		attach.DiskId, attach.InstanceId = old, "i-1"
		if _, err := c.AttachDisk(attach); err != nil {
			t.Fatal(err)
		}
		fresh := create(t, c, nil)
		time.Sleep(3 * time.Second)

		now := describe(t, c, nil)
		if want := []string{fresh, grown, old}; !slices.Equal(ids(now), want) {
			t.Fatalf("now there are %v, want %v", ids(now), want)
		}
		addFault(t, s, ecssim.Fault{Action: "DescribeDisks", Do: ecssim.FaultStale, Lag: 5 * time.Second})
		was := describe(t, c, nil)
		if want := []string{grown, gone, old}; !slices.Equal(ids(was), want) {
			t.Fatalf("five seconds ago there were %v, want %v", ids(was), want)
		}
		if d := was.Disks.Disk[0]; d.Size != 20 {
			t.Errorf("the resized disk had %d GiB, want 20", d.Size)
		}
		if d := was.Disks.Disk[2]; d.Status != "Available" || len(d.Attachments.Attachment) != 0 || len(d.Tags.Tag) != 0 {
			t.Errorf("the attached disk was %s with %v and tags %v, want Available and bare", d.Status, d.Attachments, d.Tags)
		}
		byID := describe(t, c, func(r *ecs.DescribeDisksRequest) { r.DiskIds = `["` + fresh + `","` + gone + `"]` })
		if !slices.Equal(ids(byID), []string{gone}) {
			t.Errorf("by ID: %v, want the deleted disk alone", ids(byID))
		}
		time.Sleep(2 * time.Second)
		if later := describe(t, c, nil); !slices.Equal(ids(later), ids(now)) || later.Disks.Disk[1].Size != 40 || later.Disks.Disk[2].Status != "In_use" {
			t.Errorf("five seconds on the read shows %v, want what there is", ids(later))
		}
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	})
}

func TestDeletedDisksAreForgottenInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, nil)
		id := create(t, c, nil)
		if err := remove(c, id); err != nil {
			t.Fatal(err)
		}
		addFault(t, s, ecssim.Fault{Do: ecssim.FaultStale, Lag: 2 * time.Minute})
		time.Sleep(3 * time.Minute)
		if got := describe(t, c, nil); len(got.Disks.Disk) != 0 {
			t.Errorf("a disk that was deleted three minutes ago is shown: %v", ids(got))
		}
	})
}

func TestPartialPages(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	all := map[string]bool{}
	for range 25 {
		all[create(t, c, nil)] = true
	}
	addFault(t, s, ecssim.Fault{Action: "DescribeDisks", Do: ecssim.FaultPartial})
	next, pages := "", 0
	for seen := map[string]bool{}; ; pages++ {
		got := describe(t, c, func(r *ecs.DescribeDisksRequest) { r.MaxResults, r.NextToken = "10", next })
		for _, id := range ids(got) {
			if seen[id] || !all[id] {
				t.Errorf("disk %s comes twice or is not there", id)
			}
			seen[id] = true
		}
		if next = got.NextToken; len(got.Disks.Disk) > 5 || pages > 30 {
			t.Fatalf("page %d has %d disks, want five at most", pages, len(got.Disks.Disk))
		}
		if pages == 5 {
			s.ClearFaults() // the last disk alone is never half of a page
		}
		if next == "" {
			if len(seen) != len(all) {
				t.Errorf("%d of %d disks came in all pages", len(seen), len(all))
			}
			break
		}
	}
	addFault(t, s, ecssim.Fault{Action: "DescribeDisks", Do: ecssim.FaultPartial})
	if got := describe(t, c, func(r *ecs.DescribeDisksRequest) { r.PageSize = "20" }); len(got.Disks.Disk) != 10 || got.TotalCount != 25 {
		t.Errorf("by number: %d of %d disks, want 10 of 25", len(got.Disks.Disk), got.TotalCount)
	}
}

func TestNextTokenExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newServerAndClient(t, func(c *ecssim.Config) { c.PageTokenLife = time.Minute })
		for range 11 {
			create(t, c, nil)
		}
		next := describe(t, c, func(r *ecs.DescribeDisksRequest) { r.MaxResults = "10" }).NextToken
		time.Sleep(time.Minute - time.Nanosecond)
		if got := describe(t, c, func(r *ecs.DescribeDisksRequest) { r.NextToken = next }); len(got.Disks.Disk) != 1 {
			t.Errorf("in time: %d disks, want 1", len(got.Disks.Disk))
		}
		time.Sleep(time.Nanosecond)
		r := ecs.CreateDescribeDisksRequest()
		r.NextToken = next
		_, err := c.DescribeDisks(r)
		wantCode(t, err, 400, "InvalidParameter")
	})
}

func TestDuplicateIsAnsweredByItsSecondEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, func(c *ecssim.Config) { c.Latency.API = map[string]time.Duration{"": time.Second} })
		id := create(t, c, nil)
		addFault(t, s, ecssim.Fault{Action: "DeleteDisk", Do: ecssim.FaultDuplicate})
		addFault(t, s, ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultDuplicate})
		start := time.Now()
		wantCode(t, remove(c, id), 404, "InvalidDiskId.NotFound")
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("it took %v, want both replies' time", took)
		}
		if s.State().DisksDeleted != 1 || s.Count("DeleteDisk", "") != 1 {
			t.Errorf("%d disks deleted, want 1", s.State().DisksDeleted)
		}
		create(t, c, token)
		if n := len(s.Disks()); n != 1 {
			t.Errorf("%d disks by one token, want 1", n)
		}
		create(t, c, nil)
		if n := len(s.Disks()); n != 3 {
			t.Errorf("%d disks, want two more of a call without a token", n)
		}
	})
}

func TestEchoComesAfterTheReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, nil)
		addFault(t, s, ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultEcho, Lag: 5 * time.Second, Count: 1})
		create(t, c, nil)
		time.Sleep(5*time.Second - time.Nanosecond)
		if n := len(s.Disks()); n != 1 {
			t.Errorf("%d disks before the echo, want 1", n)
		}
		time.Sleep(time.Nanosecond)
		if n := len(s.Disks()); n != 2 {
			t.Errorf("%d disks after the echo, want 2", n)
		}
		calls := s.Calls()
		if len(calls) != 2 || calls[1].Fault != "echo" || calls[1].Status != 0 || calls[1].RequestID == calls[0].RequestID {
			t.Errorf("calls %+v", calls)
		}
	})
}

func TestALateRequestTakesEffectLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServerAndClient(t, nil)
		id := create(t, c, nil)
		addFault(t, s, ecssim.Fault{Action: "DeleteDisk", Do: ecssim.FaultLate, Lag: 20 * time.Second, Count: 1})
		if err := remove(c, id); !isEOF(err) {
			t.Fatalf("the caller sees %v", err)
		}
		for _, step := range []struct {
			after time.Duration
			disks int
		}{{20*time.Second - time.Nanosecond, 1}, {time.Nanosecond, 0}} {
			time.Sleep(step.after)
			if n := len(s.Disks()); n != step.disks {
				t.Errorf("%d disks, want %d", n, step.disks)
			}
		}
	})
}

func TestHiddenThingsAreThereAndNotShown(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	seen, hidden := create(t, c, nil), create(t, c, nil)
	addFault(t, s, ecssim.Fault{Do: ecssim.FaultHidden, Hide: []string{hidden}})
	for name, fill := range map[string]func(*ecs.DescribeDisksRequest){
		"all":   nil,
		"by ID": func(r *ecs.DescribeDisksRequest) { r.DiskIds = fmt.Sprintf("[%q,%q]", seen, hidden) },
	} {
		if got := ids(describe(t, c, fill)); len(got) != 1 || got[0] != seen {
			t.Errorf("%s: shown are %v, want %s alone", name, got, seen)
		}
	}
	request := ecs.CreateDeleteDiskRequest()
	request.DiskId = hidden
	if _, err := c.DeleteDisk(request); err != nil {
		t.Errorf("a hidden disk is not there: %v", err)
	}
}

func TestIgnoredChangesSaySuccess(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	id := create(t, c, nil)
	addFault(t, s, ecssim.Fault{Action: "ResizeDisk", Do: ecssim.FaultIgnored})
	request := ecs.CreateResizeDiskRequest()
	request.DiskId, request.NewSize = id, "100"
	if got, err := c.ResizeDisk(request); err != nil || got.OrderId == "" {
		t.Errorf("reply %+v, error %v", got, err)
	}
	if got := s.Disks()[0]; got.Size != 20 {
		t.Errorf("the disk has %d GiB", got.Size)
	}
}

func TestTrickleTakesItsTimeAndHeedsTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, unsigned)
		addFault(t, s, ecssim.Fault{Do: ecssim.FaultTrickle, DelayAfter: 16 * time.Second})
		ask := func(timeout time.Duration) (time.Duration, time.Duration, error) {
			start := time.Now()
			client := http.Client{Transport: s, Timeout: timeout}
			reply, err := client.Get("http://ecs/?Action=DescribeZones&Version=2014-05-26&Format=JSON&RegionId=cn-hangzhou")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = reply.Body.Close() }()
			headers := time.Since(start)
			text, err := io.ReadAll(reply.Body)
			if err == nil && int64(len(text)) != reply.ContentLength {
				t.Errorf("%d bytes of %d came", len(text), reply.ContentLength)
			}
			return headers, time.Since(start), err
		}
		if headers, all, err := ask(0); headers != 0 || all != 16*time.Second || err != nil {
			t.Errorf("headers after %v, all after %v, %v; want 0 s, 16 s", headers, all, err)
		}
		if _, all, err := ask(3 * time.Second); all != 3*time.Second || err == nil {
			t.Errorf("with a timeout: %v after %v, want an error after 3 s", err, all)
		}
	})
}

func TestNothingIsFoundUnderTheFault(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	create(t, c, nil)
	addFault(t, s, ecssim.Fault{Action: "DescribeDisks", Do: ecssim.FaultNothing, Count: 1})
	if got := describe(t, c, nil); len(got.Disks.Disk) != 0 || got.TotalCount != 0 {
		t.Errorf("found %v", ids(got))
	}
	if got := describe(t, c, nil); len(got.Disks.Disk) != 1 {
		t.Errorf("found %v after the fault, want one", ids(got))
	}
}

func TestPercentOfCallsAreHitByLot(t *testing.T) {
	count := func(seed uint32) (int, string) {
		s := newServer(t, func(c *ecssim.Config) { c.Seed, c.AccessKeys = seed, nil })
		addFault(t, s, ecssim.Fault{Do: ecssim.FaultBrownOut, Percent: 30})
		hit, order := 0, ""
		for range 1000 {
			a := send(t, s, "GET", "http://ecs/?Action=DescribeRegions&Version=2014-05-26&Format=JSON", "")
			order += a.code()
			if a.status == 503 {
				hit++
			}
		}
		return hit, order
	}
	first, order := count(1)
	if first < 250 || first > 350 {
		t.Errorf("%d calls of 1000 were hit, want about 300", first)
	}
	if _, again := count(1); again != order {
		t.Error("another run with the same seed hits other calls")
	}
	if _, other := count(2); other == order {
		t.Error("a run with another seed hits the same calls")
	}
}

func TestFaultsHaveTheirTimeAndTheirAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		addFault(t, s, ecssim.Fault{Do: ecssim.FaultThrottle, From: 10 * time.Second, For: 5 * time.Second, Agent: "Golang.*topodisk"})
		c, mine := newClient(t, s), newClient(t, s)
		mine.AppendUserAgent("topodisk", "test")
		got := ""
		for range 4 {
			for _, client := range []*ecs.Client{c, mine} {
				if readDisks(client) == nil {
					got += "."
				} else {
					got += "x"
				}
			}
			got += " "
			time.Sleep(5 * time.Second)
		}
		if want := ".. .. .x .. "; got != want {
			t.Errorf("hit %q, want %q", got, want)
		}
		if strings.Count(got, "x") != s.Faults()[0].Hit || s.Faults()[0].Seen != 1 {
			t.Errorf("fault %+v", s.Faults()[0])
		}
	})
}
