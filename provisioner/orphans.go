package provisioner

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/provisioner/attempt"
)

// auditInterval is how often the leader compares the driver's disks with the
// PersistentVolumes.
const auditInterval = time.Hour

// orphans counts the disks of the cluster without a PersistentVolume or a claim. A disk
// counts once two audits in a row have found it, because a cache may lag behind the
// journal.
type orphans struct {
	config   Config
	driver   Driver
	attempts *attempt.Table
	volumes  cache.Store // PersistentVolumes, trimmed
	gauge    prometheus.Gauge
	now      func() time.Time

	cluster string // of the last audit; before the first, that of the PersistentVolumes' disks
	found   []string
}

func newOrphans(p *Provisioner) *orphans {
	return &orphans{config: p.config, driver: p.driver, attempts: p.attempts, volumes: p.volumes, gauge: p.metrics.orphans, now: p.now}
}

// run audits every auditInterval until ctx ends.
func (o *orphans) run(ctx context.Context) {
	for sleep(ctx, auditInterval) == nil {
		if err := o.audit(ctx); err != nil {
			klog.ErrorS(err, "Comparing the disks with the PersistentVolumes failed")
		}
	}
}

// audit is RunAudit by what the caches show.
func (o *orphans) audit(ctx context.Context) error {
	e := auditInput{cluster: o.cluster, before: o.persistentVolumes()}
	if e.cluster == "" && len(e.before) == 0 {
		return nil // which disks are the cluster's is unknown
	}
	var err error
	if e.disks, err = listAll(ctx, o.driver, o.config.Timeout); err != nil {
		return err
	}
	e.requests, e.after, e.now = o.attempts.Requests(), o.persistentVolumes(), o.now()
	a, err := audit(e)
	if err != nil {
		return err
	}
	var found []string
	count := 0
	for _, f := range a.Findings {
		if f.What != DiskWithoutVolume {
			continue
		}
		found = append(found, f.ID)
		if slices.Contains(o.found, f.ID) {
			count++
			klog.InfoS("A disk has no PersistentVolume", "disk", f.ID, "about", f.About)
		}
	}
	o.cluster, o.found = a.Cluster, found
	o.gauge.Set(float64(count))
	return nil
}

// persistentVolumes returns the driver's PersistentVolumes that the cache shows.
func (o *orphans) persistentVolumes() (volumes []v1.PersistentVolume) {
	for _, object := range o.volumes.List() {
		if pv := object.(*v1.PersistentVolume); pv.Spec.CSI != nil && pv.Spec.CSI.Driver == o.config.DriverName {
			volumes = append(volumes, *pv)
		}
	}
	return volumes
}
