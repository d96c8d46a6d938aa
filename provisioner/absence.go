package provisioner

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
}

// isAbsent says whether it is proven that the calls of unknown outcome have made
// no volume: they are long over, and the driver lists volumes, none of them of
// that name. A refusal of keys or permissions proves nothing, for then the list
// may show nothing either; and an empty list proves nothing for the same reason.
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
	absent := len(names) > 0 && !names[o.request.Name] && at.Sub(o.since) >= sightHorizon
	if absent {
		klog.InfoS("A call of unknown outcome has made no volume", "volume", o.request.Name)
	}
	return absent
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
	return names, now, nil
}
