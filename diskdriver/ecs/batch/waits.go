package batch

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Waits counts the operations of all accounts that wait for a disk to change.
type Waits struct {
	mu    sync.Mutex
	began map[*Change]time.Time
}

// NewWaits returns Waits of no operation.
func NewWaits() *Waits { return &Waits{began: make(map[*Change]time.Time)} }

// Collectors are the metrics of the operations.
func (w *Waits) Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "topodisk_ecs_pending_changes",
			Help: "Operations that wait for ECS to finish changing a disk.",
		}, func() float64 { n, _ := w.now(); return float64(n) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "topodisk_ecs_oldest_pending_change_seconds",
			Help: "Age of the operation that has waited longest for ECS to finish changing a disk; 0 if none waits.",
		}, func() float64 { _, oldest := w.now(); return oldest.Seconds() }),
	}
}

func (w *Waits) add(c *Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began[c] = time.Now()
}

func (w *Waits) remove(c *Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.began, c)
}

// now returns how many wait, and for how long the first of them has.
func (w *Waits) now() (n int, oldest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, began := range w.began {
		oldest = max(oldest, time.Since(began))
	}
	return len(w.began), oldest
}
