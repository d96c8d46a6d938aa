package diskdriver

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

const (
	// longestPage is the most volumes of one answer: gRPC clients refuse a
	// message of more than 4 MiB, and a volume takes less than 1 KiB.
	longestPage = 2000

	// passLasts is for how long the pages of a list may come from one pass
	// over ECS's disks.
	passLasts = time.Minute

	// tokenPrefix begins the token of a list; the ID of the last one that was
	// listed follows.
	tokenPrefix = "after:"
)

// ListVolumes lists every data disk of the region, whoever made it, and the
// nodes that each is published to: a CO looks for any volume here. The volume
// context says whose a disk is. The list is in the order of the IDs, and its
// tokens name the last one listed, so a volume that is there throughout is
// listed once, whatever comes and goes between two pages (CSI spec, ListVolumes).
func (c *controller) ListVolumes(ctx context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	last, err := lastListed(req.GetMaxEntries(), req.GetStartingToken())
	if err != nil {
		return nil, err
	}
	disks, _, err := c.pass.read(ctx, c.disks, &c.watch, last != "")
	if err != nil {
		return nil, err
	}
	disks, more := page(disks, disk.ID(last), int(req.GetMaxEntries()), func(d disk.Disk) disk.ID { return d.ID })
	response := &csi.ListVolumesResponse{}
	for _, d := range disks {
		response.Entries = append(response.Entries, &csi.ListVolumesResponse_Entry{
			Volume: c.volume(d),
			Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: nodes(d)},
		})
	}
	if more {
		response.NextToken = tokenPrefix + string(disks[len(disks)-1].ID)
	}
	return response, nil
}

// lastListed checks what a list is asked for, and returns the ID of the last one
// that was listed; empty at the beginning.
func lastListed(most int32, token string) (string, error) {
	if err := checkMost(most); err != nil {
		return "", err
	}
	last, continued := strings.CutPrefix(token, tokenPrefix)
	if token != "" && (!continued || !idForm.MatchString(last)) {
		return "", badToken(token)
	}
	return last, nil
}

// idForm is the form of what ECS gives out as IDs.
var idForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z_.-]{0,127}$`)

// checkMost refuses a limit of a page that can't be.
func checkMost(most int32) error {
	if most < 0 {
		return disk.Errorf(disk.Invalid, "max_entries: %d is not allowed; allowed are 0, which is no limit, and more", most)
	}
	return nil
}

// badToken is the error for a token that no list of this driver ends with.
func badToken(token string) error {
	return disk.Errorf(disk.BadToken, "starting_token: %q is none of this driver's; begin again without one", token)
}

// page returns the items after the last one listed, at most so many if that is
// not 0, and whether there are more. They are sorted by ID.
func page[T any, ID ~string](items []T, last ID, most int, idOf func(T) ID) ([]T, bool) {
	from, found := slices.BinarySearchFunc(items, last, func(item T, id ID) int { return cmp.Compare(idOf(item), id) })
	if found {
		from++
	}
	rest := items[from:]
	if most == 0 || most > longestPage {
		most = longestPage
	}
	if len(rest) <= most {
		return rest, false
	}
	return rest[:most], true
}

// pass keeps what the last pass over all disks of the region showed, so that a
// list of many pages doesn't cost one for every page.
type pass struct {
	mu    sync.Mutex
	disks []disk.Disk
	at    time.Time
}

// read returns all disks, and when they were so: for the first page as they are,
// for a later one perhaps as the last pass showed them.
func (p *pass) read(ctx context.Context, disks Disks, w *watch, continued bool) ([]disk.Disk, time.Time, error) {
	p.mu.Lock()
	known, at := p.disks, p.at
	p.mu.Unlock()
	if continued && time.Since(at) < passLasts {
		return known, at, nil
	}
	at = time.Now()
	all, err := disks.List(ctx)
	if err != nil {
		return nil, at, err
	}
	w.sawAll(all, at)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disks, p.at = all, at
	return all, at, nil
}
