package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// gcPercent is half of Go's own: this program keeps claims and volumes of the whole cluster and does little with them,
	// so its memory is dearer than the time that collecting takes.
	gcPercent = 50
	// heapFloor in bytes is how large the heap may grow all the same: a small one would be collected again and again while
	// many claims are provisioned.
	heapFloor = 40 << 20
)

// tuneHeap sets when garbage is collected, from now on after each collection. GOGC in the environment has the last word.
// Samples of what is allocated are taken only if there is a way to look at them.
func tuneHeap(profiles bool) {
	if !profiles {
		runtime.MemProfileRate = 0
	}
	if os.Getenv("GOGC") != "" {
		return
	}
	percent := 0
	afterEachGC(func() {
		if next := percentFor(liveHeap()); next != percent {
			percent = next
			debug.SetGCPercent(percent)
		}
	})
}

// percentFor is by how much a heap with so many bytes alive may grow before it is collected again. Go lets any heap
// grow to 4 MiB for each 100 %, so more than 1000 % would let a small one pass the floor.
func percentFor(live uint64) int {
	return max(gcPercent, int(heapFloor*100/max(live, heapFloor/11))-100)
}

// liveHeap in bytes is what the last collection has found alive.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// afterEachGC calls f now and after each collection, one call at a time.
func afterEachGC(f func()) {
	f()
	runtime.AddCleanup(&struct{ _ *byte }{}, func(f func()) { afterEachGC(f) }, f)
}
