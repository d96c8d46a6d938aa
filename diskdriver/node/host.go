package node

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// run runs a program to its end, whatever becomes of the caller, and returns its output. The error has how all that it says begins and
// ends.
func run(input, program string, args ...string) ([]byte, error) {
	command := exec.Command(program, args...)
	command.Stdin = strings.NewReader(input)
	return output(command)
}

// output is run for a program that takes more than arguments.
func output(command *exec.Cmd) ([]byte, error) {
	var said bytes.Buffer
	command.Stderr = &said
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(command.Args, " "), err, brief(append(out, said.Bytes()...)))
	}
	return out, nil
}

// exitCode is how a program ended, if the error says so.
func exitCode(err error) int {
	exit := (*exec.ExitError)(nil)
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// oneLine puts what a program says into one line.
func oneLine(output string) string { return strings.Join(strings.Fields(output), " ") }

// brief puts what a program says into one line, and leaves the middle of a long text out.
func brief(output []byte) string {
	const end = 200
	text := oneLine(string(output))
	if len(text) <= 2*end {
		return text
	}
	return strings.ToValidUTF8(text[:end], "") + " ... " + strings.ToValidUTF8(text[len(text)-end:], "")
}

// writeDurably writes a file whose content and name are on the disk when it returns, and makes its directories.
func writeDurably(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	for at := path; at != filepath.Dir(at); {
		at = filepath.Dir(at)
		if err := syncDir(at); err != nil {
			return err
		}
	}
	return nil
}

// syncDir waits until the names in a directory are on the disk.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// remove removes a file or an empty directory. Nothing there is success, on a file system that can't be written to, too.
func remove(path string) error {
	err := os.Remove(path)
	if _, missing := os.Lstat(path); errors.Is(missing, os.ErrNotExist) {
		return nil
	}
	return err
}

// hostError is the error of writing to the host's own file system.
func hostError(doing string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.EDQUOT) {
		return disk.Errorf(disk.Blocked, "%s: %w: this node's own file system takes no more; give it space, or make it writable", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// checkRoom refuses what takes room on the node that isn't there.
func checkRoom(u volumeUse, dir string, need int64, why string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return hostError("make a directory of the plugin", err)
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return fmt.Errorf("look for room on the node: %w", err)
	}
	if free := int64(stat.Bavail) * stat.Bsize; free < need {
		return u.blockedError("%s, and %s has %d MiB of the %d that may be needed; make room on the node; %s", why, dir, free>>20, need>>20, untouched)
	}
	return nil
}
