// Package batch shares reads of ECS: one call reads up to a hundred disks, snapshots
// or tasks for all callers that wait for one of them.
//
// Its figures (TestPaceOfLifecycles, docs/benchmarks.md): a hundred volumes that are
// made, attached, expanded, detached and deleted at the same time take at most 7.5
// calls each and 1.12 times as long as ECS needs, and one alone at most 17 calls and
// 1.1 times as long; 1.35 times where ECS's times are not known and vary widely. So
// reads are shared, and sent when the changes that are waited for are likely to be
// over (schedule).
package batch

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/internal/deadline"
)

// Size is how many IDs one DescribeDisks takes, as do DescribeSnapshots and
// DescribeTasks.
const Size = 100

const (
	// gatherTime is how long a batch waits for more requests.
	gatherTime = 2 * time.Millisecond
	// judgeEvery is how often it is judged whether a batch is worth its call: so much for every judgeMany requests, for each
	// has to be judged.
	judgeEvery = 10 * time.Millisecond
	judgeMany  = 200
	// companyTime is for how long a request waits for others whose answer is all but certain to be wanted: by ripeOver or more.
	companyTime = 100 * time.Millisecond
	ripeOver    = 0.9
	// laterTimes is at how many later times it is judged whether a batch had better be sent then.
	laterTimes = 7
	// heldUp is from when on a read took so long that its time says nothing of others.
	heldUp = time.Second
)

// Reader answers requests for single disks, or other things of one sort, with
// shared calls. It makes none while nobody asks. It is safe for concurrent use.
type Reader[K ~string, V any] struct {
	config Config[K, V]

	mu       sync.Mutex
	later    []*request[K, V] // not due yet, the first one first
	ready    []*request[K, V] // due, and in no batch yet
	inFlight int              // batches that were sent and have no answer
	open     int              // requests that have no answer
	judgeAt  time.Time        // when it is judged next whether a batch is worthwhile
	answer   time.Duration    // how long the last read took that was not held up
	timer    *time.Timer
}

// Config says how a Reader reads.
type Config[K ~string, V any] struct {
	// Action is that of the calls, and Noun what they read, for errors.
	Action, Noun string
	// Form is that of the IDs that can share a call; nil for all. Each other ID
	// has a call of its own, for ECS may refuse a call for one bad ID.
	Form *regexp.Regexp
	// Size is how many things one call reads at most; 0 for 100, which is what
	// ECS takes of IDs.
	Size int
	// InFlight is how many batches are read at a time; 0 for no limit.
	InFlight int
	// Describe reads up to Size things. What it doesn't return is not there.
	Describe func(context.Context, []K) (map[K]V, error)
	// Throttled says whether ECS throttles the action just now.
	Throttled func() bool
	// Observe takes the number of IDs of each call; nil for nobody.
	Observe func(ids int)
}

// NewReader returns a Reader.
func NewReader[K ~string, V any](config Config[K, V]) *Reader[K, V] {
	config.Size = cmp.Or(config.Size, Size)
	return &Reader[K, V]{config: config}
}

// request is for one thing.
type request[K ~string, V any] struct {
	id     K
	since  time.Time  // who has waited longest goes first
	due    time.Time  // no read before
	wanted likelihood // of what is waited for
	until  time.Time  // nobody needs the answer later; zero: there is no such time

	value  float64   // of wanted, when it was judged
	ripe   time.Time // since when that has been at least ripeOver
	batch  *call[K, V]
	done   bool
	answer chan Observation[V]
}

// likelihood says how likely a read is to show what is waited for, from 0 to 1; enough is how likely it must be for one to be sent.
type likelihood func(now time.Time, enough float64) float64

// Observation is what a read shows of one thing.
type Observation[V any] struct {
	Sent, Received time.Time // when the read was sent, and when its answer came
	Value          V
	Found          bool
	err            error // of the read
}

// call is a batch under way, and the requests in it.
type call[K ~string, V any] struct {
	requests []*request[K, V]
	waiting  int // requests that were not cancelled
	cancel   context.CancelFunc
}

// absences are the pauses between reads of a thing that isn't shown: ECS may
// show it late, and an old state of it. After the last one it is gone.
var absences = []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}

// Get reads one thing. A failed call fails all who share it, and is not repeated
// here: that would be a hundred calls for one. That a thing isn't shown must be
// said twice, for ECS may answer once with a list that lacks it.
func (r *Reader[K, V]) Get(ctx context.Context, id K) (Observation[V], error) {
	due := time.Now()
	for absent := 0; ; absent++ {
		got, err := r.await(ctx, &request[K, V]{id: id, since: due, due: due, wanted: certain})
		if err != nil || got.Found || absent == 1 {
			return got, err
		}
		due = got.Received.Add(absences[0])
	}
}

// Once reads one thing with one call.
func (r *Reader[K, V]) Once(ctx context.Context, id K) (Observation[V], error) {
	now := time.Now()
	return r.await(ctx, &request[K, V]{id: id, since: now, due: now, wanted: certain})
}

// NotFound is the error for a thing that no read shows.
func (r *Reader[K, V]) NotFound(id K) error {
	return r.failed(disk.NotFound, "ECS shows no %s %s", r.config.Noun, id)
}

// certain is for who wants to know how things are, whatever that is.
func certain(time.Time, float64) float64 { return 1 }

// await returns the answer to a request; its error is that of the read. A caller
// whose time ends while ECS throttles reads is told so in time to answer.
func (r *Reader[K, V]) await(ctx context.Context, q *request[K, V]) (Observation[V], error) {
	if err := ctx.Err(); err != nil {
		return Observation[V]{}, r.failed(disk.Unreachable, "not sent: %w", err)
	}
	r.add(ctx, q)
	limited, cancel := deadline.BeforeAnswer(ctx)
	defer cancel()
	select {
	case got := <-q.answer:
		return got, got.err
	case <-limited.Done():
	}
	if !r.config.Throttled() {
		select {
		case got := <-q.answer:
			return got, got.err
		case <-ctx.Done():
		}
	}
	r.cancel(q)
	if r.config.Throttled() {
		return Observation[V]{}, r.failed(disk.Throttled, "held back because ECS throttles %s", r.config.Action)
	}
	return Observation[V]{}, r.failed(disk.Unreachable, "no answer in time: %w", ctx.Err())
}

// failed is the error of a request that got no answer.
func (r *Reader[K, V]) failed(kind disk.Kind, format string, args ...any) error {
	return &disk.Error{Op: r.config.Action, Kind: kind, Err: fmt.Errorf(format, args...)}
}

// add queues a request. Its answer comes through its channel.
func (r *Reader[K, V]) add(ctx context.Context, q *request[K, V]) {
	q.answer = make(chan Observation[V], 1)
	q.until, _ = ctx.Deadline()
	r.mu.Lock()
	defer r.mu.Unlock()
	at, _ := slices.BinarySearchFunc(r.later, q, func(a, b *request[K, V]) int { return a.due.Compare(b.due) })
	r.later = slices.Insert(r.later, at, q)
	r.open++
	r.dispatch()
}

// cancel takes a request back; the last one of a batch ends its call.
func (r *Reader[K, V]) cancel(q *request[K, V]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case q.done:
		return
	case q.batch != nil:
		if q.batch.waiting--; q.batch.waiting == 0 {
			q.batch.cancel()
		}
	default:
		same := func(other *request[K, V]) bool { return other == q }
		r.later, r.ready = slices.DeleteFunc(r.later, same), slices.DeleteFunc(r.ready, same)
	}
	q.done = true
	r.open--
	r.dispatch()
}

// dispatch sends the batches that are worthwhile, and sets the timer for the next.
func (r *Reader[K, V]) dispatch() {
	now := time.Now()
	r.takeDue(now)
	var next time.Time
	if len(r.later) > 0 {
		next = r.later[0].due
	}
	if len(r.ready) > 0 && !r.isHeld() {
		if !r.judgeAt.After(now) {
			r.judgeAt = now.Add(judgeEvery * time.Duration(1+len(r.ready)/judgeMany))
			for len(r.ready) > 0 && !r.isHeld() && r.isWorthwhile(now) {
				r.sendBatch(now)
			}
		}
		if len(r.ready) > 0 {
			next = earlier(next, r.judgeAt)
		}
	}
	if r.timer != nil {
		r.timer.Stop()
	}
	if !next.IsZero() {
		r.timer = time.AfterFunc(next.Sub(now), func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.dispatch()
		})
	}
}

// takeDue moves the requests that are due. An ID that ECS may refuse has a call
// of its own, so that no other request fails with it.
func (r *Reader[K, V]) takeDue(now time.Time) {
	for len(r.later) > 0 && !r.later[0].due.After(now) {
		q := r.later[0]
		r.later = slices.Delete(r.later, 0, 1)
		if r.config.Form != nil && !r.config.Form.MatchString(string(q.id)) {
			r.send(now, []*request[K, V]{q})
			continue
		}
		if gathered := q.due.Add(gatherTime); len(r.ready) == 0 && gathered.After(r.judgeAt) {
			r.judgeAt = gathered
		}
		r.ready = append(r.ready, q)
	}
}

// isHeld says whether the next batch waits for one that is under way: at the
// limit, or while ECS throttles reads, for then one that isn't full needs no call
// of its own.
func (r *Reader[K, V]) isHeld() bool {
	return r.config.InFlight > 0 && r.inFlight >= r.config.InFlight || r.inFlight > 0 && r.config.Throttled()
}

// isWorthwhile says whether a batch is likely to show enough of the requests that fit into it what they wait for, and had better not
// be sent a little later.
func (r *Reader[K, V]) isWorthwhile(now time.Time) bool {
	enough := min(mostLikelyOver, likelyOver*float64(r.open))
	for _, q := range r.ready {
		if q.value = q.wanted(now, enough); q.value >= ripeOver && q.ripe.IsZero() {
			q.ripe = now
		}
	}
	slices.SortStableFunc(r.ready, func(a, b *request[K, V]) int {
		return cmp.Or(cmp.Compare(b.value, a.value), a.since.Compare(b.since))
	})
	var sum float64
	for _, q := range r.ready[:min(len(r.ready), r.config.Size)] {
		sum += q.value
		if q.value >= ripeOver && now.Sub(q.ripe) >= companyTime {
			return true
		}
	}
	return sum >= enough*float64(min(r.open, r.config.Size)) && !r.isBetterLater(now, sum, enough)
}

// isBetterLater says whether a batch spares more time if it is sent a little later than now, when sum requests are likely to see what they
// wait for. It spares each that does the time from when it is sent until the next batch could be.
func (r *Reader[K, V]) isBetterLater(now time.Time, sum, enough float64) bool {
	next := max(r.answer, shortestPause)
	for i := range laterTimes {
		later := next * time.Duration(i+1) / (laterTimes + 1)
		var then float64
		for _, q := range r.ready[:min(len(r.ready), r.config.Size)] {
			then += q.wanted(now.Add(later), enough)
		}
		if then*float64(next-later) > sum*float64(next) {
			return true
		}
	}
	return false
}

// sendBatch sends a batch of the first requests of ready, and of all others for the same IDs.
func (r *Reader[K, V]) sendBatch(now time.Time) {
	taken := make(map[K]bool)
	var sent, left []*request[K, V]
	for _, q := range r.ready {
		if !taken[q.id] && len(taken) == r.config.Size {
			left = append(left, q)
			continue
		}
		taken[q.id] = true
		sent = append(sent, q)
	}
	r.ready = left
	r.send(now, sent)
}

// send makes the call of a batch, for as long as anybody waits for it.
func (r *Reader[K, V]) send(now time.Time, batch []*request[K, V]) {
	ctx, cancel := untilLast(batch)
	c := &call[K, V]{requests: batch, waiting: len(batch), cancel: cancel}
	ids := make([]K, 0, len(batch))
	for _, q := range batch {
		q.batch = c
		ids = append(ids, q.id)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	r.inFlight++
	if r.config.Observe != nil {
		r.config.Observe(len(ids))
	}
	go func() {
		defer cancel()
		shown, err := r.config.Describe(ctx, ids)
		r.deliver(c, now, shown, err)
	}()
}

// deliver answers the requests of a batch.
func (r *Reader[K, V]) deliver(c *call[K, V], sent time.Time, shown map[K]V, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	received := time.Now()
	for _, q := range c.requests {
		v, found := shown[q.id]
		if !q.done {
			r.open--
		}
		q.done = true
		q.answer <- Observation[V]{Sent: sent, Received: received, Value: v, Found: found, err: err}
	}
	r.inFlight--
	if took := received.Sub(sent); err == nil && took < heldUp {
		r.answer = took
	}
	r.dispatch()
}

// untilLast returns a context that ends when nobody needs the answer of a batch
// any more.
func untilLast[K ~string, V any](batch []*request[K, V]) (context.Context, context.CancelFunc) {
	var last time.Time
	for _, q := range batch {
		if q.until.IsZero() {
			return context.WithCancel(context.Background())
		}
		if q.until.After(last) {
			last = q.until
		}
	}
	return context.WithDeadline(context.Background(), last)
}

// earlier returns the earlier of two times; the zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
