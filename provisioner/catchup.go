package provisioner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime/debug"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
)

const (
	// catchUpLook is how often the cache is looked at that lags behind.
	catchUpLook = 20 * time.Millisecond
	// catchUpAsk is how often the API server is asked for what is still to come: what is deleted meanwhile never comes.
	catchUpAsk = time.Second
	// catchUpPage is how many objects one request asks for.
	catchUpPage = 2000
)

// catchUp returns once the caches of claims and volumes are at least as new as
// the moment of the call: whoever worked before this process may have saved
// volumes that its watches haven't told of yet.
func (c *Controller) catchUp(ctx context.Context) error {
	live := func(resource string) metadata.ResourceInterface {
		return c.metadata.Resource(v1.SchemeGroupVersion.WithResource(resource))
	}
	report := func(err error) error {
		if lag := (*lagError)(nil); errors.As(err, &lag) {
			err = c.recovery.notFull(err.Error())
		}
		return c.recovery.note(stepCaches, err)
	}
	if err := awaitAsNew(ctx, live("persistentvolumes"), c.p.volumes, report); err != nil {
		return err
	}
	defer func() { go debug.FreeOSMemory() }() // what the caches were compared with
	return awaitAsNew(ctx, live("persistentvolumeclaims"), c.p.claims, report)
}

// lagError says how many objects a cache shows in an older version than the API server.
type lagError struct{ objects int }

func (e *lagError) Error() string {
	return fmt.Sprintf("the caches lag behind the API server by %d objects", e.objects)
}

// awaitAsNew waits until the store has every object in a version that isn't older than the API server's at the time of the call.
// It reports every second without progress, and ends if report returns an error.
func awaitAsNew(ctx context.Context, live metadata.ResourceInterface, store cache.Store, report func(error) error) error {
	var lagging map[string]string
	least := math.MaxInt
	for {
		versions, err := liveVersions(ctx, live)
		if err != nil {
			err = report(fmt.Errorf("it can't be seen whether the caches are up to date: %w", err))
			if err := errors.Join(err, sleep(ctx, catchUpAsk)); err != nil {
				return err
			}
			continue
		}
		if lagging == nil {
			lagging = versions
		}
		maps.DeleteFunc(lagging, func(key, _ string) bool { return versions[key] == "" })
		for end := time.Now().Add(catchUpAsk); time.Now().Before(end); {
			maps.DeleteFunc(lagging, func(key, version string) bool { return isAsNew(store, key, version) })
			if len(lagging) == 0 {
				return report(nil)
			}
			if err := sleep(ctx, catchUpLook); err != nil {
				return err
			}
		}
		var lag error
		if len(lagging) >= least {
			lag = &lagError{len(lagging)}
		}
		least = len(lagging)
		if err := report(lag); err != nil {
			return err
		}
	}
}

// liveVersions asks the API server for the version of every object.
func liveVersions(ctx context.Context, live metadata.ResourceInterface) (map[string]string, error) {
	versions := map[string]string{}
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return live.List(ctx, o) })
	pages.PageSize, pages.PageBufferSize = catchUpPage, 1
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		m, err := meta.Accessor(object)
		if err == nil {
			versions[cache.MetaObjectToName(m).String()] = m.GetResourceVersion()
		}
		return err
	})
	return versions, err
}

// isAsNew says whether the store has that version of an object, or a later one.
func isAsNew(store cache.Store, key, version string) bool {
	object, exists, err := store.GetByKey(key)
	if err != nil || !exists {
		return false
	}
	m, err := meta.Accessor(object)
	if err != nil {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(m.GetResourceVersion(), version)
	return err == nil && order >= 0 || m.GetResourceVersion() == version
}
