package main

import (
	"context"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

const (
	// sayAgain is how long a volume's owner isn't told again what was just said.
	sayAgain = time.Hour
	// findClaim is how long the API server may take to say whose a volume is.
	findClaim = 10 * time.Second
	// mostWarnings is how many warnings wait for that.
	mostWarnings = 100
	// longestEvent is how many bytes of a message an event has.
	longestEvent = 1024
)

// claims knows whose volume a disk of the node is.
type claims interface {
	// Claim returns the claim; nil if there is none.
	Claim(ctx context.Context, id disk.ID) (*corev1.ObjectReference, error)
}

// claimEvents tells the owners of a node's volumes with events on their claims. It
// tells nobody while the API server doesn't answer.
type claimEvents struct {
	claims   claims
	recorder record.EventRecorder
	waiting  chan warning
	mu       sync.Mutex
	said     map[subject]time.Time
}

// subject is what a volume's owner is told of once in a while.
type subject struct {
	volume disk.ID
	reason string
}

type warning struct {
	subject
	message string
}

// newClaimEvents returns what tells the owners of a node's volumes, once it runs.
func newClaimEvents(client kubernetes.Interface, node string, claims claims) *claimEvents {
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return tellClaims(broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "disk-driver", Host: node}), claims)
}

func tellClaims(recorder record.EventRecorder, claims claims) *claimEvents {
	return &claimEvents{claims: claims, recorder: recorder, waiting: make(chan warning, mostWarnings), said: map[subject]time.Time{}}
}

// Warn has the owner of a volume told, unless that was done within the hour. It returns
// at once.
func (e *claimEvents) Warn(volume disk.ID, reason, message string) {
	w := warning{subject{volume, reason}, message}
	if !e.isNews(w.subject) {
		return
	}
	select {
	case e.waiting <- w:
	default:
		e.forget(w.subject)
	}
}

// isNews says whether nobody was told of a subject within the hour, and notes that somebody is.
func (e *claimEvents) isNews(s subject) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for other, since := range e.said {
		if now.Sub(since) >= sayAgain {
			delete(e.said, other)
		}
	}
	if _, is := e.said[s]; is {
		return false
	}
	e.said[s] = now
	return true
}

// forget notes that nobody was told of a subject.
func (e *claimEvents) forget(s subject) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.said, s)
}

// reasonOtherPlugin is the reason of an event on a Node where another plugin of the driver's name is registered.
const reasonOtherPlugin = "AnotherPluginRegistered"

// otherPlugin returns what tells the administrator of a node of a plugin in the driver's place.
func (e *claimEvents) otherPlugin(node string) func(message string) {
	ref := &corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: node, UID: types.UID(node)} // as the kubelet's events have it
	return func(message string) { e.recorder.Event(ref, corev1.EventTypeWarning, reasonOtherPlugin, message) }
}

// run tells the owners until the context ends.
func (e *claimEvents) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case w := <-e.waiting:
			e.tell(ctx, w)
		}
	}
}

// tell tells the owner of one volume. If it can't be found out who that is, the next
// warning is news.
func (e *claimEvents) tell(ctx context.Context, w warning) {
	ctx, cancel := context.WithTimeout(ctx, findClaim)
	defer cancel()
	claim, err := e.claims.Claim(ctx, w.volume)
	if err != nil {
		klog.ErrorS(err, "The owner of a volume isn't told", "volume", w.volume, "reason", w.reason)
		e.forget(w.subject)
		return
	}
	if claim != nil {
		e.recorder.Event(claim, corev1.EventTypeWarning, w.reason, strings.ToValidUTF8(w.message[:min(len(w.message), longestEvent)], ""))
	}
}
