package provisioner

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/internal/audit"
	"github.com/topodisk/topodisk/internal/sleep"
	"github.com/topodisk/topodisk/provisioner/claim"
	"github.com/topodisk/topodisk/provisioner/request"
)

const (
	// auditInterval is how often the leader compares the driver's disks with the
	// PersistentVolumes, and a fifth more at most: many clusters share an account.
	auditInterval = time.Hour
	auditJitter   = 0.2
)

// auditedKinds are the findings that the leader counts, by the value of the label.
var auditedKinds = map[audit.Kind]string{
	audit.DiskWithoutVolume: "disk_without_volume",
	audit.VolumeWithoutDisk: "volume_without_disk",
	audit.KeptVolume:        "volume_without_claim",
}

// hourlyAudit counts what has no counterpart. What a cache shows suffices to say that there is
// nothing; before anything is counted the API server is asked, and everything read twice.
type hourlyAudit struct {
	live    auditSource
	claims  *claim.Syncer
	volumes cache.Store // PersistentVolumes, trimmed
	gauge   *prometheus.GaugeVec
	pause   func(context.Context, int) error

	cluster string // of the last audit; before the first, that of the PersistentVolumes' disks
	listed  audit.Listing
}

func newHourlyAudit(c *Controller) *hourlyAudit {
	a := &hourlyAudit{claims: c.claims, volumes: c.caches.Volumes.GetStore(), gauge: c.metrics.auditFindings}
	a.live = auditSource{config: c.config, client: c.client, driver: c.driver,
		requests: func(context.Context) ([]*request.Request, error) { return c.claims.Requests(), nil }}
	a.pause = func(ctx context.Context, _ int) error { return sleep.For(ctx, audit.Lag) }
	return a
}

// run audits every auditInterval until ctx ends.
func (a *hourlyAudit) run(ctx context.Context) {
	for sleep.For(ctx, wait.Jitter(auditInterval, auditJitter)) == nil {
		if err := a.audit(ctx); err != nil {
			klog.ErrorS(err, "Comparing the disks with the PersistentVolumes failed")
		}
	}
}

// audit compares and counts once.
func (a *hourlyAudit) audit(ctx context.Context) error {
	if a.cluster == "" && !slices.ContainsFunc(a.volumes.List(), a.isDrivers) {
		return nil // which disks are the cluster's is unknown
	}
	report, err := audit.Run(ctx, a, a.options(), a.pause)
	if err != nil {
		return err
	}
	a.cluster = report.Clusters[0]
	for kind, label := range auditedKinds {
		a.gauge.WithLabelValues(label).Set(float64(report.Count(kind)))
	}
	for _, f := range report.Findings {
		if f.Kind.NeedsAction() {
			klog.InfoS("An audit has found something without its counterpart", "finding", f.Kind.Text(), "disk", f.ID, "about", f.About)
		}
	}
	return nil
}

// isDrivers says whether a PersistentVolume is of the driver.
func (a *hourlyAudit) isDrivers(object any) bool {
	pv := object.(*v1.PersistentVolume)
	return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == a.live.config.DriverName
}

func (a *hourlyAudit) options() audit.Options { return audit.Options{Clusters: given(a.cluster)} }

// Listing reads the driver's volumes.
func (a *hourlyAudit) Listing(ctx context.Context) (audit.Listing, error) {
	var err error
	a.listed, err = a.live.Listing(ctx)
	return a.listed, err
}

// Cluster returns what the caches show if they leave nothing that needs an action, and
// reads the API server if they do: a cache may lag.
func (a *hourlyAudit) Cluster(ctx context.Context) (audit.Cluster, error) {
	cached := audit.Cluster{At: time.Now(), Driver: a.live.config.DriverName, Requests: auditRequests(a.claims.Requests())}
	for _, object := range a.volumes.List() {
		cached.Volumes = append(cached.Volumes, *object.(*v1.PersistentVolume))
	}
	if report, err := audit.Compare(a.listed, cached, a.options()); err == nil && report.Clean() {
		return cached, nil
	}
	return a.live.Cluster(ctx)
}
