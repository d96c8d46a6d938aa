package ecs

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/topodisk/topodisk/diskdriver/ecs/instancequeue"
)

// metrics count what the calls alone don't show. Their labels are closed sets.
type metrics struct {
	batchDisks prometheus.Histogram
	operations *prometheus.GaugeVec
}

func newMetrics() *metrics {
	return &metrics{
		batchDisks: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "topodisk_ecs_read_batch_disks",
			Help:    "Disks that one shared DescribeDisks asks for.",
			Buckets: []float64{1, 2, 5, 10, 20, 50, 80, 100},
		}),
		operations: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "topodisk_ecs_instance_operations",
			Help: "Attach and detach operations of all instances by state: waiting for their turn at the instance, or running.",
		}, []string{"operation", "state"}),
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.batchDisks, m.operations}
}

// observeBatch notes the size of a shared DescribeDisks.
func (m *metrics) observeBatch(ids int) { m.batchDisks.Observe(float64(ids)) }

// countOperations notes a change of the number of attaches or detaches that wait or run.
func (m *metrics) countOperations(v instancequeue.Verb, state string, change float64) {
	m.operations.WithLabelValues(v.String(), state).Add(change)
}
