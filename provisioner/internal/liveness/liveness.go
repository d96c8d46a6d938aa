// Package liveness detects queues whose workers are stuck.
package liveness

import (
	"fmt"
	"sync"
	"time"
)

// Monitor observes a queue: what is added to it, and when workers begin and end with it.
// It is safe for concurrent use.
type Monitor struct {
	mu      sync.Mutex
	running bool
	queued  map[string]struct{} // keys that no worker has begun with since they were queued
	last    time.Time           // when a worker last began with a key, got further with it or ended, or the first key was queued
}

// New returns a Monitor of a queue without workers.
func New() *Monitor {
	return &Monitor{queued: map[string]struct{}{}}
}

// Start notes that workers serve the queue from now on.
func (m *Monitor) Start() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running, m.last = true, time.Now()
}

// Stop notes that the workers have ended.
func (m *Monitor) Stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = false
}

// Queued notes that a key was added to the queue.
func (m *Monitor) Queued(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queued) == 0 {
		m.last = time.Now()
	}
	m.queued[key] = struct{}{}
}

// Worked notes that a worker has begun or ended with a key.
func (m *Monitor) Worked(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.queued, key)
	m.last = time.Now()
}

// Progressed notes that a worker has got further with a key.
func (m *Monitor) Progressed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = time.Now()
}

// Check returns an error if something has been queued for longer than limit and no
// worker has begun, got further or ended with anything meanwhile.
func (m *Monitor) Check(limit time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	idle := time.Since(m.last)
	if !m.running || len(m.queued) == 0 || idle <= limit {
		return nil
	}
	return fmt.Errorf("%d objects are queued, and for %s no worker has got further with one", len(m.queued), idle.Round(time.Second))
}
