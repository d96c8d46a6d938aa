package lib6

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"
)

// ByClass are metrics with the label class. They have series of the StorageClasses that exist: claims and PersistentVolumes may name any.
type ByClass struct {
	Classes cache.Store
	Metrics []*prometheus.MetricVec
}

// Label returns the value of the label for a class, which is empty for one that doesn't exist.
func (b ByClass) Label(class string) string {
	if _, exists, err := b.Classes.GetByKey(class); err != nil || !exists {
		return ""
	}
	return class
}

// Forget removes the series of a class that is gone.
func (b ByClass) Forget(class string) {
	for _, metric := range b.Metrics {
		metric.DeletePartialMatch(prometheus.Labels{"class": class})
	}
}
