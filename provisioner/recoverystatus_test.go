package provisioner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/topodisk/topodisk/internal/sleep"
	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/journal"
)

// newLeader returns the Controller of a process that has just become the leader.
func newLeader(t *testing.T, changes ...func(*Config)) *bench {
	t.Helper()
	lease := &v1.ObjectReference{Kind: "Lease", Namespace: "kube-system", Name: "lease"}
	b := newBench(t, nil, append(changes, func(c *Config) { c.Self = lease })...)
	b.recovery.lead()
	return b
}

func TestAnUnreadableJournalIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLeader(t)
		api := fake.NewClientset()
		forbidden := apierrors.NewForbidden(v1.Resource("configmaps"), "journal-0", errors.New("no rule"))
		api.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, forbidden })
		b.journal = journal.New(api, nil, "kube-system", "journal", func() {})
		begin := time.Now()
		time.AfterFunc(time.Second/2, func() {
			for what, check := range map[string]func() error{"healthy": b.Healthy, "ready": b.Recovered} {
				if err := check(); !strings.Contains(fmt.Sprint(err), "the journal can't be read") || !strings.Contains(fmt.Sprint(err), "no rule") {
					t.Errorf("it is not %s: %v", what, err)
				}
			}
		})
		err := b.recoverRequests(t.Context())
		if took := time.Since(begin); !errors.Is(err, ErrCannotRecover) || took < recoveryLimit || took > recoveryLimit+2*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
		if events := provisionertest.Events(b.events); len(events) == 0 || !strings.Contains(events[0], reasonRecovery) || !strings.Contains(events[0], "no rule") {
			t.Errorf("events %q", events)
		}
		if n := testutil.ToFloat64(b.metrics.recoveryFailures.WithLabelValues(stepJournal)); n < 10 {
			t.Errorf("%v failures are counted", n)
		}
	})
}

func TestAJournalReadableAgainIsRecovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLeader(t)
		api := fake.NewClientset()
		mended := time.Now().Add(recoveryLimit - 5*time.Second)
		api.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return time.Now().Before(mended), nil, errors.New("etcd is slow")
		})
		b.journal = journal.New(api, nil, "kube-system", "journal", func() {})
		must(t, b.recoverRequests(t.Context()))
		must(t, errors.Join(b.Healthy(), b.Recovered()))
	})
}

// versionOf is the metadata of one of several claims.
func versionOf(n int) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("data-", n), ResourceVersion: "7"}}
}

func versionsOf(n int) *metav1.List {
	list := &metav1.List{}
	for i := range n {
		list.Items = append(list.Items, runtime.RawExtension{Object: versionOf(i)})
	}
	return list
}

func TestStaleCachesFailOnlyWithoutProgress(t *testing.T) {
	for what, test := range map[string]struct {
		every time.Duration // after which the cache has one object more
		most  int           // at which it stops
		gives bool
	}{
		"they catch up slowly":     {every: recoveryLimit / 2, most: 5},
		"they stop on their way":   {every: recoveryLimit / 2, most: 3, gives: true},
		"they show nothing at all": {gives: true},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newLeader(t)
				store := b.caches.Claims.GetStore()
				b.metadata.PrependReactor("list", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, versionsOf(5), nil
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					for n := range test.most {
						if sleep.For(ctx, test.every) != nil {
							return
						}
						_ = store.Add(versionOf(n))
					}
				}()
				if err := b.catchUp(ctx); errors.Is(err, ErrCannotRecover) != test.gives || err != nil != test.gives {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// A stand-by holds no Lease that it could give up, and a restart would not help it.
func TestAStandByWithoutCachesIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLeader(t)
		b.recovery = recoveryStatus{}
		full, done := make(chan struct{}), make(chan struct{})
		go func() { b.reportUntil(full); close(done) }()
		time.Sleep(2 * recoveryLimit)
		synctest.Wait()
		if err := b.Recovered(); !strings.Contains(fmt.Sprint(err), "the caches are not full") {
			t.Errorf("got %v", err)
		}
		must(t, b.Healthy())
		close(full)
		<-done
		if events := provisionertest.Events(b.events); len(events) == 0 {
			t.Error("no event tells of it")
		}
	})
}
