// Package node is the CSI Node service for ECS disks on Linux: it finds the
// device of a disk, formats what is provably blank, mounts, grows and measures
// it. It calls no cloud: what a disk is comes with the request, what the node
// is from whoever implements Facts.
//
// Everything it does is idempotent and decided by what the node shows, not by
// what the process remembers, so that it may be killed at any instant.
package node

import (
	"fmt"
	"path/filepath"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	mount "k8s.io/mount-utils"
)

// DefaultKubeletDir is the kubelet's root directory (its flag --root-dir).
const DefaultKubeletDir = "/var/lib/kubelet"

// Config says what a Server works with.
type Config struct {
	// Driver is the CSI driver name. Required.
	Driver string
	// KubeletDir is the kubelet's root directory. Volumes are staged and
	// published below it and nowhere else. Empty stands for DefaultKubeletDir.
	KubeletDir string
	// Dev and Sys are where the node's device nodes and its sysfs are; empty
	// stands for /dev and /sys.
	Dev, Sys string
	// Facts tells who and where the node is. Required.
	Facts Facts
}

// Server answers the CSI Node service. Its errors are disk.Errors, except for
// those of a context that ended.
type Server struct {
	csi.UnimplementedNodeServer
	driver  string
	facts   Facts
	paths   paths
	devices devices
	mounts  mounts
	marks   formatMarkers
	stalls  stalls
	probes  probes
	// unmounted is the device of each volume that was unmounted, until nobody holds it:
	// another mount namespace may still have the mount, as of a container that was made
	// while it was there.
	unmounted sync.Map
}

// New returns a Server; its error names what is wrong in the Config.
func New(config Config) (*Server, error) {
	for _, d := range []struct {
		path     *string
		fallback string
	}{{&config.KubeletDir, DefaultKubeletDir}, {&config.Dev, "/dev"}, {&config.Sys, "/sys"}} {
		if *d.path == "" {
			*d.path = d.fallback
		}
		if !filepath.IsAbs(*d.path) || filepath.Clean(*d.path) != *d.path {
			return nil, fmt.Errorf("directory %q: allowed is a clean absolute path, such as %s", *d.path, d.fallback)
		}
	}
	if config.Driver == "" || config.Facts == nil {
		return nil, fmt.Errorf("the name of the driver and the facts of the node are required")
	}
	return &Server{
		driver:  config.Driver,
		facts:   config.Facts,
		paths:   paths{kubelet: config.KubeletDir},
		devices: devices{dev: config.Dev, sys: config.Sys},
		mounts:  mounts{mounter: mount.New(""), kubelet: config.KubeletDir},
		marks:   formatMarkers{dir: filepath.Join(config.KubeletDir, "plugins", config.Driver, "formatting")},
	}, nil
}
