package deletion

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilwait "k8s.io/apimachinery/pkg/util/wait"

	"github.com/topodisk/topodisk/provisioner/watch"
)

// Several PersistentVolumes may name the same volume: one that an administrator made
// by hand, or that a backup restored. The volume is deleted with the last of them.

// others returns the other PersistentVolumes with the volume of this one, those of
// other drivers, too: a disk may have been handed to a driver of another name.
func (c *Controller) others(pv *v1.PersistentVolume) ([]*v1.PersistentVolume, error) {
	if pv.Spec.CSI == nil {
		return nil, nil
	}
	all, err := watch.VolumesOfHandle(c.Volumes, pv.Spec.CSI.VolumeHandle)
	return slices.DeleteFunc(all, func(other *v1.PersistentVolume) bool { return other.UID == pv.UID }), err
}

// enqueueOthers queues the other PersistentVolumes of a volume, for which this one no
// longer stands.
func (c *Controller) enqueueOthers(pv *v1.PersistentVolume) {
	others, _ := c.others(pv) // the index is there
	for _, other := range others {
		if mayDelete(other, c.Request.DriverName) {
			c.enqueue(other.Name)
		}
	}
}

// sharedError says that a volume is kept because another PersistentVolume stands for it.
type sharedError struct{ pv, other *v1.PersistentVolume }

func (e *sharedError) Error() string {
	state := string(e.other.Status.Phase)
	if state == "" {
		state = "new"
	}
	if driver := e.other.Spec.CSI.Driver; driver != e.pv.Spec.CSI.Driver {
		state = "of driver " + driver
	}
	if ref := e.other.Spec.ClaimRef; ref != nil {
		state += fmt.Sprintf(", claim %s/%s", ref.Namespace, ref.Name)
	}
	return fmt.Sprintf("disk %s is kept: PersistentVolume %s (%s) stands for it, too; it is deleted when no other PersistentVolume names it",
		e.pv.Spec.CSI.VolumeHandle, e.other.Name, state)
}

// checkShared returns a sharedError if another PersistentVolume stands for the volume
// of this one, which was read a moment ago. A reason to keep the volume may come from
// the cache; a reason to delete it is read once more.
func (c *Controller) checkShared(ctx context.Context, pv *v1.PersistentVolume) error {
	if err := c.awaitCache(ctx, pv); err != nil {
		return err
	}
	others, err := c.others(pv)
	if err != nil {
		return err
	}
	for _, other := range others {
		if !mayDelete(other, c.Request.DriverName) {
			return &sharedError{pv, other}
		}
		if err := c.checkDetached(other); err != nil {
			return err
		}
		live, err := c.Client.CoreV1().PersistentVolumes().Get(ctx, other.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && live.UID != other.UID:
			continue
		case err != nil:
			return err
		}
		permits, err := c.permitsDeletion(ctx, live)
		switch {
		case err != nil:
			return err
		case !permits:
			return &sharedError{pv, live}
		}
	}
	return nil
}

// permitsDeletion says whether the volume of a PersistentVolume, as it was just read,
// is to be deleted as far as that one is concerned.
func (c *Controller) permitsDeletion(ctx context.Context, pv *v1.PersistentVolume) (bool, error) {
	if driver := c.Request.DriverName; !mayBeUnused(pv, driver) {
		if !isReleased(pv, driver) {
			return false, nil
		}
		err := c.checkUnclaimed(ctx, pv)
		if _, claimed := errors.AsType[*claimedError](err); claimed {
			return false, nil
		}
		return err == nil, err
	}
	unused, err := c.isUnused(ctx, pv)
	return unused && c.Request.IsMadeForClaim(pv), err
}

// A cache that lags behind is read every cachePoll, for cacheWait at most.
const (
	cachePoll = 20 * time.Millisecond
	cacheWait = time.Second
)

// awaitCache returns nil once the cache shows the PersistentVolume as it was read. The
// cache is filled in the order of writes, so it then has every PersistentVolume that
// was made before this one was changed last, which is before it was released.
func (c *Controller) awaitCache(ctx context.Context, pv *v1.PersistentVolume) error {
	err := utilwait.PollUntilContextTimeout(ctx, cachePoll, cacheWait, true, func(context.Context) (bool, error) {
		return watch.HasVersion(c.Volumes, pv.Name, pv.ResourceVersion), nil
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("the cache of PersistentVolumes lags behind the API server: it does not show %s as it is, and may lack another one of its disk", pv.Name)
	}
	return err
}
