package watch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
)

func TestCatchUpWaitsForAllObjects(t *testing.T) {
	claimOf := func(name, version string) *v1.PersistentVolumeClaim {
		return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: version}}
	}
	list := func(versions map[string]string) *metav1.List {
		l := &metav1.List{}
		for name, version := range versions {
			meta := metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: version}
			l.Items = append(l.Items, runtime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: meta}})
		}
		return l
	}
	tests := map[string]struct {
		live   []map[string]string // what the API server answers, one request after the other; the last for ever; nil for an error
		cached []*v1.PersistentVolumeClaim
		later  *v1.PersistentVolumeClaim // reaches the cache after 1.5 s
		least  time.Duration
		most   time.Duration
		never  bool
	}{
		"nothing is there":                {live: []map[string]string{{}}},
		"it is as new":                    {live: []map[string]string{{"a": "9", "b": "10"}}, cached: []*v1.PersistentVolumeClaim{claimOf("a", "9"), claimOf("b", "10")}},
		"it is newer, by number":          {live: []map[string]string{{"a": "99"}}, cached: []*v1.PersistentVolumeClaim{claimOf("a", "100")}},
		"it has more":                     {live: []map[string]string{{"a": "9"}}, cached: []*v1.PersistentVolumeClaim{claimOf("a", "9"), claimOf("gone", "3")}},
		"one is older":                    {live: []map[string]string{{"a": "100"}}, cached: []*v1.PersistentVolumeClaim{claimOf("a", "99")}, later: claimOf("a", "100"), least: 1500 * time.Millisecond, most: 2 * time.Second},
		"one is missing":                  {live: []map[string]string{{"a": "7"}}, later: claimOf("a", "8"), least: 1500 * time.Millisecond, most: 2 * time.Second},
		"one is missing and never comes":  {live: []map[string]string{{"a": "7"}}, never: true},
		"one is missing, for it is gone":  {live: []map[string]string{{"a": "7"}, {}}, least: time.Second, most: 1100 * time.Millisecond},
		"what came since doesn't matter":  {live: []map[string]string{{"a": "7"}, {"new": "50"}}, least: time.Second, most: 1100 * time.Millisecond},
		"the API server doesn't answer":   {live: []map[string]string{nil, nil, {"a": "7"}}, cached: []*v1.PersistentVolumeClaim{claimOf("a", "7")}, least: 2 * time.Second, most: 2100 * time.Millisecond},
		"the API server answers too late": {live: []map[string]string{{"a": "7"}, nil, {}}, least: 2 * time.Second, most: 2100 * time.Millisecond},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := provisionertest.MetadataClient()
				asked := 0
				client.PrependReactor("list", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
					live := test.live[min(asked, len(test.live)-1)]
					asked++
					if live == nil {
						return true, nil, apierrors.NewInternalError(errors.New("etcd is slow"))
					}
					return true, list(live), nil
				})
				store := cache.NewStore(cache.MetaNamespaceKeyFunc)
				for _, claim := range test.cached {
					if err := store.Add(claim); err != nil {
						t.Fatal(err)
					}
				}
				if test.later != nil {
					time.AfterFunc(1500*time.Millisecond, func() {
						if err := store.Add(test.later); err != nil {
							t.Error(err)
						}
					})
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				err := catchUp(ctx, client.Resource(v1.SchemeGroupVersion.WithResource("persistentvolumeclaims")), store, func(error) error { return nil })
				if (err != nil) != test.never {
					t.Errorf("got %v", err)
				}
				if took := time.Since(start); !test.never && (took < test.least || took > test.most) {
					t.Errorf("took %v, want %v to %v", took, test.least, test.most)
				}
			})
		})
	}
}
