package main

import (
	"runtime"
	"testing"
)

func TestHeapGrowth(t *testing.T) {
	for live, want := range map[uint64]uint64{
		0:        heapFloor,
		4 << 20:  heapFloor,
		20 << 20: heapFloor,
		32 << 20: 48 << 20,
		64 << 20: 96 << 20,
	} {
		grown := max(live*uint64(100+percentFor(live)), 4<<20*uint64(percentFor(live))) / 100 // Go's rule
		if grown > want || grown < want-want/50 {
			t.Errorf("with %d MiB alive the heap grows to %d bytes, want %d", live>>20, grown, want)
		}
	}
}

func TestAfterEachGC(t *testing.T) {
	looked := make(chan uint64, 1)
	afterEachGC(func() {
		select {
		case looked <- liveHeap():
		default: // nobody waits any more
		}
	})
	<-looked
	for range 3 {
		runtime.GC()
		if live := <-looked; live == 0 {
			t.Error("nothing is alive")
		}
	}
}
