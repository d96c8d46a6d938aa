package bodies

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/test/need"
)

// loops are what the bodies of disks need.
var loops = append(need.Programs("losetup", "blockdev", "partx"), need.LoopDevices)

// fake is a cloud that is as the test says.
type fake struct {
	disks   []state.DiskState
	shots   []state.SnapshotState
	devices map[string][]state.Device
}

func (f *fake) Disks() []state.DiskState         { return f.disks }
func (f *fake) Snapshots() []state.SnapshotState { return f.shots }
func (f *fake) Devices(instance string) ([]state.Device, error) {
	devices, is := f.devices[instance]
	if !is {
		return nil, errors.New("no such instance")
	}
	return devices, nil
}

func (f *fake) AwaitChange(ctx context.Context, _ int) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

func TestADiskKeepsItsBytesWhereverItGoes(t *testing.T) {
	need.Has(t, loops...)
	dir := t.TempDir()
	cloud := &fake{devices: map[string][]state.Device{"i-1": nil, "i-2": nil}}
	links := map[string]string{"i-1": filepath.Join(dir, "one"), "i-2": filepath.Join(dir, "two"), "i-3": filepath.Join(dir, "three")}
	k, err := New(cloud, filepath.Join(dir, "bodies"), links, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	update := func() {
		t.Helper()
		if err := k.Update(); err != nil {
			t.Fatal(err)
		}
	}
	one, two := filepath.Join(links["i-1"], "virtio-a"), filepath.Join(links["i-2"], "virtio-a")

	cloud.disks = []state.DiskState{{ID: "d-a", Size: 1}}
	cloud.devices["i-1"] = []state.Device{{Serial: "a", Disk: "d-a", Size: 1}}
	update()
	write(t, one, "first")
	cloud.shots = []state.SnapshotState{{ID: "s-1", Disk: "d-a", Size: 1}}
	update()
	write(t, one, "later")

	cloud.devices["i-1"] = nil
	cloud.devices["i-2"] = []state.Device{{Serial: "a", Disk: "d-a", Size: 2}}
	update()
	if _, err := os.Lstat(one); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the first instance sees the disk still: %v", err)
	}
	if got := read(t, two); got != "later" {
		t.Errorf("the second instance reads %q", got)
	}
	if size, err := exec.Command("blockdev", "--getsize64", two).Output(); err != nil || strings.TrimSpace(string(size)) != "2147483648" {
		t.Errorf("it has %s bytes, %v", size, err)
	}

	cloud.disks = append(cloud.disks, state.DiskState{ID: "d-b", Size: 3, Source: "s-1"})
	cloud.devices["i-1"] = []state.Device{{Serial: "b", Disk: "d-b", Size: 3}}
	update()
	if got := read(t, filepath.Join(links["i-1"], "virtio-b")); got != "first" {
		t.Errorf("a disk made of the snapshot holds %q", got)
	}

	cloud.disks, cloud.shots, cloud.devices = nil, nil, map[string][]state.Device{}
	update()
	for _, d := range append([]string{k.dir}, links["i-1"], links["i-2"]) {
		left, err := os.ReadDir(d)
		left = slices.DeleteFunc(left, func(e os.DirEntry) bool { return e.Name() == lockName })
		if err != nil || len(left) > 0 {
			t.Errorf("left in %s are %v, %v", d, left, err)
		}
	}
}

func TestPartitionsHaveTheirNamesWhileTheDiskIsThere(t *testing.T) {
	need.Has(t, append(loops, need.Program("sfdisk"))...)
	dir := t.TempDir()
	cloud := &fake{disks: []state.DiskState{{ID: "d-a", Size: 1}}, devices: map[string][]state.Device{"i-1": nil}}
	links := map[string]string{"i-1": filepath.Join(dir, "one")}
	k, err := New(cloud, filepath.Join(dir, "bodies"), links, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	attached := func(is bool, want ...string) {
		t.Helper()
		cloud.devices["i-1"] = nil
		if is {
			cloud.devices["i-1"] = []state.Device{{Serial: "a", Disk: "d-a", Size: 1}}
		}
		if err := k.Update(); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(links["i-1"])
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, entry := range entries {
			got = append(got, entry.Name())
		}
		if !slices.Equal(got, want) {
			t.Errorf("the instance sees %q, want %q", got, want)
		}
	}
	attached(true, "virtio-a")
	table := exec.Command("sfdisk", "--quiet", filepath.Join(links["i-1"], "virtio-a"))
	table.Stdin = strings.NewReader("label: gpt\n,500M\n,\n")
	if out, err := table.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	attached(false)
	attached(true, "virtio-a", "virtio-a-part1", "virtio-a-part2")
	if size, err := exec.Command("blockdev", "--getsize64", filepath.Join(links["i-1"], "virtio-a-part1")).Output(); err != nil || strings.TrimSpace(string(size)) != "524288000" {
		t.Errorf("the first partition has %s bytes, %v", size, err)
	}
	attached(false)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte(text), 5000)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	text := make([]byte, 5)
	if _, err := f.ReadAt(text, 5000); err != nil {
		t.Fatal(err)
	}
	return string(text)
}
