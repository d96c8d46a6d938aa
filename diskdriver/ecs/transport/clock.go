package transport

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// signatureWindow is how far the time of a signature may be off ECS's time (API pages on signatures, versions 1.0 and 3).
// A request that was signed earlier is InvalidTimeStamp.Expired.
const signatureWindow = 15 * time.Minute

const (
	// sameTime is by how much replies of one time differ: they tell it in seconds, after they were on their way.
	sameTime = 5 * time.Second
	// heardKept and heardLasts bound the replies that tell ECS's time: so many, and none that is older.
	heardKept  = 8
	heardLasts = 10 * time.Minute
	// endlessLasts is for how long requests have no bounded life after ECS has refused a bounded one by its own time.
	endlessLasts = 10 * time.Minute
)

// serverClock is ECS's time, as its replies tell it. Until there was one, and
// when none has come for long, it is this machine's.
type serverClock struct {
	mu      sync.Mutex
	heard   []heard   // the newest last
	endless time.Time // when ECS has refused a bounded request by its own time; zero: it has not
}

// heard is the time that a reply told, and when. This machine's clock can be set meanwhile; how long ago that was it tells all the same.
type heard struct{ time, at time.Time }

// learn reads the time of a reply. One that is further off than ECS takes
// requests of this machine at all is not believed.
func (c *serverClock) learn(reply http.Header) {
	c.hear(reply, false)
}

// correct reads the time of a reply that refuses a request for its time: what
// was heard before was wrong.
func (c *serverClock) correct(reply http.Header) {
	c.hear(reply, true)
}

func (c *serverClock) hear(reply http.Header, alone bool) {
	theirs, err := http.ParseTime(reply.Get("Date"))
	if err != nil {
		return
	}
	now := time.Now()
	if theirs.Sub(now).Abs() > signatureWindow {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if alone {
		c.heard = nil
	}
	c.heard = append(c.heard, heard{theirs, now})
	if len(c.heard) > heardKept {
		c.heard = slices.Delete(c.heard, 0, 1)
	}
}

// expiring returns the time to sign a request with that ECS is to refuse after
// disk.RequestLifetime. ECS knows no parameter for that, so it is a time in the past.
func (c *serverClock) expiring() time.Time {
	return c.now().Add(disk.RequestLifetime - signatureWindow)
}

// now is ECS's time at least: a request lives no longer if one of the replies was wrong.
func (c *serverClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = slices.DeleteFunc(c.heard, func(h heard) bool { return time.Since(h.at) >= heardLasts })
	if len(c.heard) == 0 {
		return time.Now()
	}
	var all []time.Time
	for _, h := range c.heard {
		all = append(all, h.time.Add(time.Since(h.at)))
	}
	return slices.MinFunc(all, time.Time.Compare)
}

// bounds says whether ECS takes requests with a bounded life, as far as is known.
func (c *serverClock) bounds() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.endless.IsZero() || time.Since(c.endless) >= endlessLasts
}

// unbounded notes that ECS has refused a request with a bounded life by its own
// time, and taken one without. It says so once in a while.
func (c *serverClock) unbounded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endless = time.Now()
	klog.InfoS("ECS takes no signature that is almost 15 minutes old, so a request that changes something may be on its way for longer",
		"than", disk.RequestLifetime, "triedAgainAfter", endlessLasts)
}

// isExpired says whether ECS refused a call for the time of its signature.
func isExpired(err error) bool {
	code := CodeOf(err)
	return code == "InvalidTimeStamp.Expired" || code == "IllegalTimestamp"
}
