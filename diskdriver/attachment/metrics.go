package attachment

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// operations are what the metrics call the phases that are asked for.
var operations = map[phase]string{attached: "attach", detached: "detach"}

var (
	pendingDesc = byOperation(prometheus.GaugeOpts{
		Name: "topodisk_csi_pending_attachments",
		Help: "Disks and nodes that the driver is asked to attach or detach, again and again, and that it has not been able to yet.",
	})
	oldestDesc = byOperation(prometheus.GaugeOpts{
		Name: "topodisk_csi_oldest_pending_attachment_seconds",
		Help: "How long ago the driver was first asked for the oldest of them; 0 if there is none.",
	})
)

func byOperation(o prometheus.GaugeOpts) *prometheus.Desc {
	return prometheus.NewDesc(o.Name, o.Help, []string{"operation"}, nil)
}

// Describe is that of a prometheus.Collector.
func (t *Table) Describe(all chan<- *prometheus.Desc) {
	all <- pendingDesc
	all <- oldestDesc
}

// Collect is that of a prometheus.Collector. What was never asked for has no series.
func (t *Table) Collect(all chan<- prometheus.Metric) {
	t.mu.Lock()
	defer t.mu.Unlock()
	pending, oldest := t.pending(time.Now())
	for wanted, operation := range operations {
		if !t.asked[wanted] {
			continue
		}
		all <- prometheus.MustNewConstMetric(pendingDesc, prometheus.GaugeValue, float64(pending[wanted]), operation)
		all <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, oldest[wanted].Seconds(), operation)
	}
}

// pending returns how many attachments and detachments are asked for that aren't done, and for how long the oldest has been. Whoever
// has not asked again for longestRetry has given up.
func (t *Table) pending(now time.Time) (n map[phase]int, oldest map[phase]time.Duration) {
	n, oldest = map[phase]int{}, map[phase]time.Duration{}
	for _, all := range t.disks {
		for _, r := range all.on {
			if r.wanted == unknown || now.Sub(r.last) > longestRetry {
				continue
			}
			n[r.wanted]++
			oldest[r.wanted] = max(oldest[r.wanted], now.Sub(r.asked))
		}
	}
	return n, oldest
}
