package node

import (
	"slices"
	"sync"

	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// Events tells the owner of a volume what no call can answer as an error, because the
// volume is of use.
type Events interface {
	// Warn returns at once and never fails. It says the same of a volume at most once
	// an hour.
	Warn(volume disk.ID, reason, message string)
}

// noEvents tells nobody.
type noEvents struct{}

func (noEvents) Warn(disk.ID, string, string) {}

// fileSystemNotGrown is the reason of an event, and of NodeGetVolumeHealth, of a volume
// whose file system doesn't fill its disk.
const fileSystemNotGrown = "FileSystemNotGrown"

// noteGrowth says what came of letting the file system of a volume fill its disk.
func (s *Server) noteGrowth(u volumeUse, e extent, err error) {
	switch {
	case err == nil:
		s.grown(u.volume)
	case e.size == 0:
		klog.ErrorS(err, "It is not known whether the file system of a volume fills its disk", "volume", u.volume)
	default:
		s.notGrown(u, err)
	}
}

// notGrown says of a volume that it is used though its file system doesn't fill its disk.
func (s *Server) notGrown(u volumeUse, err error) {
	klog.ErrorS(err, "A volume is used though its file system doesn't fill its disk", "volume", u.volume)
	s.ungrown.add(u.volume)
	s.events.Warn(u.volume, fileSystemNotGrown, "The volume is used as it is: "+err.Error())
}

// grown says of a volume that its file system fills its disk.
func (s *Server) grown(volume disk.ID) { s.ungrown.remove(volume) }

// isShort says whether the file system at a path, as it was measured, doesn't fill its
// disk, and has NotGrown count the volume: a process before this one may have mounted
// it. One that is for reading is left as it is.
func (s *Server) isShort(volume disk.ID, at mountPoint, m measurement) bool {
	if m.complaint() != "" || m.extents != nil {
		return false
	}
	if m.extent.isFilled() || slices.Contains(at.SuperOptions, "ro") {
		s.ungrown.remove(volume)
		return false
	}
	s.ungrown.add(volume)
	if _, mounted, err := s.mounts.at(at.MountPoint); err == nil && !mounted {
		s.ungrown.remove(volume) // unmounted meanwhile
	}
	return true
}

// NotGrown returns how many volumes are mounted whose file systems don't fill their
// disks, by what the node has last seen of each.
func (s *Server) NotGrown() int { return s.ungrown.count() }

// ungrown are the volumes whose file systems don't fill their disks.
type ungrown struct {
	mu      sync.Mutex
	volumes map[disk.ID]inVain
}

// inVain is why unmounting a file system did not let it fill a disk of a size; zero if
// that wasn't tried since it was staged.
type inVain struct {
	size int64
	why  error
}

func (g *ungrown) add(volume disk.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, counted := g.volumes[volume]; !counted {
		g.volumes[volume] = inVain{}
	}
}

func (g *ungrown) remove(volume disk.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.volumes, volume)
}

func (g *ungrown) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.volumes)
}

func (g *ungrown) noteInVain(volume disk.ID, size int64, why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.volumes[volume] = inVain{size, why}
}

// inVain returns why unmounting a file system did not let it fill a disk of a size.
func (g *ungrown) inVain(volume disk.ID, size int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if tried := g.volumes[volume]; tried.size == size {
		return tried.why
	}
	return nil
}
