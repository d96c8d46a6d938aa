package watch

import (
	"context"
	"errors"
	"maps"
	goruntime "runtime"
	"strings"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/request"
)

// Of a namespace no more is kept than the labels that are allowed.
func TestNamespacesAreTrimmed(t *testing.T) {
	namespace := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "shop", Labels: map[string]string{"team": "web", "secret-project": "x"}, Annotations: map[string]string{"note": "long"},
		},
	}
	client := provisionertest.MetadataClient(namespace)
	caches, err := NewCaches(request.Options{DriverName: provisionertest.DriverName, NamespaceLabelTags: []string{"team"}}, fake.NewClientset(), client)
	must(t, err)
	must(t, caches.Fill(t.Context()))
	object, exists, err := caches.Namespaces.GetStore().GetByKey("shop")
	if err != nil || !exists {
		t.Fatal(exists, err)
	}
	got := object.(*metav1.PartialObjectMetadata)
	if !maps.Equal(got.Labels, map[string]string{"team": "web"}) || got.Annotations != nil {
		t.Errorf("kept: %v", got.ObjectMeta)
	}
}

func TestCachesAreFullOnceHandlersHaveEverything(t *testing.T) {
	api := fake.NewClientset(&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "d-1"}}, &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "d-2"}})
	caches, err := NewCaches(request.Options{DriverName: provisionertest.DriverName}, api, provisionertest.MetadataClient())
	must(t, err)
	handled := make(chan string, 10)
	must(t, caches.Handle(caches.Volumes, OnEvent(func(pv *v1.PersistentVolume) { handled <- pv.Name }, nil)))
	must(t, caches.Fill(t.Context()))
	if len(handled) != 2 {
		t.Errorf("%d volumes were handled, want 2", len(handled))
	}
}

// What a watch has ended with is told as the reason until its informer comes further, and of no other informer.
func TestOnlyErrorsThatLastAreTold(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	api := fake.NewClientset()
	refused := atomic.Bool{}
	refused.Store(true)
	api.PrependReactor("list", "storageclasses", func(clienttesting.Action) (bool, runtime.Object, error) {
		if refused.Load() {
			return true, nil, apierrors.NewForbidden(v1.Resource("storageclasses"), "", errors.New("no rule"))
		}
		return true, &storagev1.StorageClassList{ListMeta: metav1.ListMeta{ResourceVersion: "10"}}, nil
	})
	caches, err := NewCaches(request.Options{DriverName: provisionertest.DriverName}, api, provisionertest.MetadataClient())
	must(t, err)
	filled := make(chan error)
	go func() { filled <- caches.Fill(ctx) }()
	for !strings.Contains(caches.NotFull().Error(), "no rule") {
		goruntime.Gosched()
	}
	lag := errors.New("the caches lag")
	if err := caches.explain(lag, caches.Volumes); err.Error() != lag.Error() {
		t.Errorf("of another informer: %v", err)
	}
	refused.Store(false)
	must(t, <-filled)
	if err := caches.NotFull(); strings.Contains(err.Error(), "no rule") {
		t.Errorf("after the cache was filled: %v", err)
	}
}

func TestFillNamesTheCacheThatFails(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	api, lists := fake.NewClientset(), 0
	api.PrependReactor("list", "storageclasses", func(clienttesting.Action) (bool, runtime.Object, error) {
		if lists++; lists == 2 {
			cancel() // the first failure is known
		}
		return true, nil, apierrors.NewForbidden(v1.Resource("storageclasses"), "", errors.New("no rule"))
	})
	caches, err := NewCaches(request.Options{DriverName: provisionertest.DriverName}, api, provisionertest.MetadataClient())
	must(t, err)
	if err := caches.Fill(ctx); err == nil || !strings.Contains(err.Error(), "the cache of StorageClasses did not fill") {
		t.Errorf("got %v", err)
	}
	if err := caches.NotFull(); !strings.Contains(err.Error(), "the caches are not full") || !strings.Contains(err.Error(), "no rule") {
		t.Errorf("got %v", err)
	}
}
