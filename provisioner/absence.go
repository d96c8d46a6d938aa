package provisioner

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

const (
	// volumeNameKey is the key of a listed volume's context that holds its CSI
	// volume name.
	volumeNameKey = "csi.alibabacloud.com/volume-name"
	// sightHorizon is how long a volume may stay out of the driver's sight
	// after it was made.
	sightHorizon = 60 * time.Second
	// listLasts is for how long one list serves all who need one.
	listLasts = 30 * time.Second
)

// absence is the last list of the driver's volumes, by name.
type absence struct {
	mu    sync.Mutex
	names map[string]bool
	at    time.Time
	empty time.Time // since when the lists have had no volume at all; zero if the last had
}

// isAbsent says whether it is proven that the calls of unknown outcome have made
// no volume: they are long over, and the driver lists volumes, none of them of
// that name. A refusal of keys or permissions proves nothing, for then the list
// may show nothing either.
func (p *Provisioner) isAbsent(ctx context.Context, o *order, refused error) bool {
	switch status.Code(refused) {
	case codes.PermissionDenied, codes.Unauthenticated:
		return false
	}
	if !p.config.DriverListsVolumes || p.now().Sub(o.since) < sightHorizon {
		return false
	}
	names, at, err := p.listedNames(ctx)
	if err != nil {
		klog.ErrorS(err, "Whether a volume was made cannot be told yet", "volume", o.request.Name)
		return false
	}
	absent := !names[o.request.Name] && at.Sub(o.since) >= sightHorizon && p.canSee(names, at)
	if absent {
		klog.InfoS("A call of unknown outcome has made no volume", "volume", o.request.Name)
	}
	return absent
}

// canSee says whether a list is to be believed. One that shows a volume is. One
// without any may be that of keys which see nothing; it is believed if there is
// nothing to be seen: no PersistentVolume of this driver is known, and the lists
// have been empty for as long as a volume may stay out of sight. So a cluster's
// very first volume does not stay under way for ever.
func (p *Provisioner) canSee(names map[string]bool, at time.Time) bool {
	if len(names) > 0 {
		return true
	}
	p.absence.mu.Lock()
	since := p.absence.empty
	p.absence.mu.Unlock()
	return !since.IsZero() && at.Sub(since) >= sightHorizon && !p.hasVolumes()
}

// hasVolumes says whether a PersistentVolume of this driver is known.
func (p *Provisioner) hasVolumes() bool {
	return slices.ContainsFunc(p.volumes.List(), func(object any) bool {
		source := object.(*v1.PersistentVolume).Spec.CSI
		return source != nil && source.Driver == p.config.DriverName
	})
}

// listedNames returns the names of the driver's volumes and when they were asked for.
func (p *Provisioner) listedNames(ctx context.Context) (map[string]bool, time.Time, error) {
	p.absence.mu.Lock()
	defer p.absence.mu.Unlock()
	now := p.now()
	if p.absence.names != nil && now.Sub(p.absence.at) < listLasts {
		return p.absence.names, p.absence.at, nil
	}
	entries, err := listAll(ctx, p.driver, p.config.Timeout)
	if err != nil {
		return nil, time.Time{}, err
	}
	names := map[string]bool{}
	for _, entry := range entries {
		names[entry.GetVolume().GetVolumeContext()[volumeNameKey]] = true
	}
	p.absence.names, p.absence.at = names, now
	switch {
	case len(names) > 0:
		p.absence.empty = time.Time{}
	case p.absence.empty.IsZero():
		p.absence.empty = now
	}
	return names, now, nil
}
