package facts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Remove deletes disks and snapshots until none is left or ctx is done. A
// disk is detached from the client's instance only. Its error names what is
// left.
func (c *Client) Remove(ctx context.Context, ids []string) error {
	left := map[string]error{}
	for _, id := range ids {
		left[id] = errors.New("not tried yet")
	}
	for wait := 10 * time.Millisecond; len(left) > 0; wait = min(2*wait, 2*time.Second) {
		// Snapshots first: a disk of which one is being made can't be deleted.
		for _, id := range slices.Backward(slices.Sorted(maps.Keys(left))) {
			if left[id] = c.removeOne(ctx, id); left[id] == nil {
				delete(left, id)
				c.Limit.gone(id)
			}
		}
		if len(left) == 0 {
			break
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			var errs []error
			for _, id := range slices.Sorted(maps.Keys(left)) {
				errs = append(errs, fmt.Errorf("%s is left: %s", id, c.redact(left[id].Error())))
			}
			return errors.Join(errs...)
		}
	}
	return nil
}

// removeOne tries once to delete something. Until it is gone it returns what
// was wrong.
func (c *Client) removeOne(ctx context.Context, id string) error {
	action, parameter := "DeleteDisk", "DiskId"
	switch {
	case strings.HasPrefix(id, "s-"):
		action, parameter = "DeleteSnapshot", "SnapshotId"
	case strings.HasPrefix(id, "ssg-"):
		action, parameter = "DeleteSnapshotGroup", "SnapshotGroupId"
	}
	pairs := []string{parameter, id}
	if action == "DeleteSnapshot" {
		pairs = append(pairs, "Force", "true")
	}
	answer, err := c.call(ctx, action, pairs...)
	switch {
	case err != nil:
		return err
	case answer.status == http.StatusOK || answer.code() == "Invalid"+parameter+".NotFound":
		return nil
	case action == "DeleteDisk" && c.Instance != "":
		_, _ = c.call(ctx, "DetachDisk", "DiskId", id, "InstanceId", c.Instance) // the next DeleteDisk shows what came of it
	}
	return fmt.Errorf("%s was %s", action, answer.outcome())
}

// Found is a disk or a snapshot that carries the tags of a Client.
type Found struct {
	ID       string
	Run      string
	Instance string // that the run attached disks to
	// Elsewhere are other instances that the disk is attached to.
	Elsewhere []string
}

// Find returns the disks and snapshots of the region that carry RunTag, of one
// run or, with an empty one, of all.
func (c *Client) Find(ctx context.Context, run string) ([]Found, error) {
	var found []Found
	for _, kind := range [][3]string{{"DescribeSnapshots", "Snapshots", "Snapshot"}, {"DescribeDisks", "Disks", "Disk"}} {
		pairs := []string{"MaxResults", "100", "Tag.1.Key", RunTag, "Tag.1.Value", run}
		for next := ""; ; {
			answer, err := c.call(ctx, kind[0], append(pairs, "NextToken", next)...)
			if err != nil {
				return nil, err
			}
			if answer.status != http.StatusOK {
				return nil, fmt.Errorf("%s was %s", kind[0], answer.outcome())
			}
			for _, r := range answer.rows(kind[1], kind[2]) {
				// The reply itself must show the tag: nothing is deleted on the word of a filter.
				if tags := r.tags(); tags[RunTag] != "" && (run == "" || tags[RunTag] == run) {
					found = append(found, newFound(r, tags, kind[2]+"Id"))
				}
			}
			if next = answer.body.text("NextToken"); next == "" {
				break
			}
		}
	}
	return found, nil
}

func newFound(r row, tags map[string]string, id string) Found {
	f := Found{ID: r.text(id), Run: tags[RunTag], Instance: tags[InstanceTag]}
	for _, holder := range append(holders(r), r.text("InstanceId")) {
		if holder != "" && holder != f.Instance && !slices.Contains(f.Elsewhere, holder) {
			f.Elsewhere = append(f.Elsewhere, holder)
		}
	}
	return f
}

// Sweep removes what a run has left, or with an empty run what all have, and
// returns the IDs of it. A disk that is attached elsewhere than by its run is
// left where it is; the error names it.
func (c *Client) Sweep(ctx context.Context, run string) ([]string, error) {
	found, err := c.Find(ctx, run)
	if err != nil {
		return nil, err
	}
	var removed []string
	var errs []error
	for _, f := range found {
		if len(f.Elsewhere) > 0 {
			errs = append(errs, fmt.Errorf("%s is left: it is attached to %s, and its run attached disks to %q only", f.ID, strings.Join(f.Elsewhere, ", "), f.Instance))
			continue
		}
		own := *c
		own.Instance = f.Instance
		if err := own.Remove(ctx, []string{f.ID}); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, f.ID)
	}
	return removed, errors.Join(errs...)
}
