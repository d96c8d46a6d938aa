package provisioner

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/request"
)

// report emits the events of attempts, and counts them.
func (p *Provisioner) report(action attempt.Action) {
	m := p.metrics
	switch a := action.(type) {
	case attempt.Notify:
		p.events.Eventf(a.Claim, v1.EventTypeWarning, reasonFailed, "failed to provision volume with StorageClass %q: %v", a.Class, a.Err)
	case attempt.NotifyCleanup:
		p.events.Eventf(a.Claim, v1.EventTypeWarning, reasonCleanupFailed, "%v; volume %s could not be deleted again: %v", a.Why, a.ID, a.Err)
	case attempt.Report:
		p.events.Eventf(a.Claim, v1.EventTypeNormal, reasonSucceeded, "Successfully provisioned volume %s", a.Volume)
		class := m.label(request.ClassName(a.Claim))
		m.upstream.PersistentVolumeClaimProvisionTotal.WithLabelValues(class).Inc()
		m.upstream.PersistentVolumeClaimProvisionDurationSeconds.WithLabelValues(class).Observe(a.Took.Seconds())
		m.begin(class)
		m.saved(a.Claim, p.now())
	case attempt.ReportHeld:
		p.events.Eventf(a.Request.Claim, v1.EventTypeNormal, reasonHeld, "volume %s is made for node %s; its PersistentVolume is not saved yet: %v", a.Volume, a.Request.Node, a.Why)
	case attempt.CountFailure:
		klog.InfoS("Provisioning failed, will retry", "claim", klog.KObj(a.Claim), "err", a.Err)
		m.begin(a.Class)
		m.upstream.PersistentVolumeClaimProvisionFailedTotal.WithLabelValues(m.label(a.Class)).Inc()
	case attempt.CountAnswer:
		m.outcome(a.Request.Class.Name, a.Outcome)
	case attempt.CountSkipped:
		m.skipped.Inc()
	case attempt.CountReschedule:
		m.reschedules.WithLabelValues(rescheduleReason(a.Err)).Inc()
	case attempt.CountLeakPrevented:
		m.leaks.WithLabelValues(resultSaved).Inc()
	}
}
