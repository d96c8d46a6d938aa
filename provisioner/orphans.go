package provisioner

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// auditInterval is how often the leader compares the driver's disks with the
// PersistentVolumes.
const auditInterval = time.Hour

// orphans are the disks of the cluster that nothing stands for. A disk counts when
// two audits in a row have found it, for a cache may lag behind the journal.
type orphans struct {
	cluster string // once an audit has told; until then that of the PersistentVolumes' disks
	found   []string
}

// countOrphans audits every auditInterval until ctx ends.
func (p *Provisioner) countOrphans(ctx context.Context) {
	var seen orphans
	for sleep(ctx, auditInterval) == nil {
		if err := p.auditOnce(ctx, &seen); err != nil {
			klog.ErrorS(err, "The disks could not be compared with the PersistentVolumes")
		}
	}
}

// auditOnce compares as RunAudit does, by what the caches show.
func (p *Provisioner) auditOnce(ctx context.Context, seen *orphans) error {
	e := evidence{cluster: seen.cluster, before: p.ownVolumes()}
	if e.cluster == "" && len(e.before) == 0 {
		return nil // nothing tells which disks are the cluster's
	}
	var err error
	if e.disks, err = listAll(ctx, p.driver, p.config.Timeout); err != nil {
		return err
	}
	e.requests, e.after, e.now = p.attempts.Requests(), p.ownVolumes(), p.now()
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
		if slices.Contains(seen.found, f.ID) {
			count++
			klog.InfoS("A disk has no PersistentVolume", "disk", f.ID, "about", f.About)
		}
	}
	*seen = orphans{cluster: a.Cluster, found: found}
	p.metrics.orphans.Set(float64(count))
	return nil
}

// ownVolumes returns the driver's PersistentVolumes that the cache shows.
func (p *Provisioner) ownVolumes() (volumes []v1.PersistentVolume) {
	for _, object := range p.volumes.List() {
		if pv := object.(*v1.PersistentVolume); pv.Spec.CSI != nil && pv.Spec.CSI.Driver == p.config.DriverName {
			volumes = append(volumes, *pv)
		}
	}
	return volumes
}
