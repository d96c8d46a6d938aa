package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

const (
	// undoLimit is how many bytes a repair may overwrite.
	undoLimit = 1 << 30
	// fsckCorrected is how e2fsck ends if all that it has found is corrected (its manual page).
	fsckCorrected = 1
)

// repair has e2fsck repair what it can repair without asking, if the kernel has noted errors in the file system, and what a growth of this
// node's that was cut short has left. Else the kernel itself judges: it replays the journal, and mounts no file system that it finds
// damaged. What e2fsck overwrites is kept on the node, and put back if the file system can't be repaired that way. xfs is never repaired.
func (s *Server) repair(u volumeUse, d device, super superblock) error {
	undo, err := s.undoFile(u)
	if err == nil {
		err = playBack(u, d, super, undo)
	}
	if err != nil {
		return err
	}
	growing := s.records.isGrowing(u)
	if u.readOnly || super.fsType == "xfs" || !growing && (u.unchecked || !super.hasErrors) {
		return nil
	}
	if err := checkRoom(u, filepath.Dir(undo), undoLimit, "the kernel has noted errors in the file system"); err != nil {
		return err
	}
	out, err := fsck(d, undo, growing)
	switch {
	case err == nil, exitCode(err) == fsckCorrected:
		klog.InfoS("A file system was repaired", "volume", u.volume, "device", d.path, "growthCutShort", growing, "output", out)
		return remove(undo)
	case exitCode(err) == 0:
		return fmt.Errorf("run e2fsck: %w", err)
	}
	if err := undoAll(u, d, undo); err != nil {
		return err
	}
	if strings.Contains(out, "Input/output error") || strings.Contains(out, "short read") || strings.Contains(out, "Error reading block") {
		return u.blockedError("the disk can't be read: e2fsck of %s: %s. That is an error of the disk or of the way to it, not of what is on it: %s", d.path, out, untouched)
	}
	return u.blockedError("the kernel has noted errors in the file system, and e2fsck can't repair it by itself: %s; what it wrote to %s was put back. Take a snapshot of the disk, then repair it by hand, or restore a snapshot", out, d.path)
}

// fsck runs e2fsck, which copies what it overwrites to a file first, and returns what it prints. What a growth that was cut short has left
// it mends as it thinks best, which is known to be right; of anything else it asks for nothing and gives up in doubt.
func fsck(d device, undo string, growing bool) (string, error) {
	args := []string{"-p"}
	if growing {
		args = []string{"-f", "-y"}
	}
	cmd := exec.Command("e2fsck", append(args, "-z", undo, d.path)...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return "", err
	}
	limit := unix.Rlimit{Cur: undoLimit, Max: undoLimit}
	if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_FSIZE, &limit, nil); err != nil {
		klog.ErrorS(err, "The size of the undo file has no bound", "file", undo)
	}
	err := cmd.Wait()
	return oneLine(out.String()), err
}

// undoFile returns where what a repair overwrites is kept. It is of one attachment, for what it holds is wrong once the disk was
// elsewhere: what is left of earlier ones goes.
func (s *Server) undoFile(u volumeUse) (string, error) {
	at, _, _ := timeOfECS(u.attached)
	undo := filepath.Join(s.plugin, "undo", fmt.Sprintf("%s.%d.e2undo", u.serial, at.Unix()))
	left, err := filepath.Glob(filepath.Join(s.plugin, "undo", u.serial+".*"))
	for _, file := range left {
		if file != undo {
			err = errors.Join(err, remove(file))
		}
	}
	return undo, err
}

// playBack puts back what an earlier process's repair has overwritten, unless that left the file system sound. What e2fsck was killed
// over can't be put back: e2fsck begins again.
func playBack(u volumeUse, d device, super superblock, undo string) error {
	f, err := os.Open(undo)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for what a repair has overwritten: %w", err)
	}
	complete, err := isComplete(f)
	_ = f.Close()
	if err != nil {
		return fmt.Errorf("look at what a repair has overwritten: %w", err)
	}
	if u.readOnly || super.whole && !super.hasErrors || !complete {
		return remove(undo)
	}
	if err := undoAll(u, d, undo); err != nil { // e2undo writes nothing to a file system that was written to since
		klog.ErrorS(err, "What an earlier repair has overwritten is not put back", "volume", u.volume, "device", d.path)
		return remove(undo)
	}
	return nil
}

// isComplete says whether e2fsck has closed its undo file (e2fsprogs, lib/ext2fs/undo_io.c). e2undo does nothing with another one, and
// reports success.
func isComplete(undo io.Reader) (bool, error) {
	const size, state, finished = 48, 44, 1
	head := make([]byte, size)
	switch _, err := io.ReadFull(undo, head); err {
	case nil:
		return binary.LittleEndian.Uint32(head[state:])&finished != 0, nil
	case io.EOF, io.ErrUnexpectedEOF:
		return false, nil
	default:
		return false, err
	}
}

// undoAll puts back what a repair has overwritten.
func undoAll(u volumeUse, d device, undo string) error {
	f, err := os.Open(undo)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it has overwritten nothing
	}
	complete := false
	if err == nil {
		complete, err = isComplete(f)
		err = errors.Join(err, f.Close())
	}
	if err == nil && !complete {
		err = fmt.Errorf("e2fsck was ended before it was done, as it is once it has overwritten %d GiB", undoLimit>>30)
	}
	if err == nil {
		_, err = run("", "e2undo", undo, d.path)
	}
	if err != nil {
		return u.blockedError("what a repair has overwritten on %s is not put back: %w; take a snapshot of the disk before anything else", d.path, err)
	}
	return remove(undo)
}
