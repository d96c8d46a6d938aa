package ecs

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/topodisk/topodisk/diskdriver/ecs/instancequeue"
	"github.com/topodisk/topodisk/diskdriver/ecs/transport"
)

// metrics count what the calls alone don't show. Their labels are closed sets.
type metrics struct {
	batchDisks prometheus.Histogram
	operations *prometheus.GaugeVec
	empty      *prometheus.CounterVec
}

func newMetrics() *metrics {
	m := &metrics{
		batchDisks: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "topodisk_ecs_read_batch_disks",
			Help:    "Disks that one shared DescribeDisks asks for.",
			Buckets: []float64{1, 2, 5, 10, 20, 50, 80, 100},
		}),
		operations: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "topodisk_ecs_instance_operations",
			Help: "Attach and detach operations of all instances by state: waiting for their turn at the instance, or running.",
		}, []string{"operation", "state"}),
		empty: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "topodisk_ecs_empty_answers_total",
			Help: "Answers of ECS by action that are empty and can't be: the account lacks a permission, or ECS is not well. Nothing follows from them.",
		}, []string{"action"}),
	}
	for _, action := range []string{transport.DescribeAvailableResource.Name, transport.DescribeDisks.Name, transport.DescribeSnapshots.Name} {
		m.empty.WithLabelValues(action)
	}
	return m
}

// countEmpty notes an answer that can't be empty and is.
func (m *metrics) countEmpty(action string) { m.empty.WithLabelValues(action).Inc() }

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.batchDisks, m.operations, m.empty}
}

// observeBatch notes the size of a shared DescribeDisks.
func (m *metrics) observeBatch(ids int) { m.batchDisks.Observe(float64(ids)) }

// countOperations notes a change of the number of attaches or detaches that wait or run.
func (m *metrics) countOperations(v instancequeue.Verb, state string, change float64) {
	m.operations.WithLabelValues(v.String(), state).Add(change)
}
