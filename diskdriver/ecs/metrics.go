package ecs

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/topodisk/topodisk/diskdriver/ecs/instancequeue"
)

// metrics counts the calls. Actions and Kinds are closed sets, and so are the
// labels.
type metrics struct {
	batchDisks prometheus.Histogram
	operations *prometheus.GaugeVec
	waits      *waits
	pending    prometheus.GaugeFunc
	oldest     prometheus.GaugeFunc
}

func newMetrics() *metrics {
	waits := newWaits()
	return &metrics{
		waits: waits,
		operations: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "topodisk_ecs_instance_operations",
			Help: "Attach and detach operations of all instances by state: waiting for their turn at the instance, or running.",
		}, []string{"operation", "state"}),
		pending: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "topodisk_ecs_pending_changes",
			Help: "Operations that wait for ECS to finish changing a disk.",
		}, func() float64 { n, _ := waits.now(); return float64(n) }),
		oldest: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "topodisk_ecs_oldest_pending_change_seconds",
			Help: "Age of the operation that has waited longest for ECS to finish changing a disk; 0 if none waits.",
		}, func() float64 { _, oldest := waits.now(); return oldest.Seconds() }),
		batchDisks: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "topodisk_ecs_read_batch_disks",
			Help:    "Disks that one shared DescribeDisks asks for.",
			Buckets: []float64{1, 2, 5, 10, 20, 50, 80, 100},
		}),
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.batchDisks, m.operations, m.pending, m.oldest}
}

// countOperations notes a change of the number of attaches or detaches that wait or run.
func (m *metrics) countOperations(v instancequeue.Verb, state string, change float64) {
	m.operations.WithLabelValues(v.String(), state).Add(change)
}
