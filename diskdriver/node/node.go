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
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/singleflight"
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
	driver    string
	facts     Facts
	allowed   disk.AllowedOptions
	kubelet   kubeletDir
	devices   devices
	mounts    mounts
	plugin    string // the directory of the driver's plugin below the kubelet's
	records   records
	blanks    blankChecks
	stalls    stalls
	events    Events
	measuring singleflight.Group // measurements by volume and device
	ungrown   sync.Map           // inVain by disk.ID: the mounted volumes whose file systems don't fill their disks
}

// New returns a Server; its error names what is wrong in the Config.
func New(config Config) (*Server, error) {
	config.KubeletDir, config.Dev, config.Sys = cmp.Or(config.KubeletDir, DefaultKubeletDir), cmp.Or(config.Dev, "/dev"), cmp.Or(config.Sys, "/sys")
	for _, dir := range []string{config.KubeletDir, config.Dev, config.Sys} {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
			return nil, fmt.Errorf("directory %q: allowed is a clean absolute path, such as %s", dir, DefaultKubeletDir)
		}
	}
	if config.Driver == "" || config.Facts == nil {
		return nil, fmt.Errorf("the name of the driver and the facts of the node are required")
	}
	plugin := filepath.Join(config.KubeletDir, "plugins", config.Driver)
	records := records{dir: filepath.Join(plugin, "records")}
	if err := records.begin(); err != nil {
		klog.ErrorS(err, "The node keeps no records, so no disk counts as new", "directory", records.dir)
	}
	removeRehearsals(plugin)
	root, err := filepath.EvalSymlinks(config.KubeletDir)
	if err != nil {
		return nil, fmt.Errorf("the kubelet's root directory: %w", err)
	}
	return &Server{
		driver:  config.Driver,
		facts:   config.Facts,
		allowed: config.Allowed,
		kubelet: kubeletDir(root),
		devices: devices{dev: config.Dev, sys: config.Sys},
		mounts:  mounts{mounter: mount.New(""), kubelet: kubeletDir(root)},
		plugin:  plugin,
		records: records,
		blanks:  blankChecks{BlankCheck: config.BlankCheck, running: map[string]*blankCheck{}},
		events:  config.Events,
	}, nil
}

// Facts tells what only others than the node's Linux know.
type Facts interface {
	// Node returns who and where the node is and how many disks of the driver
	// it takes besides those that it sees and that are not the driver's, given
	// the serial numbers of the disks that the node sees. As long as something
	// isn't known, the error says what, and who knows it.
	Node(ctx context.Context, serials []string) (disk.Node, error)
}

// Events tells the owner of a volume what no call can answer as an error, because the
// volume is of use.
type Events interface {
	// Warn returns at once and never fails. It says the same of a volume at most once
	// an hour.
	Warn(volume disk.ID, reason, message string)
}

// NodeGetInfo says who and where the node is and how many volumes it takes (CSI
// spec, NodeGetInfo). Until all of it is known it is an error, so that no node
// is taken for one without a limit.
func (s *Server) NodeGetInfo(ctx context.Context, _ *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	serials, err := s.serials()
	if err != nil {
		return nil, err
	}
	about, err := s.facts.Node(ctx, serials)
	if err != nil {
		return nil, err
	}
	return &csi.NodeGetInfoResponse{
		NodeId:             string(about.ID),
		MaxVolumesPerNode:  about.MaxVolumes,
		AccessibleTopology: &csi.Topology{Segments: about.Segments},
	}, nil
}

// NodeGetCapabilities says what the Server can do.
func (s *Server) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	response := &csi.NodeGetCapabilitiesResponse{}
	for _, t := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH,
	} {
		response.Capabilities = append(response.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}},
		})
	}
	return response, nil
}
