package creation

import (
	"sync"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// Table keeps the Records of names. Nothing in it is needed for safety after a
// restart: the client tokens and the disks' tags are what survives. It is safe
// for concurrent use; the calls for one name come one at a time.
type Table struct {
	mu      sync.Mutex
	records map[string]Record
	swept   time.Time
}

// NewTable returns a Table that knows no name.
func NewTable() *Table { return &Table{records: make(map[string]Record)} }

// begin is told of every call for a name. caller tells the caller's processes
// apart: another one may have asked other drivers meanwhile, whatever this one
// remembers. first says that the caller can prove that no disk of the name exists
// or will come to exist from an earlier call; it is not believed of a name that
// this process knows better.
func (t *Table) begin(name string, caller any, first bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, known := t.records[name]
	switch {
	case !known && first:
		r = Record{generation: 1, absent: now}
	case !known:
		r = unknown(now)
	case first && !r.MayExist():
		r.absent = now
	case caller != r.caller:
		r.doubt(now.Add(Travel), false)
	}
	if !known || caller != r.caller {
		r.caller, r.asked = caller, now
	}
	t.keep(name, r, now)
	t.sweep(now)
}

// Of returns the Record of a name. One that isn't known may have been asked for
// by others until now.
func (t *Table) Of(name string, now time.Time) Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of(name, now)
}

// Knows says whether this process was asked for a name.
func (t *Table) Knows(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.records[name]
	return known
}

// Update changes the Record of a name.
func (t *Table) Update(name string, now time.Time, change func(*Record)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.of(name, now)
	change(&r)
	t.keep(name, r, now)
}

// Deleted reports that a disk was deleted that carries a name. A name that isn't known stays so.
func (t *Table) Deleted(name string, now time.Time, id disk.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r, known := t.records[name]; known {
		r.Deleted(now, id)
		t.records[name] = r
	}
}

func (t *Table) of(name string, now time.Time) Record {
	if r, known := t.records[name]; known {
		return r
	}
	return unknown(now)
}

func (t *Table) keep(name string, r Record, now time.Time) {
	r.touched = now
	t.records[name] = r
}

// sweep drops the names that are not asked for any more.
func (t *Table) sweep(now time.Time) {
	if now.Sub(t.swept) < forgetAfter/4 {
		return
	}
	t.swept = now
	for name, r := range t.records {
		if now.Sub(r.touched) > forgetAfter {
			delete(t.records, name)
		}
	}
}
