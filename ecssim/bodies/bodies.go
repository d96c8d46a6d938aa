// Package bodies stores the data of simulated disks: in files behind loop
// devices, which instances see under the names that udev gives to ECS disks. What
// is written to one is there when the disk is attached elsewhere, snapshots and
// the disks made of them have a copy. It works on Linux, for root.
package bodies

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/topodisk/topodisk/ecssim/state"
)

// Cloud is the part of the simulator that says what there is.
type Cloud interface {
	// Disks returns the disks that exist.
	Disks() []state.DiskState
	// Snapshots returns the snapshots that exist.
	Snapshots() []state.SnapshotState
	// Devices returns the data disks that the guest of an instance sees.
	Devices(instance string) ([]state.Device, error)
	// AwaitChange waits until there were more changes than those seen, and
	// returns how many there were. The error is that of ctx.
	AwaitChange(ctx context.Context, seen int) (int, error)
}

// Keeper keeps the bodies as the cloud says.
type Keeper struct {
	cloud Cloud
	dir   string
	links map[string]string // by instance: the directory of its links, as /dev/disk/by-id
	lock  *os.File          // of dir

	stop     context.CancelFunc // ends follower
	follower sync.WaitGroup

	mu     sync.Mutex
	files  map[string]int   // GiB of each body, by the ID of its disk or snapshot
	drives map[string]drive // by disk
}

// drive is the loop device of a disk that one or more instances see.
type drive struct {
	loop string // such as /dev/loop3
	size int    // GiB that the guests see
	seen map[string]bool
}

// New returns a Keeper that keeps bodies in dir, and makes the links of each
// instance in a directory of its own. What an earlier process left in dir when
// it was killed is removed: its loop devices, links and bodies. A directory
// that another process uses is refused. Until Close the bodies are updated at every
// change that the cloud tells of, also without a call; failed is told of updates that
// fail. On a system that is not Linux New returns an error.
func New(cloud Cloud, dir string, links map[string]string, failed func(error)) (*Keeper, error) {
	if runtime.GOOS != "linux" {
		return nil, errors.New("this needs Linux, for its loop devices")
	}
	for _, d := range append(slices.Sorted(maps.Values(links)), dir) {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, fmt.Errorf("make a directory for the bodies of disks: %w", err)
		}
	}
	lock, err := claim(dir, absolute(links))
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	k := &Keeper{cloud: cloud, dir: dir, links: links, lock: lock, stop: stop, files: map[string]int{}, drives: map[string]drive{}}
	k.follower.Go(func() { k.follow(ctx, failed) })
	return k, nil
}

// absolute returns the directories of links as every process finds them.
func absolute(links map[string]string) []string {
	var dirs []string
	for _, instance := range slices.Sorted(maps.Keys(links)) {
		dir, err := filepath.Abs(links[instance])
		if err != nil {
			dir = links[instance] // there is no working directory
		}
		dirs = append(dirs, dir)
	}
	return dirs
}

// Update makes the bodies what the cloud says they are now. It is called before
// every reply, for a snapshot holds what its disk held then.
func (k *Keeper) Update() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	disks, shots := k.cloud.Disks(), k.cloud.Snapshots()
	return errors.Join(k.make(disks, shots), k.plug(), k.drop(disks, shots))
}

// follow updates the bodies at every change until ctx ends: a device may come after
// the last reply.
func (k *Keeper) follow(ctx context.Context, failed func(error)) {
	for seen := 0; ; {
		var err error
		if seen, err = k.cloud.AwaitChange(ctx, seen); err != nil {
			return
		}
		if err := k.Update(); err != nil {
			failed(err)
		}
	}
}

// Close takes every device away from every instance and lets another process
// use the directory. Bodies stay until then.
func (k *Keeper) Close() error {
	k.stop()
	k.follower.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(k.drives)) {
		errs = append(errs, k.unplug(id, k.drives[id].seen))
	}
	return errors.Join(append(errs, k.lock.Close())...)
}

func (k *Keeper) path(id string) string { return filepath.Join(k.dir, id) }

// make gives a body to what is new. Snapshots come first, for a new disk may be
// made from a new one. The disk of a new snapshot has its body already: Update
// runs before every reply.
func (k *Keeper) make(disks []state.DiskState, shots []state.SnapshotState) error {
	var errs []error
	for _, n := range shots {
		if _, is := k.files[n.ID]; !is {
			errs = append(errs, k.body(n.ID, n.Disk, n.Size))
		}
	}
	for _, d := range disks {
		if _, is := k.files[d.ID]; !is {
			errs = append(errs, k.body(d.ID, d.Source, d.Size))
		}
	}
	return errors.Join(errs...)
}

// body makes a body of so many GiB: a copy of another, or zeros if there is
// none.
func (k *Keeper) body(id, of string, gib int) error {
	if _, is := k.files[of]; is {
		if err := run("cp", "--sparse=always", "--reflink=auto", k.path(of), k.path(id)); err != nil {
			return err
		}
	}
	if err := k.stretch(id, gib); err != nil {
		return err
	}
	k.files[id] = gib
	return nil
}

// stretch makes a body's file so large.
func (k *Keeper) stretch(id string, gib int) error {
	f, err := os.OpenFile(k.path(id), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("make the body of %s: %w", id, err)
	}
	return errors.Join(f.Truncate(int64(gib)<<30), f.Close())
}

// plug lets every instance see its devices, and no others.
func (k *Keeper) plug() error {
	var errs []error
	wanted := map[string]map[string]state.Device{} // by disk, by instance
	for _, instance := range slices.Sorted(maps.Keys(k.links)) {
		devices, err := k.cloud.Devices(instance)
		if err != nil {
			continue // the instance is gone, and so are its devices
		}
		for _, d := range devices {
			if wanted[d.Disk] == nil {
				wanted[d.Disk] = map[string]state.Device{}
			}
			wanted[d.Disk][instance] = d
		}
	}
	for _, id := range slices.Sorted(maps.Keys(k.drives)) {
		gone := maps.Clone(k.drives[id].seen)
		maps.DeleteFunc(gone, func(instance string, _ bool) bool { _, is := wanted[id][instance]; return is })
		errs = append(errs, k.unplug(id, gone))
	}
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		for _, instance := range slices.Sorted(maps.Keys(wanted[id])) {
			errs = append(errs, k.show(id, instance, wanted[id][instance]))
		}
	}
	return errors.Join(errs...)
}

// show lets an instance see a disk at its size.
func (k *Keeper) show(id, instance string, d state.Device) error {
	v, is := k.drives[id]
	if !is {
		if err := k.stretch(id, d.Size); err != nil {
			return err
		}
		loop, err := output("losetup", "--find", "--show", "--partscan", k.path(id))
		if err != nil {
			return err
		}
		v = drive{loop: loop, size: d.Size, seen: map[string]bool{}}
		k.drives[id] = v
		// The kernel remembers of a loop device what the last body was.
		if err := run("blockdev", "--setrw", loop); err != nil {
			return err
		}
	}
	if d.Size > v.size {
		if err := errors.Join(k.stretch(id, d.Size), run("losetup", "--set-capacity", v.loop)); err != nil {
			return err
		}
		v.size = d.Size
		k.drives[id] = v
	}
	if v.seen[instance] {
		return nil
	}
	v.seen[instance] = true
	parts, err := v.partitions()
	errs := []error{err, os.Symlink(v.loop, k.link(instance, id))}
	for _, number := range parts {
		errs = append(errs, os.Symlink(v.loop+"p"+number, k.link(instance, id)+partMark+number))
	}
	return errors.Join(errs...)
}

// link is the name that udev gives to a disk. That of a partition has partMark and its number behind it.
func (k *Keeper) link(instance, id string) string {
	return filepath.Join(k.links[instance], "virtio-"+strings.TrimPrefix(id, "d-"))
}

const partMark = "-part"

// partitions returns the numbers of the disk's partitions. Not every kernel reads the tables of loop devices by itself.
func (v drive) partitions() (numbers []string, err error) {
	exec.Command("partx", "--update", v.loop).Run() //nolint:errcheck // it fails where there is no table
	name := filepath.Base(v.loop)
	paths, err := filepath.Glob(filepath.Join("/sys/block", name, name+"p*"))
	for _, path := range paths {
		numbers = append(numbers, strings.TrimPrefix(filepath.Base(path), name+"p"))
	}
	return numbers, err
}

// unplug removes a disk's links from instances, and its loop device once no
// instance is left.
func (k *Keeper) unplug(id string, instances map[string]bool) error {
	v := k.drives[id]
	var errs []error
	for instance := range instances {
		delete(v.seen, instance)
		parts, err := filepath.Glob(k.link(instance, id) + partMark + "*")
		errs = append(errs, err)
		for _, link := range append(parts, k.link(instance, id)) {
			errs = append(errs, os.Remove(link))
		}
	}
	if len(v.seen) == 0 {
		delete(k.drives, id)
		errs = append(errs, run("losetup", "--detach", v.loop))
	}
	return errors.Join(errs...)
}

// drop removes the bodies of what doesn't exist any more.
func (k *Keeper) drop(disks []state.DiskState, shots []state.SnapshotState) error {
	exist := map[string]bool{}
	for _, d := range disks {
		exist[d.ID] = true
	}
	for _, n := range shots {
		exist[n.ID] = true
	}
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(k.files)) {
		if !exist[id] {
			delete(k.files, id)
			errs = append(errs, os.Remove(k.path(id)))
		}
	}
	return errors.Join(errs...)
}

func run(name string, args ...string) error {
	_, err := output(name, args...)
	return err
}

func output(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %v: %w: %s", name, args, err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}
