package node

import (
	"context"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// What can be wrong with a volume on a node: the reasons of NodeGetVolumeHealth.
const (
	notMounted     = "NotMounted"         // its mount was lost
	deviceGone     = "DeviceGone"         // the disk was taken from under its mount
	anotherDevice  = "AnotherDevice"      // another disk's device is there
	turnedReadOnly = "FileSystemReadOnly" // the kernel stopped writing after an error
	unreadable     = "Unreadable"         // the file system doesn't answer
)

// NodeGetVolumeHealth says what the node sees of a volume (CSI spec,
// NodeGetVolumeHealth).
func (s *Server) NodeGetVolumeHealth(ctx context.Context, req *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, disk.Errorf(disk.Invalid, "volume_id is missing")
	}
	health := &csi.VolumeHealth{VolumeId: req.GetVolumeId()}
	_, block := blockAt(req.GetVolumePublishPath())
	for _, place := range []struct{ field, path string }{
		{"staging_target_path", req.GetStagingTargetPath()},
		{"volume_publish_path", req.GetVolumePublishPath()},
	} {
		if place.path == "" || block && place.path == req.GetStagingTargetPath() {
			continue
		}
		found, err := s.problemAt(ctx, place.field, place.path, req.GetVolumeId())
		if err != nil {
			return nil, err
		}
		if found != nil && !slices.ContainsFunc(health.HealthStatuses, func(e *csi.VolumeHealth_VolumeHealthEntry) bool { return e.Reason == found.Reason }) {
			health.HealthStatuses = append(health.HealthStatuses, found)
		}
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: health}, nil
}

// problemOfStagedBlock says what is wrong with a block volume that is staged, of which nothing is mounted there: its device is looked for.
func (s *Server) problemOfStagedBlock(volume disk.ID) (*csi.VolumeHealth_VolumeHealthEntry, error) {
	_, found, err := s.devices.findOnce(serialOf(volume))
	if err != nil || found {
		return nil, err
	}
	return problem(csi.VolumeHealthErrorType_INACCESSIBLE, deviceGone, "no device of the node has serial number %s", serialOf(volume)), nil
}

// problemAt says what is wrong at one place of a volume; nil if nothing is.
func (s *Server) problemAt(ctx context.Context, field, path, volume string) (*csi.VolumeHealth_VolumeHealthEntry, error) {
	if real, err := s.kubelet.resolveExisting(field, path); err == nil && s.kubelet.owner(real).staged {
		return s.problemOfStagedBlock(disk.ID(volume))
	}
	at, err := s.volumeAt(field, path, volume)
	switch {
	case disk.KindOf(err) == disk.NotFound:
		return problem(csi.VolumeHealthErrorType_INACCESSIBLE, notMounted, "nothing is mounted at %s", path), nil
	case err != nil:
		return nil, err
	}
	switch gone := s.devices.isGone(at.number); {
	case gone && at.device:
		return problem(csi.VolumeHealthErrorType_INACCESSIBLE, deviceGone, "the device at %s has left the node", path), nil
	case gone:
		return problem(csi.VolumeHealthErrorType_INACCESSIBLE, deviceGone, "the device that is mounted at %s has left the node", path), nil
	case s.devices.isOther(at.number, disk.ID(volume)):
		return problem(csi.VolumeHealthErrorType_INACCESSIBLE, anotherDevice, "the device at %s is not the volume's", path), nil
	case at.device:
		return nil, nil
	}
	measured, err := s.measure(ctx, disk.ID(volume), at)
	switch {
	case disk.KindOf(err) == disk.Unreachable:
		return problem(csi.VolumeHealthErrorType_INACCESSIBLE, unreadable, "%v", err), nil
	case err != nil:
		return nil, err
	}
	switch reason, what := measured.illness(at); {
	case reason == unreadable:
		return problem(csi.VolumeHealthErrorType_INACCESSIBLE, reason, "%s", what), nil
	case reason != "":
		return problem(csi.VolumeHealthErrorType_DEGRADED, reason, "%s", what), nil
	case s.isShort(disk.ID(volume), at, measured): // usable, but not as it should be: that is what DEGRADED says
		return problem(csi.VolumeHealthErrorType_DEGRADED, fileSystemNotGrown, "%s", measured.extent.sizes()), nil
	}
	return nil, nil
}

// illness says what is wrong with a mounted file system, so that it is of no use to anybody, and for which reason; nothing if it is sound.
func (m measurement) illness(at mountPoint) (reason, what string) {
	options := at.SuperOptions // the kernel's own, whatever the mount was asked to be
	switch {
	case m.numbers != nil:
		reason, what = unreadable, fmt.Sprintf("doesn't answer: %v", m.numbers)
	case m.contents != nil:
		reason, what = unreadable, fmt.Sprintf("can't be read: %v", m.contents)
	case slices.Contains(options, "shutdown"):
		reason, what = turnedReadOnly, "was shut down after an error"
	case slices.Contains(options, "emergency_ro"), slices.Contains(options, "ro") && !at.isReadOnly():
		reason, what = turnedReadOnly, "was made read-only by the kernel after an error"
	default:
		return "", ""
	}
	return reason, fmt.Sprintf("the file system at %s %s", at.MountPoint, what)
}

func problem(status csi.VolumeHealthErrorType, reason, message string, args ...any) *csi.VolumeHealth_VolumeHealthEntry {
	return &csi.VolumeHealth_VolumeHealthEntry{Status: status, Reason: reason, Message: fmt.Sprintf(message, args...)}
}
