package provisioner

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/topodisk/topodisk/provisioner/watch"
)

// Several PersistentVolumes may name the same disk: one that an administrator made
// by hand, or that a backup brought back. The disk is deleted with the last of them.

// othersOf returns the other PersistentVolumes of the same driver that name the
// disk of this one.
func othersOf(volumes cache.Indexer, pv *v1.PersistentVolume) ([]*v1.PersistentVolume, error) {
	if pv.Spec.CSI == nil {
		return nil, nil
	}
	all, err := watch.VolumesOfHandle(volumes, pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle)
	return slices.DeleteFunc(all, func(other *v1.PersistentVolume) bool { return other.UID == pv.UID }), err
}

// sharedError says that a disk is kept because another PersistentVolume stands for it.
type sharedError struct{ pv, other *v1.PersistentVolume }

func (e *sharedError) Error() string {
	state := string(e.other.Status.Phase)
	if state == "" {
		state = "new"
	}
	if ref := e.other.Spec.ClaimRef; ref != nil {
		state += fmt.Sprintf(", claim %s/%s", ref.Namespace, ref.Name)
	}
	return fmt.Sprintf("disk %s is kept: PersistentVolume %s (%s) stands for it, too; it is deleted when no other PersistentVolume names it",
		e.pv.Spec.CSI.VolumeHandle, e.other.Name, state)
}

// isShared returns a sharedError if another PersistentVolume stands for the disk
// of this one, which was read a moment ago. What the cache shows to keep a disk is
// believed; what it shows to let the disk go is looked at once more.
func (r *reclaimer) isShared(ctx context.Context, pv *v1.PersistentVolume) error {
	if err := r.hasCaughtUp(ctx, pv); err != nil {
		return err
	}
	others, err := othersOf(r.volumes, pv)
	if err != nil {
		return err
	}
	for _, other := range others {
		if !mayDelete(other, r.p.config.DriverName) && !mayBeNeedless(other, r.p.config.DriverName) {
			return &sharedError{pv, other}
		}
		if err := r.isDetached(other); err != nil {
			return err
		}
		live, err := r.p.client.CoreV1().PersistentVolumes().Get(ctx, other.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && live.UID != other.UID:
			continue
		case err != nil:
			return err
		}
		if gives, err := r.p.givesUp(ctx, live); err != nil || !gives {
			if err == nil {
				err = &sharedError{pv, live}
			}
			return err
		}
	}
	return nil
}

// givesUp says whether the disk of a PersistentVolume is to be deleted as far as
// that one knows.
func (p *Provisioner) givesUp(ctx context.Context, pv *v1.PersistentVolume) (bool, error) {
	if !mayBeNeedless(pv, p.config.DriverName) {
		return mayDelete(pv, p.config.DriverName), nil
	}
	needless, err := p.isNeedless(ctx, pv)
	return needless && p.config.IsMadeForClaim(pv), err
}

const (
	// lagLook is how often a cache that lags is looked at, and lagMost for how long
	// before the deletion is tried again later.
	lagLook, lagMost = 20 * time.Millisecond, time.Second
)

// hasCaughtUp returns once the cache shows the PersistentVolume as it was read. The
// cache is filled in the order of writes, so it then has every PersistentVolume that
// was made before this one was changed last, which is before it was released.
func (r *reclaimer) hasCaughtUp(ctx context.Context, pv *v1.PersistentVolume) error {
	for end := time.Now().Add(lagMost); !watch.HasVersion(r.volumes, pv.Name, pv.ResourceVersion); {
		if time.Now().After(end) {
			return fmt.Errorf("the cache of PersistentVolumes lags behind the API server: it does not show %s as it is, and may lack another one of its disk", pv.Name)
		}
		if err := sleep(ctx, lagLook); err != nil {
			return err
		}
	}
	return nil
}

// othersGoOn has the other PersistentVolumes of a disk looked at, since this one no
// longer stands for it.
func (r *reclaimer) othersGoOn(pv *v1.PersistentVolume) {
	others, _ := othersOf(r.volumes, pv) // the index is there
	for _, other := range others {
		if driver := r.p.config.DriverName; mayDelete(other, driver) || mayBeNeedless(other, driver) {
			r.file(other.Name)
		}
	}
}
