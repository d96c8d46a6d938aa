package otherdriver

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

const (
	driver = "diskplugin.csi.alibabacloud.com"
	lease  = "diskplugin-csi-alibabacloud-com"

	ours   = "topodisk-controller-0_5c8f6e1a-7b1d-4f0e-9d6a-0a4f3a1b2c3d"
	theirs = "csi-provisioner-6f5d-x2x9z"
)

// world is a cluster with a Watch whose work ends with its context.
type world struct {
	*testing.T
	api    *fake.Clientset
	watch  *Watch
	config Config
	warned []string
	works  atomic.Bool
	ended  chan error
	renews context.CancelFunc
}

// play plays a scene in bubble time.
func play(t *testing.T, config Config, scene func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, api: fake.NewClientset(), config: config, ended: make(chan error, 1)}
		w.config.Client, w.config.Driver, w.config.Lease = w.api, driver, lease
		w.config.Warn = func(reason, message string) { w.warned = append(w.warned, reason+": "+message) }
		w.watch = New(w.config, prometheus.NewRegistry())
		scene(w)
	})
}

// start runs the Watch until the scene is over.
func (w *world) start() {
	go func() {
		w.ended <- w.watch.Run(w.Context(), func(ctx context.Context) error {
			w.works.Store(true)
			<-ctx.Done()
			w.works.Store(false)
			return nil
		})
	}()
	synctest.Wait()
}

// leads has a provisioner renew a Lease as csi-lib-utils does, until it stops.
func (w *world) leads(namespace, holder string) {
	w.Helper()
	ctx, stop := context.WithCancel(w.Context())
	w.renews = stop
	renew := func() {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: lease}, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](15), RenewTime: &metav1.MicroTime{Time: time.Now()},
		}}
		leases := w.api.CoordinationV1().Leases(namespace)
		if _, err := leases.Update(ctx, l, metav1.UpdateOptions{}); apierrors.IsNotFound(err) {
			_, _ = leases.Create(ctx, l, metav1.CreateOptions{})
		}
	}
	renew()
	go func() {
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				renew()
			}
		}
	}()
}

// after checks what is true after a time.
func (w *world) after(d time.Duration, works bool, kind string, found float64, warnings int) {
	w.Helper()
	time.Sleep(d)
	synctest.Wait()
	if got := w.works.Load(); got != works {
		w.Errorf("works: %v, want %v", got, works)
	}
	if got := testutil.ToFloat64(w.watch.gauge.WithLabelValues(kind)); got != found {
		w.Errorf("%s: %v, want %v", kind, got, found)
	}
	if len(w.warned) != warnings {
		w.Errorf("%d warnings, want %d: %q", len(w.warned), warnings, w.warned)
	}
}

func TestItYieldsToAProvisionerThatWorks(t *testing.T) {
	play(t, Config{Namespace: "storage"}, func(w *world) {
		w.leads("kube-system", theirs)
		w.start()
		w.after(time.Minute, false, "provisioner", 1, 1)
		for _, want := range []string{ReasonProvisioner, `"` + theirs + `" renews Lease kube-system/` + lease, "until that one has ended"} {
			if !strings.Contains(w.warned[0], want) {
				w.Errorf("it warns %q, which lacks %q", w.warned[0], want)
			}
		}
		w.renews()
		w.after(time.Minute, true, "provisioner", 0, 1)

		w.leads("kube-system", theirs) // it comes back
		w.after(time.Minute, false, "provisioner", 1, 2)
		if w.Failed() {
			return
		}
		if err := <-w.ended; !errors.Is(err, ErrYield) {
			w.Errorf("it ends with %v, want ErrYield", err)
		}
	})
}

func TestItTellsOfAProvisionerWithoutALease(t *testing.T) {
	play(t, Config{Namespace: "storage"}, func(w *world) {
		w.start()
		w.watch.Saved("pvc-1", "shop/data")
		w.watch.Saved("pvc-2", "shop/logs")
		w.after(interval, true, "provisioner", 1, 1)
		for _, want := range []string{ReasonProvisioner, "PersistentVolume pvc-1 for claim shop/data", "both work"} {
			if len(w.warned) > 0 && !strings.Contains(w.warned[0], want) {
				t.Errorf("it warns %q, which lacks %q", w.warned[0], want)
			}
		}
		w.after(savedFor/2, true, "provisioner", 1, 1)
		w.watch.Saved("pvc-3", "shop/more")
		w.after(savedFor-interval, true, "provisioner", 1, 1)
		w.after(2*interval, true, "provisioner", 0, 1)
		w.watch.Saved("pvc-4", "shop/late")
		w.after(interval, true, "provisioner", 1, 2)
	})
}

func TestItGoesOnWithTakeover(t *testing.T) {
	play(t, Config{Namespace: "storage", Takeover: true}, func(w *world) {
		w.leads("kube-system", theirs)
		w.start()
		w.after(time.Minute, true, "provisioner", 1, 1)
		if !strings.Contains(w.warned[0], "both work") {
			w.Errorf("it warns %q", w.warned[0])
		}
	})
}

// What a provisioner has left behind keeps nobody waiting, and one that ended a moment ago no longer than an election.
func TestALeaseThatNobodyRenews(t *testing.T) {
	play(t, Config{Namespace: "storage"}, func(w *world) {
		w.leads("kube-system", theirs)
		w.renews()
		synctest.Wait()
		w.start()
		w.after(0, false, "provisioner", 0, 0)
		w.after(30*time.Second, true, "provisioner", 0, 0)
	})
	play(t, Config{Namespace: "storage"}, func(w *world) {
		w.leads("kube-system", theirs)
		w.renews()
		time.Sleep(2 * recent)
		w.start()
		w.after(0, true, "provisioner", 0, 0)
	})
}

// Of one Lease the election sees that only one works; that it is another one is told all the same.
func TestALeaseThatBothHave(t *testing.T) {
	play(t, Config{Namespace: "kube-system"}, func(w *world) {
		w.leads("kube-system", ours)
		w.start()
		w.after(time.Minute, true, "provisioner", 0, 0)
		w.renews()
		w.leads("kube-system", theirs)
		w.after(time.Minute, true, "provisioner", 1, 1)
	})
}

// A tenant can write Leases in his namespace.
func TestATenantsLeaseStopsNobody(t *testing.T) {
	play(t, Config{Namespace: "storage"}, func(w *world) {
		w.leads("tenant", theirs)
		w.start()
		w.after(time.Minute, true, "provisioner", 0, 0)
	})
}

// What can't be read is as it was, and nobody waits for it.
func TestAnUnreadableLease(t *testing.T) {
	refusable := func(w *world) *atomic.Bool {
		refuses := &atomic.Bool{}
		w.api.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return refuses.Load(), nil, errors.New("no") })
		return refuses
	}
	play(t, Config{Namespace: "storage"}, func(w *world) {
		refusable(w).Store(true)
		w.start()
		w.after(time.Minute, true, "provisioner", 0, 0)
	})
	play(t, Config{Namespace: "storage", Takeover: true}, func(w *world) {
		refuses := refusable(w)
		w.leads("kube-system", theirs)
		w.start()
		w.after(time.Minute, true, "provisioner", 1, 1)
		refuses.Store(true)
		w.after(time.Minute, true, "provisioner", 1, 1)
	})
}

// A role of an operator's own may lack the Lease in kube-system.
func TestTheOtherLeaseIsLookedAtAllTheSame(t *testing.T) {
	play(t, Config{Namespace: "storage"}, func(w *world) {
		w.api.PrependReactor("get", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
			return a.GetNamespace() == metav1.NamespaceSystem, nil, errors.New("forbidden")
		})
		w.leads("storage", "node-1")
		w.start()
		w.after(time.Minute, true, "provisioner", 1, 1)
	})
}

func TestTheCSIDriverObject(t *testing.T) {
	labels := map[string]string{"app.kubernetes.io/instance": "topodisk"}
	object := func() *storagev1.CSIDriver {
		return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driver, Labels: map[string]string{"app.kubernetes.io/instance": "topodisk", "more": "x"}},
			Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(true), PodInfoOnMount: ptr.To(false), FSGroupPolicy: ptr.To(storagev1.FileFSGroupPolicy),
				StorageCapacity: ptr.To(true), VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}}}
	}
	for name, test := range map[string]struct {
		change func(*storagev1.CSIDriver)
		labels map[string]string
		says   string
	}{
		"as it was installed":  {func(*storagev1.CSIDriver) {}, labels, ""},
		"another's":            {func(o *storagev1.CSIDriver) { o.Labels = nil }, labels, `its label app.kubernetes.io/instance is ""`},
		"changed in its place": {func(o *storagev1.CSIDriver) { o.Spec.PodInfoOnMount = ptr.To(true) }, labels, "its spec.podInfoOnMount was changed"},
		"not to be looked at":  {func(o *storagev1.CSIDriver) { o.Labels = nil }, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Config{Namespace: "kube-system", Labels: test.labels}, func(w *world) {
				made := object()
				drivers := w.api.StorageV1().CSIDrivers()
				_, err := drivers.Create(w.Context(), made, metav1.CreateOptions{})
				if err != nil {
					w.Fatal(err)
				}
				w.start()
				w.after(time.Minute, true, "csi_driver", 0, 0)
				test.change(made)
				if _, err := drivers.Update(w.Context(), made, metav1.UpdateOptions{}); err != nil {
					w.Fatal(err)
				}
				if test.says == "" {
					w.after(time.Minute, true, "csi_driver", 0, 0)
					return
				}
				w.after(time.Minute, true, "csi_driver", 1, 1)
				if len(w.warned) == 1 && !strings.Contains(w.warned[0], test.says) {
					w.Errorf("it warns %q, want %q", w.warned[0], test.says)
				}
				if _, err := drivers.Update(w.Context(), object(), metav1.UpdateOptions{}); err != nil {
					w.Fatal(err)
				}
				w.after(time.Minute, true, "csi_driver", 0, 1)
			})
		})
	}
}
