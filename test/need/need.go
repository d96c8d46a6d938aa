// Package need says what a test needs of the machine besides Go. Where that is missing the test is skipped, in words that
// test/run adds up; with CI=true it fails, if a package or root would give it what it needs.
package need

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/test/lab/programs"
)

// Thing is something that a machine may lack.
type Thing struct {
	name  string
	check func() error // a lack, or another error if whoever runs the tests can't help it
}

// lack is what is missing, and what a machine of CI can have it from.
type lack struct {
	from string
	err  error
}

func (l lack) Error() string { return l.err.Error() }

// packages are the Debian packages of the programs that tests may need.
var packages = map[string]string{
	"blkid": "util-linux", "blockdev": "util-linux", "mkswap": "util-linux", "nsenter": "util-linux", "partx": "util-linux",
	"losetup": "mount", "mount": "mount",
	"debugfs": "e2fsprogs", "tune2fs": "e2fsprogs", "dumpe2fs": "e2fsprogs", "e2fsck": "e2fsprogs", "resize2fs": "e2fsprogs",
	"mkfs.ext3": "e2fsprogs", "mkfs.ext4": "e2fsprogs",
	"mkfs.xfs": "xfsprogs", "xfs_db": "xfsprogs", "xfs_growfs": "xfsprogs", "xfs_io": "xfsprogs", "xfs_repair": "xfsprogs",
	"sfdisk": "fdisk",
	"ip":     "iproute2",
	"node":   "nodejs", "npm": "npm",
	"curl": "curl",
}

// Program is a program in PATH.
func Program(name string) Thing {
	return Thing{name, func() error {
		from, known := packages[name]
		if !known {
			return fmt.Errorf("test/need doesn't know which Debian package has %s", name)
		}
		if _, err := look(name); err != nil {
			return lack{"package " + from, err}
		}
		return nil
	}}
}

// look is exec.LookPath, also in root's part of PATH, which others need not have: what they lack is root, not the package.
func look(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil || os.Geteuid() == 0 {
		return path, err
	}
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", err
}

// Commit is a commit in the clone's history.
func Commit(hash string) Thing {
	return Thing{"commit " + hash, func() error {
		root, err := programs.FindRoot()
		if err != nil {
			return err
		}
		if err := programs.CheckCommit(root, hash); err != nil {
			return lack{"a full clone", err}
		}
		return nil
	}}
}

// Knows says whether a program is one that a machine may lack.
func Knows(program string) bool { return packages[program] != "" }

// Programs is Program for several.
func Programs(names ...string) []Thing {
	var things []Thing
	for _, name := range names {
		things = append(things, Program(name))
	}
	return things
}

// Has skips the test if the machine lacks any of the things, and says which.
func Has(t testing.TB, things ...Thing) {
	t.Helper()
	_ = os.Getenv(machineKey) // so that Go doesn't take the result from its cache once the machine has changed
	var says []string
	fails := false
	for _, thing := range things {
		err := thing.check()
		if err == nil {
			continue
		}
		from := "another machine"
		if l := (lack{}); errors.As(err, &l) {
			from = l.from
			fails = fails || os.Getenv("CI") == "true"
		}
		says = append(says, fmt.Sprintf("needs %s (%s): %v", thing.name, from, err))
	}
	switch {
	case fails:
		t.Fatalf("CI=true, and the test is not to be skipped: it\n%s", strings.Join(says, "\n"))
	case len(says) > 0:
		t.Skip(strings.Join(says, "\n"))
	}
}

// Need is what a skipped test says it needs.
type Need struct {
	Name string // such as mkfs.xfs
	From string // such as package xfsprogs
}

var said = regexp.MustCompile(`(?m)^[ \t]*(?:\S+: )?needs ([^()\n]+) \(([^()\n]+)\): `)

// Said returns the needs in what a skipped test has printed.
func Said(output string) []Need {
	var needs []Need
	for _, match := range said.FindAllStringSubmatch(output, -1) {
		needs = append(needs, Need{Name: strings.TrimSpace(match[1]), From: match[2]})
	}
	return needs
}

// machineKey in the environment has Machine's text.
const machineKey = "TOPODISK_TEST_MACHINE"

// Machine is for the environment of `go test`. It says what this machine has of all that tests may need, for Go takes the
// results of tests from its cache even when a program was installed since, or the user is another one.
func Machine() string {
	has := []string{fmt.Sprint("uid=", os.Geteuid())}
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		has = append(has, regexp.MustCompile(`CapEff:\s*\w*`).FindString(string(status)))
	}
	for name := range packages {
		if path, err := look(name); err == nil {
			has = append(has, path)
		}
	}
	slices.Sort(has)
	return machineKey + "=" + strings.Join(has, " ")
}
