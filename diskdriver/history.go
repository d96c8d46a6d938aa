package diskdriver

import (
	"sync"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

const (
	// visibilityHorizon is how long a disk may stay out of ECS's reads. When it
	// has passed since a client token was first found used up with no disk of
	// its name in sight, the disk of that token is taken for gone.
	visibilityHorizon = 60 * time.Second

	// tokenTrust is for how long ECS surely makes one disk for a client token,
	// counted from the first call with it. ECS documents no time at all.
	tokenTrust = 5 * time.Minute

	// forgetAfter is how long a name that is not asked for is remembered. A
	// name that comes again later is treated as after a restart, which is safe
	// and costs a visibilityHorizon at most.
	forgetAfter = time.Hour
)

// past is what this process has seen of a volume name.
type past struct {
	generation  disk.Generation // of the client token
	unsure      bool            // a create under the token may have made a disk
	unsureSince time.Time       // when the last create that has made a disk, or may have, was answered
	outOfStock  bool            // the last create under the token was answered OutOfStock, and none before it is in doubt
	unseenSince time.Time       // when the token was first found used up with no disk in sight; zero if it wasn't
	answered    bool            // with the volume, the last time that it was asked for; nobody knows whether that was heard
	absentSince time.Time       // when it was last proved that there was no disk of the name; zero if one was found, or nobody looked
	touched     time.Time
}

// tokenTells says whether the client token alone finds what was made under the
// name: all since it was proved that there was no disk, or too late to show then.
func (p past) tokenTells() bool { return time.Since(p.absentSince) < tokenTrust-visibilityHorizon }

// shows says whether all that was made under the name shows by now.
func (p past) shows() bool { return !p.answered || time.Since(p.touched) > visibilityHorizon }

// mayHaveDisk says whether there may be a disk of the name under the token.
func (p past) mayHaveDisk() bool { return p.unsure || p.answered }

// next returns what is known of the name under the next token: nothing.
func (p past) next() past { return past{generation: p.generation + 1, absentSince: p.absentSince} }

// doubted is the past after one more create that may have made a disk.
func (p past) doubted(now time.Time) past {
	p.unsure, p.unsureSince, p.outOfStock = true, now, false
	return p
}

// history keeps the pasts of names. Nothing in it is
// needed for safety after a restart: the client tokens and the disks' tags are
// what survives.
type history struct {
	mu    sync.Mutex
	names map[string]past
	swept time.Time
}

func newHistory() *history { return &history{names: make(map[string]past)} }

// of returns the past of a name.
func (h *history) of(name string) past {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p, ok := h.names[name]; ok {
		return p
	}
	return past{generation: 1}
}

// looked notes that a disk of the name was looked for, and whether one was found:
// then the token that made it may be older than anybody knows.
func (h *history) looked(name string, at time.Time, found bool) {
	p := h.of(name)
	p.absentSince = at
	if found {
		p.absentSince = time.Time{}
	}
	if !p.answered {
		h.keep(name, p)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.names[name] = p // when it was answered counts on
}

// keep remembers the past of a name.
func (h *history) keep(name string, p past) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.touched = time.Now()
	h.names[name] = p
	h.sweep(p.touched)
}

// answer notes that the volume of a name is there: nothing is in doubt any more,
// but that reads may not show it yet.
func (h *history) answer(name string) {
	p := h.of(name)
	h.keep(name, past{generation: p.generation, answered: true, unsureSince: time.Now(), absentSince: p.absentSince})
}

// sweep drops the names that are not asked for any more.
func (h *history) sweep(now time.Time) {
	if now.Sub(h.swept) < forgetAfter/4 {
		return
	}
	h.swept = now
	for name, p := range h.names {
		if now.Sub(p.touched) > forgetAfter {
			delete(h.names, name)
		}
	}
}
