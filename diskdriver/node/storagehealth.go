package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// What can be wrong with the disks of a node as a whole: the reasons of NodeGetStorageHealth.
const (
	noneAnswers = "NoDiskAnswers"
	someDoNot   = "SomeDisksDoNotAnswer"
)

// hangsAfter is how long a disk may have requests and complete none of them. ECS disks answer in milliseconds.
const hangsAfter = 30 * time.Second

// NodeGetStorageHealth says whether the node's disks do what they are asked for
// (CSI spec, NodeGetStorageHealth). A disk hangs if it had requests to complete
// in this call and in earlier ones over half a minute, and completed none. One
// that nobody asks for anything is taken to be sound.
func (s *Server) NodeGetStorageHealth(context.Context, *csi.NodeGetStorageHealthRequest) (*csi.NodeGetStorageHealthResponse, error) {
	serials, err := s.devices.serials(s.paths.kubelet)
	if err != nil {
		return nil, err
	}
	var hanging []string
	names := map[string]bool{}
	for _, serial := range serials {
		d, found, err := s.devices.findOnce(serial)
		if err != nil || !found {
			continue // it comes or goes, or is for NodeStageVolume to complain about
		}
		names[d.name()] = true
		requests, err := s.devices.requests(d.name())
		if err != nil {
			return nil, err
		}
		if s.stalls.hangs(d.name(), requests) {
			hanging = append(hanging, serial)
		}
	}
	s.stalls.keep(names)
	response := &csi.NodeGetStorageHealthResponse{}
	if len(hanging) == 0 {
		return response, nil
	}
	health := &csi.NodeGetStorageHealthResponse_StorageBackendHealth{
		Status: csi.StorageHealthErrorType_STORAGE_DEGRADED, Reason: someDoNot,
		Message: fmt.Sprintf("%d of %d disks have completed nothing for %s: serial numbers %s", len(hanging), len(names), hangsAfter, strings.Join(hanging, ", ")),
	}
	if len(hanging) == len(names) {
		health.Status, health.Reason = csi.StorageHealthErrorType_STORAGE_UNREACHABLE, noneAnswers
	}
	response.BackendHealth = append(response.BackendHealth, health)
	return response, nil
}

// requests are those of a disk since it is there.
type requests struct{ completed, waiting uint64 }

// requests reads what the kernel counts of a disk (Linux,
// Documentation/block/stat.rst). A disk that has left has none.
func (ds devices) requests(name string) (r requests, err error) {
	text, err := os.ReadFile(filepath.Join(ds.sys, "block", name, "stat"))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("read the statistics of %s: %w", name, err)
	}
	const reads, writes, inFlight, discards, flushes = 0, 4, 8, 11, 15
	for i, field := range strings.Fields(string(text)) {
		n, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return r, fmt.Errorf("read the statistics of %s: %w", name, err)
		}
		switch i {
		case reads, writes, discards, flushes:
			r.completed += n
		case inFlight:
			r.waiting = n
		}
	}
	return r, nil
}

// stalls remembers of each disk since when it has completed nothing, though it
// had requests whenever it was looked at.
type stalls struct {
	mu   sync.Mutex
	seen map[string]stall // by the kernel's name of the disk
}

type stall struct {
	completed uint64
	since     time.Time
}

// hangs notes what a disk shows and says whether it hangs.
func (s *stalls) hangs(name string, r requests) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.seen[name]
	switch {
	case r.waiting == 0:
		delete(s.seen, name)
		return false
	case !known || before.completed != r.completed:
		if s.seen == nil {
			s.seen = map[string]stall{}
		}
		s.seen[name] = stall{r.completed, time.Now()}
		return false
	}
	return time.Since(before.since) >= hangsAfter
}

// keep forgets all disks but these, for another may get the name of one that
// has left.
func (s *stalls) keep(names map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.seen {
		if !names[name] {
			delete(s.seen, name)
		}
	}
}
