package snapshot

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/listing"
)

// pages is an ECS that has snapshots, the newest first, in pages of at least ten.
type pages struct {
	ECS
	numbers []int // of the snapshots that there are, ascending
	uncut   map[int]bool
	calls   int
}

func (p *pages) PageSnapshots(_ context.Context, _ disk.SnapshotFilter, token string, most int) ([]disk.Snapshot, string, error) {
	p.calls++
	below := 1 << 30
	if token != "" {
		below, _ = strconv.Atoi(token)
	}
	var page []disk.Snapshot
	for _, n := range slices.Backward(p.numbers) {
		if n >= below {
			continue
		}
		if len(page) == min(max(most, 10), 100) {
			last, _ := strconv.Atoi(strings.TrimPrefix(string(page[len(page)-1].ID), "s-"))
			return page, strconv.Itoa(last), nil
		}
		shot := disk.Snapshot{ID: disk.SnapshotID(fmt.Sprintf("s-%d", n)), Created: time.Unix(int64(n), 0)}
		if p.uncut[n] {
			shot.Created = time.Time{}
		}
		page = append(page, shot)
	}
	return page, "", nil
}

// CheckSnapshotSight: it hides none.
func (*pages) CheckSnapshotSight(context.Context) error { return nil }

func (p *pages) remove(n int) {
	p.numbers = slices.DeleteFunc(p.numbers, func(other int) bool { return other == n })
}

func TestSnapshotsThatAreThereThroughoutAreListedOnce(t *testing.T) {
	const runs = 300
	for seed := range uint64(runs) {
		random := rand.New(rand.NewPCG(seed, 2))
		ecs := &pages{uncut: map[int]bool{}}
		stays := map[int]bool{}
		for n := 1000; n < 1000+random.IntN(60); n++ {
			ecs.numbers = append(ecs.numbers, n)
			switch {
			case random.IntN(8) == 0:
				ecs.uncut[n] = true
			case random.IntN(2) == 0:
				stays[n] = true
			}
		}
		c := NewController(Config{}, ecs)
		most := int32(leastOfPage + random.IntN(25))
		seen := map[string]int{}
		for token, added := "", 2000; ; added++ {
			response, err := c.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{MaxEntries: most, StartingToken: token})
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if len(response.GetEntries()) > int(most) {
				t.Fatalf("seed %d: a page of %d, at most %d are allowed", seed, len(response.GetEntries()), most)
			}
			for _, e := range response.GetEntries() {
				seen[e.GetSnapshot().GetSnapshotId()]++
			}
			if token = response.GetNextToken(); token == "" {
				break
			}
			if len(token) > 128 {
				t.Fatalf("seed %d: a token of %d bytes, more than CSI takes: %s", seed, len(token), token)
			}
			ecs.numbers = append(ecs.numbers, added)
			for _, n := range slices.Clone(ecs.numbers) {
				if !stays[n] && random.IntN(20) == 0 {
					ecs.remove(n)
				}
			}
		}
		for id, times := range seen {
			if times > 1 {
				t.Errorf("seed %d: %s is listed %d times", seed, id, times)
			}
		}
		for n := range stays {
			if seen[fmt.Sprintf("s-%d", n)] == 0 {
				t.Errorf("seed %d, %d a page: s-%d is not listed", seed, most, n)
			}
		}
	}
}

func TestAPageOfSnapshotsCostsNoMoreThanItself(t *testing.T) {
	ecs := &pages{}
	for n := range 1000 {
		ecs.numbers = append(ecs.numbers, n)
	}
	c := NewController(Config{}, ecs)
	for most, want := range map[int32]int{50: 20, 100: 10, 105: 10, 250: 12, 0: 10, 3: 400, 1: 1010} {
		ecs.calls = 0
		listed := map[string]bool{}
		for token := ""; ; {
			response, err := c.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{MaxEntries: most, StartingToken: token})
			if err != nil {
				t.Fatal(err)
			}
			if n := len(response.GetEntries()); n > int(most) && most > 0 {
				t.Fatalf("a page of %d, at most %d are allowed", n, most)
			}
			for _, e := range response.GetEntries() {
				listed[e.GetSnapshot().GetSnapshotId()] = true
			}
			if token = response.GetNextToken(); token == "" {
				break
			}
		}
		if len(listed) != 1000 || ecs.calls > want {
			t.Errorf("%d a page: %d of 1000 listed with %d calls, want at most %d", most, len(listed), ecs.calls, want)
		}
	}
}

func FuzzTokens(f *testing.F) {
	for _, token := range []string{"", "after:d-1", "page:3:token", "page:03:token", "page:0:", "page::", "page:a,,b:x", "after:"} {
		f.Add(token)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if last, err := listing.Start(0, token); err != nil && (disk.KindOf(err) != disk.BadToken || token == "") || err == nil && token != "" && "after:"+last != token {
			t.Errorf("a list of volumes from %q: after %q, error %v", token, last, err)
		}
		if b, err := readListPosition(token); err != nil && (disk.KindOf(err) != disk.BadToken || token == "") || err == nil && b.token() != token {
			t.Errorf("a list of snapshots from %q: %+v, error %v", token, b, err)
		}
	})
}
