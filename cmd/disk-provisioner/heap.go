package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// gcPercent is half of Go's default: this program caches claims and volumes of the whole cluster, and its memory costs
	// more than the CPU time of the garbage collector.
	gcPercent = 50
	// heapFloor is the size in bytes to which any heap may grow: a small one would be collected too often while many claims
	// are provisioned.
	heapFloor = 40 << 20
)

// tuneHeap adapts the GC percentage after each collection. GOGC in the environment takes precedence. Memory profiles are
// sampled only if they are served.
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

// percentFor returns the GC percentage for a heap with so many live bytes. Go lets any heap
// grow to 4 MiB for each 100 %, so more than 1000 % would let a small one pass the floor.
func percentFor(live uint64) int {
	return max(gcPercent, int(heapFloor*100/max(live, heapFloor/11))-100)
}

// liveHeap returns the live bytes of the last collection.
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
