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
	listLasts = 10 * time.Second
)

// absence is the last list of the driver's volumes.
type absence struct {
	mu   sync.Mutex
	last sighting
}

// sighting is what a list of volumes has shown.
type sighting struct {
	names, ids map[string]bool
	at         time.Time // when it was asked for
	empty      time.Time // since when the lists have had no volume at all; zero if this one has
}

// isAbsent says whether it is proven that the calls of unknown outcome have made
// no volume: they are long over, and the driver lists volumes, none of them of
// that name. A refusal of keys or permissions proves nothing, for then the list
// may show nothing either; nor does any list if a Secret has chosen the account,
// for it is that of the driver's own.
func (p *Provisioner) isAbsent(ctx context.Context, o *order, refused error) bool {
	switch status.Code(refused) {
	case codes.PermissionDenied, codes.Unauthenticated:
		return false
	}
	if !p.canProve(o) || p.now().Sub(o.since) < sightHorizon {
		return false
	}
	seen, err := p.listed(ctx)
	if err != nil {
		klog.ErrorS(err, "Whether a volume was made cannot be told yet", "volume", o.request.Name)
		return false
	}
	absent := !seen.names[o.request.Name] && seen.at.Sub(o.since) >= sightHorizon && p.canSee(seen)
	if absent {
		klog.InfoS("A call of unknown outcome has made no volume", "volume", o.request.Name)
	}
	return absent
}

// canProve says whether a list may ever prove the order's volume absent.
func (p *Provisioner) canProve(o *order) bool {
	return p.config.DriverListsVolumes && o.refs.provisioner == nil
}

// lookWhenProvable has the order looked at again as soon as a list may prove
// that no volume was made, if the pause between two attempts is longer: until
// then its claim can't move.
func (p *Provisioner) lookWhenProvable(o *order) {
	at := o.since.Add(sightHorizon + listLasts)
	left := at.Sub(p.now())
	if left <= 0 || !p.canProve(o) || o.provable.Equal(at) {
		return
	}
	o.provable = at
	time.AfterFunc(left, func() { p.look(o.claim) })
}

// canSee says whether a list is to be believed: whether who asked for it would
// have been shown the volume. If PersistentVolumes of this driver are known, it
// must show the volume of one, for others' keys see other volumes, or none. If
// none is known, there is nothing to hold against the list; one without any
// volume is then believed once they have been so for as long as a volume may stay
// out of sight. So a cluster's very first volume does not stay under way for ever.
func (p *Provisioner) canSee(seen sighting) bool {
	known := p.handles()
	switch {
	case len(known) > 0:
		return slices.ContainsFunc(known, func(id string) bool { return seen.ids[id] })
	case len(seen.ids) > 0:
		return true
	}
	return seen.at.Sub(seen.empty) >= sightHorizon
}

// handles returns the volumes that known PersistentVolumes of this driver stand for.
func (p *Provisioner) handles() (ids []string) {
	for _, object := range p.volumes.List() {
		if source := object.(*v1.PersistentVolume).Spec.CSI; source != nil && source.Driver == p.config.DriverName {
			ids = append(ids, source.VolumeHandle)
		}
	}
	return ids
}

// listed returns what the driver lists now, or has a moment ago.
func (p *Provisioner) listed(ctx context.Context) (sighting, error) {
	p.absence.mu.Lock()
	defer p.absence.mu.Unlock()
	now := p.now()
	if last := p.absence.last; last.names != nil && now.Sub(last.at) < listLasts {
		return last, nil
	}
	entries, err := listAll(ctx, p.driver, p.config.Timeout)
	if err != nil {
		return sighting{}, err
	}
	seen := sighting{names: map[string]bool{}, ids: map[string]bool{}, at: now}
	for _, entry := range entries {
		seen.names[entry.GetVolume().GetVolumeContext()[volumeNameKey]] = true
		seen.ids[entry.GetVolume().GetVolumeId()] = true
	}
	if len(entries) == 0 {
		if seen.empty = p.absence.last.empty; seen.empty.IsZero() {
			seen.empty = now
		}
	}
	p.absence.last = seen
	return seen, nil
}
