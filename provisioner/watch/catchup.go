package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"github.com/topodisk/topodisk/internal/sleep"
)

const (
	// comparePeriod is how often a cache that lags behind is compared with the API server's list.
	comparePeriod = 20 * time.Millisecond
	// relistPeriod is how often the API server is listed again: an object that is deleted
	// meanwhile never reaches the cache.
	relistPeriod = time.Second
	// listPage is how many objects one request lists.
	listPage = 2000
)

// lagError says how many objects a cache shows in an older version than the API server.
type lagError struct{ objects int }

func (e *lagError) Error() string {
	return fmt.Sprintf("the caches lag behind the API server by %d objects", e.objects)
}

// catchUp returns once the store has every object in a version that isn't older than the
// API server's at the time of the call. It reports every second, with a lagError if there
// was no progress, and returns the error that report returns.
func catchUp(ctx context.Context, live metadata.ResourceInterface, store cache.Store, report func(error) error) error {
	var lagging map[string]string
	least := math.MaxInt
	for {
		versions, err := listVersions(ctx, live)
		if err != nil {
			err = report(fmt.Errorf("it can't be seen whether the caches are up to date: %w", err))
			if err := errors.Join(err, sleep.For(ctx, relistPeriod)); err != nil {
				return err
			}
			continue
		}
		if lagging == nil {
			lagging = versions
		}
		maps.DeleteFunc(lagging, func(key, _ string) bool { return versions[key] == "" })
		for end := time.Now().Add(relistPeriod); time.Now().Before(end); {
			maps.DeleteFunc(lagging, func(key, version string) bool { return HasVersion(store, key, version) })
			if len(lagging) == 0 {
				return report(nil)
			}
			if err := sleep.For(ctx, comparePeriod); err != nil {
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

// listVersions lists the resourceVersion of every object.
func listVersions(ctx context.Context, live metadata.ResourceInterface) (map[string]string, error) {
	versions := map[string]string{}
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return live.List(ctx, o) })
	pages.PageSize, pages.PageBufferSize = listPage, 1
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		m, err := meta.Accessor(object)
		if err == nil {
			versions[cache.MetaObjectToName(m).String()] = m.GetResourceVersion()
		}
		return err
	})
	return versions, err
}

// HasVersion says whether the store has that version of an object, or a later one.
func HasVersion(store cache.Store, key, version string) bool {
	object, exists, err := store.GetByKey(key)
	if err != nil || !exists {
		return false
	}
	m, err := meta.Accessor(object)
	return err == nil && (m.GetResourceVersion() == version || IsOlder(version, m.GetResourceVersion()))
}
