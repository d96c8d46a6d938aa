// Package batch shares reads of ECS: one call reads up to a hundred disks, snapshots
// or tasks for all callers that wait for one of them.
package batch

import (
	"cmp"
	"context"
	"fmt"
	"math"
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
	// companyTime is for how long a request that is worth a call of its own waits for others.
	companyTime = 100 * time.Millisecond
	// oneShare and mostShare: see Reader.share.
	oneShare, mostShare = 0.1, 0.65
	// heldUp is from when on a read took so long that its time says nothing of others.
	heldUp = time.Second
)

// Reader answers requests for single disks, or other things of one sort, with
// shared calls. It makes none while nobody asks. It is safe for concurrent use.
type Reader[K ~string, V any] struct {
	config Config[K, V]

	mu       sync.Mutex
	later    []*request[K, V] // not due yet, the first one first
	ready    []*request[K, V] // due, and in no batch yet, in the order of shared
	since    time.Time        // when the first of ready was due
	inFlight int              // batches that were sent and have no answer
	open     int              // requests that have no answer
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
	since  time.Time // who has waited longest goes first
	due    time.Time // no read before
	shared time.Time // when it is worth a call that others share; before, it goes along
	alone  time.Time // when it is worth a call of its own
	until  time.Time // nobody needs the answer later; zero: there is no such time

	batch  *call[K, V]
	done   bool
	answer chan Observation[V]
}

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
		got, err := r.await(ctx, certain[K, V](id, due, due))
		if err != nil || got.Found || absent == 1 {
			return got, err
		}
		due = got.Received.Add(absences[0])
	}
}

// Once reads one thing with one call.
func (r *Reader[K, V]) Once(ctx context.Context, id K) (Observation[V], error) {
	now := time.Now()
	return r.await(ctx, certain[K, V](id, now, now))
}

// Shown takes what a read shows of a thing and returns the thing. NotFound: the read
// doesn't show it.
func (r *Reader[K, V]) Shown(id K) func(Observation[V], error) (V, error) {
	return func(got Observation[V], err error) (V, error) {
		if err == nil && !got.Found {
			err = r.failed(disk.NotFound, "ECS shows no %s %s", r.config.Noun, id)
		}
		return got.Value, err
	}
}

// certain is a request of one who wants to know how a thing is, whatever that is.
func certain[K ~string, V any](id K, since, due time.Time) *request[K, V] {
	return &request[K, V]{id: id, since: since, due: due, shared: due, alone: due.Add(companyTime)}
}

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
	for len(r.ready) > 0 && !r.isHeld() {
		at := r.worthwhileAt()
		if at.After(now) {
			next = earlier(next, at)
			break
		}
		r.sendBatch(now)
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
		if len(r.ready) == 0 {
			r.since = q.due
		}
		at, _ := slices.BinarySearchFunc(r.ready, q, func(a, b *request[K, V]) int { return cmp.Or(a.shared.Compare(b.shared), a.since.Compare(b.since)) })
		r.ready = slices.Insert(r.ready, at, q)
	}
}

// isHeld says whether the next batch waits for one that is under way: at the
// limit, or while ECS throttles reads, for then one that isn't full needs no call
// of its own.
func (r *Reader[K, V]) isHeld() bool {
	return r.config.InFlight > 0 && r.inFlight >= r.config.InFlight || r.inFlight > 0 && r.config.Throttled()
}

// worthwhileAt returns when to send a batch of ready: once enough of those that wait are worth a shared call, or one of them a call of its own.
func (r *Reader[K, V]) worthwhileAt() time.Time {
	at := r.ready[0].alone
	for _, q := range r.ready[1:] {
		at = earlier(at, q.alone)
	}
	enough := int(math.Ceil(r.share(r.open) * float64(min(r.open, r.config.Size))))
	if enough <= len(r.ready) {
		at = earlier(at, r.ready[enough-1].shared)
	}
	if gathered := r.since.Add(gatherTime); gathered.After(at) {
		return gathered
	}
	return at
}

// share returns how many of those that wait must be worth a call for it to be made, as a share of them: the more there are, the more of what
// ECS allows an account their reads take.
func (r *Reader[K, V]) share(waiting int) float64 { return min(mostShare, oneShare*float64(waiting)) }

// shareOfOneMore returns the share if one more waits than now.
func (r *Reader[K, V]) shareOfOneMore() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.share(r.open + 1)
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
	r.ready, r.since = left, now
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
