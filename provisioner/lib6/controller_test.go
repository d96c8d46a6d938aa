package lib6

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
)

const driver = "diskplugin.csi.alibabacloud.com"

// starter notes what the library hands over.
type starter struct {
	mu      sync.Mutex
	asked   []string // names of claims
	started []string
	refuse  string
}

func (s *starter) ShouldStart(claim *v1.PersistentVolumeClaim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, claim.Name)
	return claim.Name != s.refuse
}

func (s *starter) Start(claim *v1.PersistentVolumeClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = append(s.started, claim.Name)
}

func (s *starter) count(of *[]string, name string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range *of {
		if other == name {
			n++
		}
	}
	return n
}

func claim(name string, change ...func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	c := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{
			request.AnnStorageProvisioner: driver, request.AnnBetaStorageProvisioner: driver, request.AnnSelectedNode: "a-node-that-is-not-there",
		}},
		Spec: v1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("a-class-that-is-not-there"), VolumeMode: ptr.To(v1.PersistentVolumeBlock)},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

// volumesInformer notes who listens.
type volumesInformer struct {
	cache.SharedIndexInformer
	handlers int
}

func (v *volumesInformer) AddEventHandlerWithResyncPeriod(cache.ResourceEventHandler, time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	v.handlers++
	return nil, nil
}

// The lines that the package's comment names are those of this version.
func TestTheLibraryVersionIsPinned(t *testing.T) {
	module, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if want := "sigs.k8s.io/sig-storage-lib-external-provisioner/v6 v6.3.0"; !strings.Contains(string(module), want) {
		t.Errorf("go.mod does not require %s: read the lines that package lib6 names anew", want)
	}
}

// The library can't be stopped, so one plays all.
func TestTheLibraryStartsClaims(t *testing.T) {
	claims := []*v1.PersistentVolumeClaim{
		claim("plain"),
		claim("refused"),
		claim("bound", func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "d-1" }),
		claim("another", func(c *v1.PersistentVolumeClaim) {
			c.Annotations[request.AnnStorageProvisioner], c.Annotations[request.AnnBetaStorageProvisioner] = "other", "other"
		}),
		claim("new-spelling-alone", func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, request.AnnBetaStorageProvisioner) }),
		claim("classless", func(c *v1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil }),
		claim("has-a-volume-of-the-librarys-name"),
		claim("last"),
	}
	api := fake.NewClientset()
	for _, c := range claims {
		if err := api.Tracker().Add(c); err != nil {
			t.Fatal(err)
		}
	}
	taken := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-uid-has-a-volume-of-the-librarys-name"}}
	if err := api.Tracker().Add(taken); err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(api, 0)
	core := factory.Core().V1()
	volumes := &volumesInformer{SharedIndexInformer: core.PersistentVolumes().Informer()}
	config := Config{
		DriverName: driver, Workers: 1, Starter: &starter{refuse: "refused"}, Client: api,
		Claims: core.PersistentVolumeClaims().Informer(), Volumes: volumes, Classes: factory.Storage().V1().StorageClasses().Informer(),
	}
	if err := config.Claims.AddIndexers(watch.ClaimIndexers()); err != nil {
		t.Fatal(err)
	}
	library := New(config)
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	s := config.Starter.(*starter)
	if len(s.asked) != 0 {
		t.Errorf("a process that stands by was asked for %v", s.asked)
	}

	if err := library.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "every claim was handed over", func() bool {
		for _, name := range []string{"plain", "classless", "has-a-volume-of-the-librarys-name", "last"} {
			if s.count(&s.started, name) == 0 {
				return false
			}
		}
		return s.count(&s.asked, "refused") > 0
	})
	for name, want := range map[string]int{"plain": 1, "refused": 0, "bound": 0, "another": 0, "new-spelling-alone": 0} {
		if got := s.count(&s.started, name); got != want {
			t.Errorf("claim %s was handed over %d times, want %d", name, got, want)
		}
	}
	if volumes.handlers != 0 {
		t.Errorf("the library listens to volumes")
	}

	// A claim that goes before its turn is dropped, and another event hands a claim over once more.
	if err := api.Tracker().Update(v1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), claim("plain", func(c *v1.PersistentVolumeClaim) { c.Labels = map[string]string{"a": "b"} }), "shop"); err != nil {
		t.Fatal(err)
	}
	await(t, "it was handed over once more", func() bool { return s.count(&s.started, "plain") == 2 })
	for _, action := range api.Actions() {
		if !slices.Contains([]string{"list", "watch"}, action.GetVerb()) {
			t.Errorf("the library has called the API server: %v", action)
		}
	}
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("it never happened that %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}
