package transport

import (
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// signatureWindow is how far the time of a signature may be off ECS's time (API pages on signatures, versions 1.0 and 3).
// A request that was signed earlier is InvalidTimeStamp.Expired.
const signatureWindow = 15 * time.Minute

// serverClock is ECS's time, as its replies tell it. Until there was one it is
// this machine's.
type serverClock struct {
	ahead atomic.Int64 // of this machine's, in nanoseconds

	// windowDiffers says that ECS takes no signature as old as the window allows.
	windowDiffers atomic.Bool
}

// learn reads the time of a reply.
func (c *serverClock) learn(reply http.Header) {
	if theirs, err := http.ParseTime(reply.Get("Date")); err == nil {
		c.ahead.Store(int64(time.Until(theirs)))
	}
}

// expiring returns the time to sign a request with that ECS is to refuse after
// disk.RequestLifetime. ECS knows no parameter for that, so it is a time in the past.
func (c *serverClock) expiring() time.Time {
	return time.Now().Add(time.Duration(c.ahead.Load()) - signatureWindow + disk.RequestLifetime)
}

// isExpired says whether ECS refused a call for the time of its signature.
func isExpired(err error) bool {
	code := CodeOf(err)
	return code == "InvalidTimeStamp.Expired" || code == "IllegalTimestamp"
}

// tellWindow says that requests live longer than they should.
func tellWindow() {
	klog.InfoS("ECS takes no signature that is almost 15 minutes old, so a request that changes something may be on its way for longer", "than", disk.RequestLifetime)
}
