// Package node is the CSI Node service for ECS disks on Linux: it finds the
// device of a disk, formats it if it is new, mounts, grows and measures
// it. It calls no cloud: what a disk is and what was done to it comes with the
// request, what the node is from whoever implements Facts.
//
// Everything it does is idempotent and decided by what the node shows and has
// recorded, not by what the process remembers, so that it may be killed at any
// instant. What licenses each write to a disk stands in docs/node.md.
package node

import (
	"fmt"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/klog/v2"
	mount "k8s.io/mount-utils"

	"github.com/topodisk/topodisk/diskdriver/disk"
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
	// Allowed are options of mkfs and mount that the operator allows.
	Allowed disk.AllowedOptions
	// Facts tells who and where the node is. Required.
	Facts Facts
	// BlankCheck bounds the check that a disk which may have been used is blank.
	BlankCheck BlankCheck
	// Events tells the owners of volumes what is no error. Nil: they aren't told.
	Events Events
}

// Server answers the CSI Node service. Its errors are disk.Errors, except for
// those of a context that ended.
type Server struct {
	csi.UnimplementedNodeServer
	driver  string
	facts   Facts
	allowed disk.AllowedOptions
	kubelet kubeletDir
	devices devices
	mounts  mounts
	plugin  string // the directory of the driver's plugin below the kubelet's
	records records
	blanks  blankChecks
	stalls  stalls
	probes  probes
	events  Events
	ungrown ungrown
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
	plugin := filepath.Join(config.KubeletDir, "plugins", config.Driver)
	if config.Events == nil {
		config.Events = noEvents{}
	}
	records := records{dir: filepath.Join(plugin, "records")}
	if err := records.begin(); err != nil {
		klog.ErrorS(err, "The node keeps no records, so no disk counts as new", "directory", records.dir)
	}
	root, err := filepath.EvalSymlinks(config.KubeletDir)
	if err != nil {
		return nil, fmt.Errorf("the kubelet's root directory: %w", err)
	}
	s := &Server{
		driver:  config.Driver,
		facts:   config.Facts,
		allowed: config.Allowed,
		kubelet: kubeletDir(root),
		devices: devices{dev: config.Dev, sys: config.Sys},
		mounts:  mounts{mounter: mount.New(""), kubelet: kubeletDir(root)},
		plugin:  plugin,
		records: records,
		blanks:  blankChecks{BlankCheck: config.BlankCheck},
		events:  config.Events,
		ungrown: ungrown{volumes: map[disk.ID]inVain{}},
	}
	s.probes.extent = func(device uint64, at string) (extent, error) { return s.devices.extent(device, at) }
	return s, nil
}
