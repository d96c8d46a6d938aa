package node

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"
)

// records say what this node did with disks. They outlive the process and the node's power: they lie below the plugin's directory.
type records struct {
	dir string
}

// rememberedFor is how long a record is kept. Of attachments that are older the node knows nothing.
const rememberedFor = 7 * 24 * time.Hour

func (r records) since() string               { return filepath.Join(r.dir, "since") }
func (r records) used(serial string) string   { return filepath.Join(r.dir, "used", serial) }
func (r records) growth(serial string) string { return filepath.Join(r.dir, "growing", serial) }

// begin notes since when the node keeps records, unless it does already, and drops the old ones.
func (r records) begin() error {
	if _, err := r.begun(); err != nil {
		if err := writeDurably(r.since(), time.Now().UTC().Format(time.RFC3339Nano)); err != nil {
			return hostError("note since when the node keeps records", err)
		}
	}
	all, err := filepath.Glob(r.used("*"))
	for _, record := range all {
		if info, err := os.Lstat(record); err == nil && time.Since(info.ModTime()) > 2*rememberedFor {
			if err := remove(record); err != nil {
				klog.ErrorS(err, "An old record of a disk is left")
			}
		}
	}
	return err
}

// begun returns since when the node keeps records.
func (r records) begun() (time.Time, error) {
	text, err := os.ReadFile(r.since())
	if err != nil {
		return time.Time{}, err
	}
	return time.Parse(time.RFC3339Nano, string(text))
}

// note records that a disk is used on this node. It is on the node's disk when it returns, also if a process that was killed has written it.
func (r records) note(serial string) error {
	write := func() error { return writeDurably(r.used(serial), "") }
	if _, err := os.Lstat(r.used(serial)); err == nil {
		write = func() error { return errors.Join(syncDir(filepath.Dir(r.used(serial))), syncDir(r.dir)) }
	}
	return hostError("record that the disk is used on this node", write())
}

// has says whether the node has recorded that it uses a disk. What can't be read counts as a record.
func (r records) has(serial string) bool {
	_, err := os.Lstat(r.used(serial))
	return !errors.Is(err, os.ErrNotExist)
}

// noteGrowth records that in an attachment of a disk its file system is being grown while it isn't mounted. A crash in the middle leaves
// it as no kernel mounts it.
func (r records) noteGrowth(u volumeUse) error {
	return hostError("record that the file system is being grown", writeDurably(r.growth(u.serial), u.attached))
}

// isGrowing says whether such a growth was cut short in this attachment of the disk. Of one whose time isn't known that can't be told.
func (r records) isGrowing(u volumeUse) bool {
	attached, err := os.ReadFile(r.growth(u.serial))
	return err == nil && u.attached != "" && string(attached) == u.attached
}

// endGrowth takes the record of a growth back, for good when it returns.
func (r records) endGrowth(u volumeUse) error {
	record := r.growth(u.serial)
	if _, err := os.Lstat(record); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return hostError("end the record that the file system is being grown", errors.Join(remove(record), syncDir(filepath.Dir(record))))
}

// cover says whether the node has kept records since a disk was attached, at a time of ECS's. It hasn't if it was set up anew since.
func (r records) cover(attached string) bool {
	at, granularity, ok := timeOfECS(attached)
	begun, err := r.begun()
	if old := time.Now().Add(-rememberedFor); begun.Before(old) {
		begun = old
	}
	return ok && err == nil && !at.Add(granularity).Before(begun)
}

// timeOfECS reads a time that ECS shows to the second or, as the page of DescribeDisks has it, to the minute.
func timeOfECS(text string) (at time.Time, granularity time.Duration, ok bool) {
	if at, err := time.Parse(time.RFC3339, text); err == nil && at.Second() != 0 {
		return at, time.Second, true
	}
	for _, form := range []string{time.RFC3339, "2006-01-02T15:04Z"} {
		if at, err := time.Parse(form, text); err == nil {
			return at, time.Minute, true
		}
	}
	return time.Time{}, 0, false
}
