// Package otherdriver finds another driver of this one's name in the cluster, by what only an administrator can write: the Lease of its
// provisioner in kube-system or in this one's namespace, the PersistentVolumes that it saves, and the CSIDriver object. In other namespaces
// tenants may write Leases.
package otherdriver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/internal/escape"
	"github.com/topodisk/topodisk/internal/leader"
	"github.com/topodisk/topodisk/internal/sleep"
)

// ErrYield says that another provisioner of the driver's name works, and that this one leaves the work to it.
var ErrYield = errors.New("another provisioner of the driver's name works, and --takeover is not set")

// The reasons of events.
const (
	ReasonProvisioner = "AnotherProvisioner"
	ReasonCSIDriver   = "CSIDriverReplaced"
)

const (
	// interval is how often a Watch looks.
	interval = 10 * time.Second
	// recent is how long ago a Lease may have been renewed that may be held when it is seen first.
	recent = 5 * time.Minute
	// savedFor is how long a provisioner counts as at work after it has saved a PersistentVolume.
	savedFor = time.Hour
)

// Config says what a Watch looks at.
type Config struct {
	Client    kubernetes.Interface
	Driver    string            // the driver's name, which is the CSIDriver object's
	Lease     string            // the name that every provisioner of the driver gives its Lease
	Namespace string            // of this provisioner's Lease; empty without one
	Labels    map[string]string // of the CSIDriver object as it was installed; none: it is not looked at
	Takeover  bool              // whether this provisioner works although another one does

	// Warn tells operators.
	Warn func(reason, message string)
}

// Watch looks for another driver every few seconds.
type Watch struct {
	config Config
	gauge  *prometheus.GaugeVec
	told   map[string]string    // reason -> message
	leases map[string]*sighting // by namespace
	beside bool                 // a provisioner with a Lease of its own may be at work

	mu    sync.Mutex
	saved struct {
		what string    // the first PersistentVolume of late that another provisioner has saved, and its claim
		at   time.Time // when it has saved one last
	}
}

// sighting is what a Watch knows of a Lease.
type sighting struct {
	renewed metav1.MicroTime
	at      time.Time // when it was first seen so
	twice   bool      // it was renewed while it was watched
}

// New returns a Watch with its metric.
func New(config Config, registry prometheus.Registerer) *Watch {
	w := &Watch{config: config, told: map[string]string{}, leases: map[string]*sighting{}}
	w.gauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "topodisk_provisioner_other_driver",
		Help: "Whether the cluster has a provisioner or a CSIDriver object of another driver of this one's name.",
	}, []string{"kind"})
	registry.MustRegister(w.gauge)
	for _, kind := range kinds {
		w.gauge.WithLabelValues(kind)
	}
	return w
}

// kinds are the values of the metric's label.
var kinds = map[string]string{ReasonProvisioner: "provisioner", ReasonCSIDriver: "csi_driver"}

// Run looks until work has returned, and returns work's error. Unless this provisioner is to take over, work begins only when no provisioner
// with a Lease of its own may be at work, and if one comes work's context ends and Run returns ErrYield.
func (w *Watch) Run(ctx context.Context, work func(context.Context) error) error {
	for w.look(ctx) && !w.config.Takeover {
		klog.InfoS("Another provisioner of the driver's name may be at work; this one begins when its Lease is not renewed any more", "lease", w.config.Lease)
		if sleep.For(ctx, interval) != nil {
			return nil
		}
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	done := make(chan error, 1)
	go func() { done <- work(ctx) }()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if errors.Is(context.Cause(ctx), ErrYield) {
				err = errors.Join(ErrYield, err)
			}
			return err
		case <-tick.C:
			if w.look(ctx) && !w.config.Takeover {
				end(ErrYield)
			}
		}
	}
}

// look looks once, tells what has changed, and says whether a provisioner with a Lease of its own may be at work. What can't be read is as
// it was before, and stops nobody at the beginning.
func (w *Watch) look(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	if err := errors.Join(w.lookAtLeases(ctx), w.lookAtCSIDriver(ctx)); err != nil {
		klog.V(2).ErrorS(err, "Whether another driver of the name is there can't be told")
	}
	return w.beside
}

// Saved says that another provisioner has saved a PersistentVolume for a claim. Whether one saves them is known by no Lease if it has none, or
// has it in another namespace.
func (w *Watch) Saved(pv, claim string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.saved.at.IsZero() || time.Since(w.saved.at) >= savedFor {
		w.saved.what = fmt.Sprintf("PersistentVolume %s for claim %s", pv, claim)
	}
	w.saved.at = time.Now()
}

// savedOfLate returns what another provisioner has saved of late, nothing if there is nothing.
func (w *Watch) savedOfLate() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.saved.at.IsZero() || time.Since(w.saved.at) >= savedFor {
		return ""
	}
	return w.saved.what
}

// lookAtLeases looks at each Lease, whether the other can be read or not.
func (w *Watch) lookAtLeases(ctx context.Context) (unread error) {
	var renewed []string
	beside := false
	for _, namespace := range slices.Compact([]string{metav1.NamespaceSystem, w.config.Namespace}) {
		if namespace == "" {
			continue
		}
		lease, err := w.config.Client.CoordinationV1().Leases(namespace).Get(ctx, w.config.Lease, metav1.GetOptions{})
		own := namespace == w.config.Namespace
		if err != nil && !apierrors.IsNotFound(err) {
			unread, beside = errors.Join(unread, err), beside || w.beside && !own
			continue
		}
		holder := ptr.Deref(lease.Spec.HolderIdentity, "")
		if holder == "" || own && leader.IsReplica(holder) {
			delete(w.leases, namespace)
			continue
		}
		held, seen := w.sight(lease)
		beside = beside || held && !own // of its own Lease an election sees that only one works
		if held && seen {
			renewed = append(renewed, fmt.Sprintf("%s renews Lease %s/%s", escape.Quoted(holder), namespace, w.config.Lease))
		}
	}
	w.beside = beside
	if saved := w.savedOfLate(); unread == nil || len(renewed) > 0 || saved != "" {
		w.tell(ReasonProvisioner, w.aboutProvisioner(renewed, saved))
	}
	return unread
}

func (w *Watch) lookAtCSIDriver(ctx context.Context) error {
	if len(w.config.Labels) == 0 {
		return nil
	}
	object, err := w.config.Client.StorageV1().CSIDrivers().Get(ctx, w.config.Driver, metav1.GetOptions{})
	if err == nil {
		w.tell(ReasonCSIDriver, w.aboutCSIDriver(object))
	}
	return err
}

// sight says whether a Lease may be held, by the rule of leader elections: until it was not renewed for its duration, as seen from here. seen
// says that a renewal was seen: what was left behind is not renewed.
func (w *Watch) sight(lease *coordinationv1.Lease) (held, seen bool) {
	renewed, now := ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}), time.Now()
	s := w.leases[lease.Namespace]
	switch {
	case s == nil:
		s = &sighting{renewed: renewed}
		if now.Sub(renewed.Time) < recent {
			s.at = now
		}
		w.leases[lease.Namespace] = s
	case !s.renewed.Equal(&renewed):
		*s = sighting{renewed: renewed, at: now, twice: true}
	}
	return now.Sub(s.at) < time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0))*time.Second, s.twice
}

// aboutProvisioner returns what operators are told of another provisioner; nothing if there is none.
func (w *Watch) aboutProvisioner(renewed []string, saved string) string {
	does := "this one waits for that Lease"
	switch {
	case len(renewed) == 0 && saved == "":
		return ""
	case len(renewed) == 0:
		renewed = []string{"it has saved " + saved + ", and renews no Lease where this one looks for it"}
		does = "both work on the same claims and volumes"
	case w.beside && w.config.Takeover:
		does = "both work on the same claims and volumes, because this one has --takeover"
	case w.beside:
		does = "this one provisions and deletes nothing until that one has ended, because it has no --takeover"
	}
	return fmt.Sprintf("another provisioner of driver %s is at work: %s; %s. `kubectl topodisk plan takeover` prints how to switch it off", w.config.Driver, strings.Join(renewed, ", "), does)
}

// aboutCSIDriver returns what operators are told of a CSIDriver object that is not as it was installed; nothing if it is.
func (w *Watch) aboutCSIDriver(object *storagev1.CSIDriver) string {
	var other []string
	for _, key := range slices.Sorted(maps.Keys(w.config.Labels)) {
		if value := object.Labels[key]; value != w.config.Labels[key] {
			other = append(other, fmt.Sprintf("its label %s is %q", key, value))
		}
	}
	for field, same := range map[string]bool{
		"attachRequired":       ptr.Deref(object.Spec.AttachRequired, true),
		"fsGroupPolicy":        ptr.Deref(object.Spec.FSGroupPolicy, "") == storagev1.FileFSGroupPolicy,
		"podInfoOnMount":       !ptr.Deref(object.Spec.PodInfoOnMount, false),
		"volumeLifecycleModes": slices.Equal(object.Spec.VolumeLifecycleModes, []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}),
	} {
		if !same {
			other = append(other, "its spec."+field+" was changed")
		}
	}
	slices.Sort(other)
	if len(other) == 0 {
		return ""
	}
	return fmt.Sprintf("CSIDriver %s is not as it was installed with this driver: %s. Another installation has made it: switch that off, delete the object, and install this driver's again",
		object.Name, strings.Join(other, ", "))
}

// tell sets the metric and, if the message is new, tells it.
func (w *Watch) tell(reason, message string) {
	found := 0.0
	if message != "" {
		found = 1
	}
	w.gauge.WithLabelValues(kinds[reason]).Set(found)
	if w.told[reason] == message {
		return
	}
	w.told[reason] = message
	if message == "" {
		klog.InfoS("Another driver of the name is gone", "kind", kinds[reason])
		return
	}
	klog.ErrorS(nil, message)
	w.config.Warn(reason, message)
}
