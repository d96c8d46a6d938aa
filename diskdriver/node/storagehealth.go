package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
	serials, err := s.serials()
	if err != nil {
		return nil, err
	}
	shown := map[string]requests{}
	for _, serial := range serials {
		d, found, err := s.devices.findOnce(serial)
		if err != nil || !found {
			continue // it comes or goes, or is for NodeStageVolume to complain about
		}
		if shown[serial], err = s.devices.requests(d.name()); err != nil {
			return nil, err
		}
	}
	hanging := s.stalls.hanging(shown)
	if len(hanging) == 0 {
		return &csi.NodeGetStorageHealthResponse{}, nil
	}
	health := &csi.NodeGetStorageHealthResponse_StorageBackendHealth{
		Status: csi.StorageHealthErrorType_STORAGE_DEGRADED, Reason: someDoNot,
		Message: fmt.Sprintf("%d of %d disks have completed nothing for %s: serial numbers %s", len(hanging), len(shown), hangsAfter, strings.Join(hanging, ", ")),
	}
	if len(hanging) == len(shown) {
		health.Status, health.Reason = csi.StorageHealthErrorType_STORAGE_UNREACHABLE, noneAnswers
	}
	return &csi.NodeGetStorageHealthResponse{BackendHealth: []*csi.NodeGetStorageHealthResponse_StorageBackendHealth{health}}, nil
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
	seen map[string]stall // by serial number
}

type stall struct {
	completed uint64
	since     time.Time
}

// hanging notes what the disks of the node show, and returns the serial numbers of
// those that hang.
func (s *stalls) hanging(shown map[string]requests) (serials []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[string]stall{}
	for serial, r := range shown {
		if r.waiting == 0 {
			continue
		}
		now := stall{r.completed, time.Now()}
		if before, known := s.seen[serial]; known && before.completed == now.completed {
			now = before
		}
		seen[serial] = now
		if time.Since(now.since) >= hangsAfter {
			serials = append(serials, serial)
		}
	}
	s.seen = seen
	slices.Sort(serials)
	return serials
}
