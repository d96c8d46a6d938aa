//go:build e2einstall

package install

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/test/lab"
)

// load is what goes on while something happens to the installation: lines of claims that are bound and deleted again, one
// every pace, one of the lines with a Pod for each claim.
type load struct {
	scene  *scene
	stop   context.CancelFunc
	lines  sync.WaitGroup
	begins time.Time

	mu      sync.Mutex
	claims  int
	slowest time.Duration
	name    string // of the slowest
	failed  error
}

// linesOfClaims are those without Pods.
const linesOfClaims = 3

// pace is how long after the beginning of a turn the next one begins, if the turn has ended: without it the load, and not what is tried
// under it, would take the machine.
const pace = 2 * time.Second

func (s *scene) startLoad() *load {
	s.Helper()
	class := lab.Class("load", storagev1.VolumeBindingImmediate, map[string]string{"type": "cloud_essd"})
	if err := s.MakeClass(s.Context(), class); !apierrors.IsAlreadyExists(err) {
		s.Must(err)
	}
	ctx, stop := context.WithCancel(s.Context())
	l := &load{scene: s, stop: stop, begins: time.Now()}
	for line := range linesOfClaims + 1 {
		turn := l.claim
		if line == linesOfClaims {
			turn = l.claimWithPod
		}
		l.lines.Go(func() { l.repeat(ctx, fmt.Sprintf("load-%d", line), turn) })
	}
	return l
}

// repeat takes turns until the load is stopped. A turn that has begun is ended.
func (l *load) repeat(ctx context.Context, line string, turn func(context.Context, string) error) {
	for n := 0; ctx.Err() == nil; n++ {
		begin := time.Now()
		name := fmt.Sprintf("%s-%d", line, n)
		err := turn(l.scene.Context(), name)
		l.mu.Lock()
		l.claims++
		if took := time.Since(begin); took > l.slowest {
			l.slowest, l.name = took, name
		}
		l.failed = errors.Join(l.failed, err)
		l.mu.Unlock()
		if err != nil {
			return
		}
		time.Sleep(time.Until(begin.Add(pace)))
	}
}

func (l *load) claim(ctx context.Context, name string) error {
	if err := l.scene.MakeClaim(ctx, lab.Claim(namespace, name, "load", "20Gi")); err != nil {
		return err
	}
	if _, err := l.scene.AwaitBound(ctx, namespace, name, late); err != nil {
		return err
	}
	return l.drop(ctx, name)
}

// formatted is how long a Pod may take until it runs whose disk the version before has made: the present one reads such a disk to its end
// before it formats it, which took up to four minutes beside other clusters.
const formatted = 10 * time.Minute

func (l *load) claimWithPod(ctx context.Context, name string) error {
	if err := l.scene.MakeClaim(ctx, lab.Claim(namespace, name, className, "20Gi")); err != nil {
		return err
	}
	if err := l.scene.makePod(ctx, name, name); err != nil {
		return err
	}
	if _, err := l.scene.AwaitRunning(ctx, namespace, name, formatted); err != nil {
		return err
	}
	if err := l.scene.Client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return l.drop(ctx, name)
}

// drop deletes a claim.
func (l *load) drop(ctx context.Context, name string) error {
	return l.scene.Client.CoreV1().PersistentVolumeClaims(namespace).Delete(ctx, name, metav1.DeleteOptions{})
}

// count is how many turns have ended.
func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.claims
}

// leaseLost is what a claim is told where the machine stands still for so long that the leader can't renew its Lease.
const leaseLost = "the lease is lost: it was renewed"

// cutOff is what the release before told a claim whose call its driver had cut off as both ended.
const cutOff = `debug data: "graceful_stop"`

// end lets the turns come to their end and every disk go. No claim may have failed, or been told that a try for it has.
func (l *load) end() {
	s := l.scene
	s.Helper()
	l.stop()
	l.lines.Wait()
	s.Must(l.failed)
	s.Logf("%d claims in %.1f s, the slowest %.1f s from its beginning to its end", l.claims, time.Since(l.begins).Seconds(), l.slowest.Seconds())
	if l.slowest > time.Minute {
		s.Logf("what the slowest claim and its Pod were told:\n%s", s.kubectl("get events --sort-by=.metadata.creationTimestamp --field-selector=involvedObject.name="+l.name))
	}
	s.WaitFor("no disk of the load is left", late, s.hasOnlyNotes)
	events, err := s.Client.CoreV1().Events(namespace).List(s.Context(), metav1.ListOptions{FieldSelector: "type=" + corev1.EventTypeWarning})
	s.Must(err)
	for _, e := range events.Items {
		switch {
		case e.InvolvedObject.Kind != "PersistentVolumeClaim" || e.Reason != "ProvisioningFailed":
		case strings.Contains(e.Message, leaseLost):
			s.Logf("the machine stood still: claim %s was told: %s", e.InvolvedObject.Name, e.Message)
		case strings.Contains(e.Message, cutOff) && strings.HasPrefix(e.InvolvedObject.Name, begunPrefix(earlierVersion)):
			s.Logf("%s told claim %s: %s", earlierVersion, e.InvolvedObject.Name, e.Message)
		default:
			s.Errorf("claim %s was told: %s", e.InvolvedObject.Name, e.Message)
		}
	}
}
