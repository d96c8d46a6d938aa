package listing

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

func TestListingHasEveryLastingDiskOnce(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		there := map[disk.ID]bool{}
		add := func(id disk.ID) { there[id] = true }
		for range 1 + random.IntN(30) {
			add(disk.ID(fmt.Sprintf("d-stay%d", random.IntN(1000))))
		}
		stays := len(there)
		most := 1 + random.IntN(5)
		seen := map[disk.ID]int{}
		for last := disk.ID(""); ; {
			for n := range 4 {
				add(disk.ID(fmt.Sprintf("d-%c%d", 'a'+rune(random.IntN(26)), n)))
			}
			for id := range there {
				if len(id) < 6 && random.IntN(2) == 0 {
					delete(there, id)
				}
			}
			var disks []disk.Disk
			for id := range there {
				disks = append(disks, disk.Disk{ID: id})
			}
			slices.SortFunc(disks, func(a, b disk.Disk) int { return cmp.Compare(a.ID, b.ID) })
			got, next := Page(disks, last, most, func(d disk.Disk) disk.ID { return d.ID })
			if len(got) > most {
				t.Fatalf("seed %d: a page of %d, at most %d are allowed", seed, len(got), most)
			}
			for _, d := range got {
				seen[d.ID]++
			}
			if next == "" {
				break
			}
			if last = got[len(got)-1].ID; next != tokenPrefix+string(last) {
				t.Fatalf("seed %d: the next page is %q, after %s", seed, next, last)
			}
		}
		listed := 0
		for id, times := range seen {
			if times > 1 {
				t.Fatalf("seed %d: %s is listed %d times", seed, id, times)
			}
			if len(id) >= 6 {
				listed++
			}
		}
		if listed != stays {
			t.Errorf("seed %d: %d of %d disks listed", seed, listed, stays)
		}
	}
}

func FuzzAPageTokenIsRefusedOrGoesOn(f *testing.F) {
	all := []disk.Disk{{ID: "d-a"}, {ID: "d-b"}, {ID: "d-c"}, {ID: "d-d"}, {ID: "d-e"}}
	idOf := func(d disk.Disk) disk.ID { return d.ID }
	f.Add("", int32(0))
	f.Add("after:d-b", int32(2))
	f.Add("after:", int32(1))
	f.Add("after:zzz", int32(-1))
	f.Add("3", int32(1))
	f.Fuzz(func(t *testing.T, token string, most int32) {
		last, err := Start(most, token)
		if err != nil {
			if kind := disk.KindOf(err); kind != disk.Invalid && kind != disk.BadToken {
				t.Errorf("token %q, %d entries: %v", token, most, err)
			}
			return
		}
		var got []disk.ID
		for from, more := disk.ID(last), true; more; {
			listed, next := Page(all, from, int(most), idOf)
			more = next != ""
			if len(listed) == 0 && more || most > 0 && len(listed) > int(most) {
				t.Fatalf("token %q: a page of %d, and more %v", token, len(listed), more)
			}
			for _, d := range listed {
				got, from = append(got, d.ID), d.ID
			}
		}
		var want []disk.ID
		for _, d := range all {
			if cmp.Compare(d.ID, disk.ID(last)) > 0 {
				want = append(want, d.ID)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %q come %v, want %v", token, got, want)
		}
	})
}
