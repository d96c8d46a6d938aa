package node

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// fill lets the file system of a staged volume fill its disk: what was restored
// from a smaller disk is as small, and a call before this one may have been cut short
// between the mount and the growth. One that can't grow stays mounted as it is.
//
// Not every kernel lets a mounted file system grow, so one that nobody uses yet is
// unmounted for it.
func (s *Server) fill(u volumeUse, d device) error {
	e, short, lost := s.grow(u, d.number, u.staging)
	if lost != nil {
		s.ungrown.Delete(u.volume)
		return lost
	}
	s.noteGrowth(u.volume, e, short)
	return nil
}

// grow lets the file system that is mounted at a path, and the partition that it is in, fill its disk. If
// it doesn't, the first error says why and what to do; the file system is of use as it is. The other is why it isn't mounted any more:
// one that nobody uses and that doesn't grow where it is staged is unmounted for it, once since it was staged, for that may take long.
func (s *Server) grow(u volumeUse, number uint64, at string) (e extent, short, lost error) {
	e, err := s.devices.extent(number, at)
	if err != nil || e.isFilled() {
		return e, err, nil
	}
	if e.limit > 0 && e.room() > e.limit {
		return e, e.short(fmt.Errorf("without the feature 64bit it has at most %s; copy its files to a new volume to have more", inGiB(e.limit))), nil
	}
	if tried, _ := s.ungrown.Load(u.volume); tried != nil && tried.(inVain).size == e.whole.size {
		return e, tried.(inVain).why, nil
	}
	if e.on != e.whole {
		err = growPartition(e)
	}
	err = cmp.Or(e.growMounted(at), err)
	if now, failed := s.devices.extent(number, at); failed == nil {
		e = now
	}
	if err == nil && !e.isFilled() {
		err = errors.New("the programs that let it grow have ended without an error")
	}
	if err == nil {
		return e, nil, nil
	}
	if at == u.staging && !e.xfs && !e.clustered && e.on.size-e.size >= slack {
		if uses, failed := s.mounts.uses(number, at); failed == nil && len(uses) == 0 {
			short, lost = s.growUnmounted(u, e)
			return e, short, lost
		}
	}
	return e, e.short(err), nil
}

// growPartition lets the only partition of a disk fill it, and tells the kernel.
func growPartition(e extent) error {
	if e.room()-e.on.size < slack {
		return nil
	}
	if err := checkTable(e); err != nil {
		return err
	}
	number := strings.TrimLeft(strings.TrimPrefix(e.on.name(), e.whole.name()), "p")
	_, err := run(", +\n", "sfdisk", "--no-reread", "--no-tell-kernel", "-N", number, e.whole.path)
	if err == nil {
		_, err = run("", "partx", "--update", "--nr", number, e.whole.path)
	}
	if err != nil {
		return fmt.Errorf("make its partition larger: %w", err)
	}
	return nil
}

// checkTable refuses to make a partition larger that isn't alone in the table of its
// disk, or whose table has no numbers for what lies further back: sfdisk makes it
// smaller then.
func checkTable(e extent) error {
	var shown struct {
		Table struct {
			Label      string     `json:"label"`
			SectorSize int64      `json:"sectorsize"`
			Partitions []struct{} `json:"partitions"`
		} `json:"partitiontable"`
	}
	out, err := run("", "sfdisk", "--json", e.whole.path)
	if err == nil {
		err = json.Unmarshal(out, &shown)
	}
	t, reach := shown.Table, cmp.Or(shown.Table.SectorSize, 512)<<32
	switch {
	case err != nil:
		return fmt.Errorf("read the partition table: %w", err)
	case len(t.Partitions) != 1:
		return fmt.Errorf("its disk has %d partitions, and only one that is alone is made larger; do it by hand", len(t.Partitions))
	case t.Label == "gpt":
		return nil
	case t.Label != "dos":
		return fmt.Errorf("its partition is in a table of type %s; only those of type gpt and dos are made larger, so do it by hand", t.Label)
	case e.whole.size > reach:
		return fmt.Errorf("its partition is in a table of type dos, which reaches no further than %s; copy its files to a new volume to have more", inGiB(reach))
	}
	return nil
}

// growMounted lets a file system fill its device while it is mounted.
func (e extent) growMounted(at string) error {
	if e.xfs {
		_, err := run("", "xfs_growfs", "-d", at)
		return err
	}
	_, err := run("", "resize2fs", e.on.path)
	switch {
	case err != nil && e.clustered:
		return fmt.Errorf("%w; with the feature bigalloc it grows only while it is mounted, on a kernel that lets it: copy its files to a new volume to have more", err)
	case err != nil:
		return fmt.Errorf("%w; not every kernel lets it grow while it is mounted: delete the Pods that use the volume, and it grows before the next one starts", err)
	}
	return nil
}

// growUnmounted takes away the mount of an ext file system that nobody uses, lets it
// fill its device, and mounts it again, once what a growth that failed has left is
// repaired. The one error is why it doesn't fill it, the other why it isn't mounted
// any more.
func (s *Server) growUnmounted(u volumeUse, e extent) (short, err error) {
	m, _, err := s.mounts.at(u.staging)
	if err == nil {
		err = s.mounts.unmount(u.staging)
	}
	if err != nil {
		return err, nil // it is mounted still
	}
	// Its journal is empty now, so e2fsck finds what is wrong without writing.
	if _, short = run("", "e2fsck", "-f", "-n", e.on.path); short != nil {
		short = fmt.Errorf("%w; take a snapshot of the disk, and repair the file system by hand", short)
	} else if short, err = s.resizeUnmounted(u, e.on); err != nil {
		return short, err
	}
	if short != nil {
		short = e.short(short)
		s.ungrown.Store(u.volume, inVain{e.whole.size, short})
	}
	return short, s.mountFileSystem(u, e.on, m.FsType)
}

// resizeUnmounted has resize2fs grow a file system that isn't mounted. The node records it for as long as a crash would leave what no
// kernel mounts. What it leaves is checked, whatever resize2fs says of it, and repaired if it isn't sound. The other error is why it must
// not be mounted.
func (s *Server) resizeUnmounted(u volumeUse, d device) (short, err error) {
	if err := s.records.noteGrowth(u); err != nil {
		return err, nil
	}
	_, short = run("", "resize2fs", "-f", d.path) // without -f it asks for an e2fsck that writes
	if _, err := run("", "e2fsck", "-f", "-n", d.path); err != nil {
		klog.ErrorS(err, "What a growth has left is repaired", "volume", u.volume, "device", d.path, "growth", short)
		super, err := d.superblock()
		if err == nil {
			err = s.repair(u, d, super)
		}
		return short, err
	}
	return short, d.sync()
}

// fileSystemNotGrown is the reason of an event, and of NodeGetVolumeHealth, of a volume
// whose file system doesn't fill its disk.
const fileSystemNotGrown = "FileSystemNotGrown"

// inVain is why unmounting a file system did not let it fill a disk of a size; zero if
// that wasn't tried since it was staged.
type inVain struct {
	size int64
	why  error
}

// noteGrowth says what came of letting the file system of a volume fill its disk: it is used all the same.
func (s *Server) noteGrowth(volume disk.ID, e extent, err error) {
	switch {
	case err == nil:
		s.ungrown.Delete(volume)
	case e.size == 0:
		klog.ErrorS(err, "It is not known whether the file system of a volume fills its disk", "volume", volume)
	default:
		klog.ErrorS(err, "A volume is used though its file system doesn't fill its disk", "volume", volume)
		s.ungrown.LoadOrStore(volume, inVain{})
		if s.events != nil {
			s.events.Warn(volume, fileSystemNotGrown, "The volume is used as it is: "+err.Error())
		}
	}
}

// isShort says whether the file system at a path, as it was measured, doesn't fill its
// disk, and has NotGrown count the volume: a process before this one may have mounted
// it. One that is for reading is left as it is.
func (s *Server) isShort(volume disk.ID, at mountPoint, m measurement) bool {
	if m.extents != nil {
		return false
	}
	if m.extent.isFilled() || slices.Contains(at.SuperOptions, "ro") {
		s.ungrown.Delete(volume)
		return false
	}
	s.ungrown.LoadOrStore(volume, inVain{})
	if _, mounted, err := s.mounts.at(at.MountPoint); err == nil && !mounted {
		s.ungrown.Delete(volume) // unmounted meanwhile
	}
	return true
}

// NotGrown returns how many volumes are mounted whose file systems don't fill their
// disks, by what the node has last seen of each.
func (s *Server) NotGrown() (n int) {
	s.ungrown.Range(func(any, any) bool {
		n++
		return true
	})
	return n
}
