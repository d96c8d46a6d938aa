package bodies

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// What a Keeper has in its directory beside the bodies: a file that is locked
// as long as the process lives, and that lists the directories of its links.
const lockName = "ecs-simulator.lock"

// The names of bodies and of links, as a Keeper makes them. Nothing that is
// called otherwise is removed.
var (
	bodyName = regexp.MustCompile(`^[ds]-[0-9a-z]{20}$`)
	linkName = regexp.MustCompile(`^virtio-([0-9a-z]{20})(` + partMark + `[0-9]+)?$`)
)

// claim locks a directory for this process, removes what an earlier process
// left there if it was killed, and notes the directories of the links.
func claim(dir string, links []string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the directory of the bodies of disks: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errors.New("another simulator that runs uses it: allowed is a directory of its own")
		}
		return nil, errors.Join(fmt.Errorf("directory %s: %w", dir, err), lock.Close())
	}
	if err := errors.Join(removeLeftovers(dir, lock, links), noteLinks(lock, links)); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// notesBegin is the first line of the lock's file, which says that the
// directory is a simulator's.
const notesBegin = "directories of links:"

// noteLinks writes the directories of the links into the lock's file, one a
// line.
func noteLinks(lock *os.File, links []string) error {
	if err := lock.Truncate(0); err != nil {
		return err
	}
	_, err := lock.WriteAt([]byte(strings.Join(append([]string{notesBegin}, links...), "\n")), 0)
	return err
}

// removeLeftovers removes the links, the loop devices and the bodies of an
// earlier process. A directory that none had is left as it is.
func removeLeftovers(dir string, lock *os.File, links []string) error {
	text, err := os.ReadFile(lock.Name())
	notes := strings.Split(string(text), "\n")
	if err != nil || notes[0] != notesBegin {
		return err
	}
	for _, earlier := range notes[1:] {
		if !slices.Contains(links, earlier) {
			links = append(slices.Clip(links), earlier)
		}
	}
	var errs []error
	for _, linkDir := range links {
		errs = append(errs, removeLinks(dir, linkDir))
	}
	if err := errors.Join(append(errs, detachLoops(dir))...); err != nil {
		return err // the bodies tell the next start whose the links are
	}
	return removeBodies(dir)
}

// removeLinks removes the links to loop devices that are named after bodies.
func removeLinks(dir, linkDir string) error {
	entries, err := os.ReadDir(linkDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, entry := range entries {
		match := linkName.FindStringSubmatch(entry.Name())
		if match == nil {
			continue
		}
		path := filepath.Join(linkDir, entry.Name())
		target, err := os.Readlink(path)
		if err != nil || !strings.HasPrefix(target, "/dev/loop") {
			continue // it is somebody else's
		}
		if _, err := os.Lstat(filepath.Join(dir, "d-"+match[1])); err == nil {
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}

// detachLoops detaches the loop devices whose backing file is in a directory.
// One that is mounted goes when it is unmounted.
func detachLoops(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return err
	}
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	errs := []error{err}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it was detached meanwhile
		}
		backing := strings.TrimSuffix(strings.TrimSpace(string(text)), " (deleted)")
		if filepath.Dir(backing) == real && bodyName.MatchString(filepath.Base(backing)) {
			device := filepath.Base(filepath.Dir(filepath.Dir(file)))
			errs = append(errs, run("losetup", "--detach", "/dev/"+device))
		}
	}
	return errors.Join(errs...)
}

// removeBodies removes the bodies in a directory.
func removeBodies(dir string) error {
	entries, err := os.ReadDir(dir)
	errs := []error{err}
	for _, entry := range entries {
		if bodyName.MatchString(entry.Name()) && entry.Type().IsRegular() {
			errs = append(errs, os.Remove(filepath.Join(dir, entry.Name())))
		}
	}
	return errors.Join(errs...)
}
