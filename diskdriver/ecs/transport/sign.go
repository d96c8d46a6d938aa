package transport

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // the API's signature version 1.0
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
)

// timestampWindow is how far a Timestamp may be off ECS's time (API page on
// signatures). A request with an older one is InvalidTimeStamp.Expired.
const timestampWindow = 15 * time.Minute

// serverClock is ECS's time, as its replies tell it. Until there was one it is
// this machine's.
type serverClock struct {
	ahead atomic.Int64 // of this machine's, in nanoseconds

	// windowDiffers says that ECS takes no Timestamp as old as the window allows.
	windowDiffers atomic.Bool
}

// learn reads the time of a reply.
func (c *serverClock) learn(reply http.Header) {
	if theirs, err := http.ParseTime(reply.Get("Date")); err == nil {
		c.ahead.Store(int64(time.Until(theirs)))
	}
}

// expiring returns the Timestamp of a request that ECS is to refuse after
// disk.RequestLifetime. ECS knows no parameter for that, so it is an old one.
func (c *serverClock) expiring() time.Time {
	return time.Now().Add(time.Duration(c.ahead.Load()) - timestampWindow + disk.RequestLifetime)
}

// withTimestamp returns the SDK's request with another Timestamp, signed for it
// (API page on signatures, version 1.0). All parameters are in the query.
func withTimestamp(request *http.Request, keys credentials.Keys, timestamp time.Time) *http.Request {
	query := request.URL.Query()
	query.Set("Timestamp", timestamp.UTC().Format("2006-01-02T15:04:05Z"))
	query.Del("Signature")
	text := request.Method + "&%2F&" + url.QueryEscape(strings.ReplaceAll(query.Encode(), "+", "%20"))
	mac := hmac.New(sha1.New, []byte(keys.AccessKeySecret+"&"))
	mac.Write([]byte(text))
	query.Set("Signature", base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	signed := *request
	location := *request.URL
	location.RawQuery = query.Encode()
	signed.URL = &location
	return &signed
}

// isExpired says whether ECS refused a call for its Timestamp.
func isExpired(err error) bool {
	code := CodeOf(err)
	return code == "InvalidTimeStamp.Expired" || code == "IllegalTimestamp"
}

// tellWindow says that requests live longer than they should.
func tellWindow() {
	klog.InfoS("ECS takes no Timestamp that is almost 15 minutes old, so a request that changes something may be on its way for longer", "than", disk.RequestLifetime)
}
