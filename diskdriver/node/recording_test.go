package node

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// recording is what was done to a body, in the order in which it was, and what was known of it meanwhile.
type recording struct {
	size    int64  // of the body at the beginning; it is all zeros
	dir     string // the node's records, a directory
	changes []change
	phases  []phase
	files   []syncedFile
	records []nodeRecords
}

// change is one thing that was done to a body.
type change struct {
	kind       changeKind
	at, length int64
	content    []byte // nil: zeros
}

type changeKind int

const (
	written changeKind = iota
	flushed            // what is before it is durable
	resized
)

// phase is what the changes from one on belong to.
type phase struct {
	name string
	from int
}

// syncedFile is a file that was durable when some changes were made.
type syncedFile struct {
	path, content string // below the root of the file system
	after         int
}

// nodeRecords are what the node had recorded when some changes were made.
type nodeRecords struct {
	entries map[string]entry // by their paths below the directory
	after   int
}

// entry is a file or directory.
type entry struct {
	content string
	mode    fs.FileMode
	changed time.Time
}

// record begins to note what is done to a body that is all zeros, and what is in a directory meanwhile.
func (b *body) record(size int64, dir string) *recording {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = &recording{size: size, dir: dir}
	return b.log
}

// recorded ends what record began.
func (b *body) recorded() *recording {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.log
	b.log = nil
	return w
}

// with does something to a recording that nothing is added to meanwhile.
func (b *body) with(do func(w *recording)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	do(b.log)
}

// begins says what the next changes are for.
func (b *body) begins(name string) {
	b.with(func(w *recording) { w.phases = append(w.phases, phase{name, len(w.changes)}) })
}

// keeps says that a file is durable from now on.
func (b *body) keeps(path, content string) {
	b.with(func(w *recording) { w.files = append(w.files, syncedFile{path, content, len(w.changes)}) })
}

// note notes a change that is about to be made.
func (w *recording) note(c change) {
	if w == nil {
		return
	}
	w.look()
	w.changes = append(w.changes, c)
}

// look notes the node's records if they are others than before.
func (w *recording) look() {
	entries := readRecords(w.dir)
	if n := len(w.records); n == 0 || !maps.Equal(w.records[n-1].entries, entries) {
		w.records = append(w.records, nodeRecords{entries, len(w.changes)})
	}
}

// readRecords reads a directory. What goes meanwhile was never there.
func readRecords(dir string) map[string]entry {
	entries := map[string]entry{}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it is gone, or not there yet
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // it is gone
		}
		e := entry{mode: info.Mode(), changed: info.ModTime()}
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil {
				return nil //nolint:nilerr // it is gone
			}
			e.content = string(content)
		}
		if rest, err := filepath.Rel(dir, path); err == nil && (info.IsDir() || info.Mode().IsRegular()) {
			entries[rest] = e
		}
		return nil
	})
	return entries
}

// writeRecords makes a directory what it was.
func writeRecords(dir string, entries map[string]entry) error {
	err := os.RemoveAll(dir)
	for path, e := range entries {
		path = filepath.Join(dir, path)
		if e.mode.IsDir() {
			err = errors.Join(err, os.MkdirAll(path, e.mode.Perm()))
			continue
		}
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(e.content), e.mode.Perm()))
	}
	for path, e := range entries { // once nothing is made in them any more
		err = errors.Join(err, os.Chtimes(filepath.Join(dir, path), e.changed, e.changed))
	}
	return err
}

// powerLoss is what a loss of power leaves of a body.
type powerLoss struct {
	seed    uint64
	phase   string
	cut, of int   // changes before it, and in all
	begun   int   // of these, after the last flush
	lost    int   // of these, those that left nothing
	torn    bool  // whether one was made in part
	size    int64 // of the disk then
	changes []change
	files   []syncedFile
	records map[string]entry
}

// powerLoss cuts a recording at a random point: all changes before the last flush are made, of those after it some; the last of these
// may be made in part. Seeds that follow each other take one phase after the other.
func (w *recording) powerLoss(seed uint64) powerLoss {
	random := rand.New(rand.NewPCG(seed, 0))
	i := int(seed % uint64(len(w.phases)))
	end := len(w.changes)
	if i+1 < len(w.phases) {
		end = w.phases[i+1].from
	}
	begin := w.phases[i].from
	l := powerLoss{seed: seed, phase: w.phases[i].name, cut: begin + random.IntN(end-begin+1), of: len(w.changes), size: w.size}
	durable := 0
	for i, c := range w.changes[:l.cut] {
		switch c.kind {
		case flushed:
			durable = i
		case resized:
			l.size = c.length
		}
	}
	l.changes = append(l.changes, w.changes[:durable]...)
	likely := float64(random.IntN(5)) / 4
	for _, c := range w.changes[durable:l.cut] {
		switch {
		case c.kind != written:
		case random.Float64() < likely:
			l.changes = append(l.changes, c)
			l.begun++
		default:
			l.begun++
			l.lost++
		}
	}
	if l.begun > l.lost && random.IntN(2) == 0 {
		l.torn = l.tear(random)
	}
	for _, f := range w.files {
		if f.after <= l.cut {
			l.files = append(l.files, f)
		}
	}
	known := l.cut - random.IntN(2) // the power is lost at any time between two changes
	for _, r := range w.records {
		if r.after <= known || l.records == nil {
			l.records = r.entries
		}
	}
	return l
}

// tear has only some sectors of the last change be made.
func (l *powerLoss) tear(random *rand.Rand) bool {
	last := &l.changes[len(l.changes)-1]
	if last.length <= sector {
		return false
	}
	last.length = sector * (1 + random.Int64N((last.length-1)/sector))
	if last.content != nil {
		last.content = last.content[:last.length]
	}
	return true
}

// write puts what is left into a file that is all zeros.
func (l *powerLoss) write(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for _, c := range l.changes {
		switch {
		case c.kind != written:
		case c.content == nil:
			err = errors.Join(err, punch(f, c.at, c.length))
		default:
			_, failed := f.WriteAt(c.content, c.at)
			err = errors.Join(err, failed)
		}
	}
	return err
}

// String tells a person where the power was lost.
func (l *powerLoss) String() string {
	return fmt.Sprintf("%s, after change %d of %d, of which %d came after the last flush; %d of these are lost, one is torn: %v", l.phase, l.cut, l.of, l.begun, l.lost, l.torn)
}

// What is before the last flush stays, and what comes after it is there, lost or torn.
func TestPowerLossIsSimulated(t *testing.T) {
	const block, blocks, durable = 4 << 10, 8, 3
	content := func(i int) []byte { return bytes.Repeat([]byte{byte(i + 1)}, block) }
	w := &recording{size: blocks * block, phases: []phase{{"first", 0}, {"second", 1}}}
	for i := range blocks {
		if i == durable {
			w.note(change{kind: flushed})
		}
		w.note(change{kind: written, at: int64(i) * block, length: block, content: content(i)})
	}
	seen, path := map[string]int{}, filepath.Join(t.TempDir(), "body")
	for seed := range uint64(400) {
		l := w.powerLoss(seed)
		if err := errors.Join(os.WriteFile(path, make([]byte, w.size), 0o600), l.write(path)); err != nil {
			t.Fatal(err)
		}
		left, err := os.ReadFile(path)
		if err != nil || int64(len(left)) != w.size {
			t.Fatalf("%d bytes, %v", len(left), err)
		}
		for i := range blocks {
			is := "torn"
			switch got := left[i*block : (i+1)*block]; {
			case bytes.Equal(got, content(i)):
				is = "there"
			case bytes.Equal(got, make([]byte, block)):
				is = "lost"
			case !bytes.Equal(got[:sector], content(i)[:sector]) || got[block-1] != 0:
				t.Errorf("seed %d: block %d is neither old nor new", seed, i)
			}
			change := i
			if i >= durable {
				change++
			}
			switch {
			case change >= l.cut && is != "lost":
				t.Errorf("seed %d: block %d, which was written after the power was lost, is %s", seed, i, is)
			case change < durable && l.cut > durable && is != "there":
				t.Errorf("seed %d: block %d, which was flushed, is %s", seed, i, is)
			case change < l.cut && (change > durable || l.cut <= durable):
				seen[is]++
			}
		}
	}
	for _, is := range []string{"there", "lost", "torn"} {
		if seen[is] < 50 {
			t.Errorf("%d blocks that weren't flushed are %s in 400 losses of power: %v", seen[is], is, seen)
		}
	}
}
