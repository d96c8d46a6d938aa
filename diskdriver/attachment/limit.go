package attachment

import (
	"context"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/internal/deadline"
)

const (
	// shortestWait is for how long a call waits that is let in: ECS detaches a disk in about four seconds.
	shortestWait = 5 * time.Second
	// usualWait is for how long a call waits whose caller says nothing: the chart's csi-attacher gives up after 2 minutes.
	usualWait = 2 * time.Minute
)

// Limit is how many publishes, and as many unpublishes, wait in the driver at a time; 0 is any number.
//
// csi-attacher has one queue for attaches and detaches and a number of workers, and a call holds one of them until it is answered. So
// neither operation may take them all: a thousand detaches that hang would have every attach wait until they time out.
type Limit int

// wait returns for how long a call may wait that finds so many of its kind waiting, if its caller has that much time; false if it may not
// wait at all.
//
// The more wait, the less time a call has, so that those that come at once are answered one by one, each with a write to the API server,
// and there is room for those that come next. What ECS has begun it goes on with, and the same call later finds it done.
func (l Limit) wait(waiting int, left time.Duration) (time.Duration, bool) {
	free := int(l) - waiting
	switch {
	case l == 0:
		return left, true
	case free <= 0:
		return 0, false
	}
	return min(left, max(shortestWait, left/time.Duration(l)*time.Duration(free))), true
}

// admit lets a call wait, and returns its context and what notes that it waits no longer. Pending: too many of its kind wait.
func (t *Table) admit(ctx context.Context, wanted phase) (context.Context, func(), error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := usualWait
	if end, ends := ctx.Deadline(); ends {
		left = time.Until(end)
	}
	wait, ok := t.limit.wait(t.waiting[wanted], left)
	if !ok {
		return ctx, nil, disk.Errorf(disk.Pending, "%d calls wait for disks to be %s, and more would leave no room for others; the same call later may wait", t.waiting[wanted], wanted)
	}
	if wait < left {
		ctx = deadline.AnswerBy(ctx, time.Now().Add(wait))
	}
	t.waiting[wanted]++
	return ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.waiting[wanted]--
	}, nil
}
