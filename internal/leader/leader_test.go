package leader

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
)

func testLease() *Lease {
	l := &Lease{Namespace: "kube-system", Name: "diskplugin-csi-alibabacloud-com", LeaseDuration: time.Second, RenewDeadline: 500 * time.Millisecond, RetryPeriod: 100 * time.Millisecond}
	l.WatchHealth()
	return l
}

// leaseServer is a fake API server that refuses an update of an old version,
// which client-go's fake does not do by itself, and everything once it is away.
func leaseServer(t *testing.T) (api *fake.Clientset, away *atomic.Bool) {
	api, away = fake.NewClientset(), &atomic.Bool{}
	var mu sync.Mutex
	var kept *coordinationv1.Lease
	watchers := watch.NewBroadcaster(10, watch.WaitIfChannelFull)
	t.Cleanup(watchers.Shutdown)
	api.PrependWatchReactor("leases", func(clienttesting.Action) (bool, watch.Interface, error) {
		events, err := watchers.Watch()
		return true, events, err
	})
	api.PrependReactor("*", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if away.Load() {
			return true, nil, errors.New("the API server is away")
		}
		mu.Lock()
		defer mu.Unlock()
		group := coordinationv1.Resource("leases")
		if action.GetVerb() == "get" {
			if kept == nil {
				return true, nil, apierrors.NewNotFound(group, "lease")
			}
			return true, kept.DeepCopy(), nil
		}
		lease := action.(clienttesting.CreateAction).GetObject().(*coordinationv1.Lease) // an update's object is got the same way
		switch {
		case action.GetVerb() == "create" && kept != nil:
			return true, nil, apierrors.NewAlreadyExists(group, lease.Name)
		case action.GetVerb() == "update" && lease.ResourceVersion != kept.ResourceVersion:
			return true, nil, apierrors.NewConflict(group, lease.Name, errors.New("it has changed"))
		}
		version, _ := strconv.Atoi(lease.ResourceVersion)
		lease.ResourceVersion = strconv.Itoa(version + 1)
		kept = lease.DeepCopy()
		_ = watchers.Action(watch.Modified, kept.DeepCopy())
		return true, lease, nil
	})
	return api, away
}

func TestOneOfTwoLeadsAndTheOtherTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, _ := leaseServer(t)
		leading := make(chan int, 2)
		work := func(i int) func(context.Context) error {
			return func(ctx context.Context) error { leading <- i; <-ctx.Done(); return nil }
		}
		var cancels [2]context.CancelFunc
		ended := make(chan error, 2)
		for i := range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			cancels[i] = cancel
			go func() { ended <- testLease().RunWhileHeld(ctx, api, work(i)) }()
		}
		first := <-leading
		select {
		case <-leading:
			t.Fatal("both lead")
		case <-time.After(1500 * time.Millisecond):
		}
		cancels[first]()
		if err := <-ended; err != nil {
			t.Errorf("the first: %v", err)
		}
		if second := <-leading; second == first {
			t.Error("the same leads twice")
		}
		cancels[1-first]()
		if err := <-ended; err != nil {
			t.Errorf("the second: %v", err)
		}
		if lease, err := api.CoordinationV1().Leases("kube-system").Get(t.Context(), "", metav1.GetOptions{}); err != nil || lease.Name != "diskplugin-csi-alibabacloud-com" {
			t.Errorf("the Lease has not upstream's name: %v, %v", lease, err)
		}
	})
}

func TestAStandbyEndsWithoutHavingLed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, _ := leaseServer(t)
		ctx, cancel := context.WithCancel(t.Context())
		leads := make(chan struct{})
		go func() {
			_ = testLease().RunWhileHeld(ctx, api, func(ctx context.Context) error { close(leads); <-ctx.Done(); return nil })
		}()
		<-leads
		standby, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- testLease().RunWhileHeld(standby, api, func(context.Context) error { t.Error("it led"); return nil })
		}()
		time.Sleep(300 * time.Millisecond)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		cancel()
	})
}

func TestALostLeaseIsAnErrorAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, away := leaseServer(t)
		stuck := make(chan struct{})
		defer close(stuck)
		err := testLease().RunWhileHeld(t.Context(), api, func(context.Context) error {
			away.Store(true)
			<-stuck
			return nil
		})
		if !errors.Is(err, ErrLost) {
			t.Errorf("got %v", err)
		}
	})
}

// A role that was changed refuses the update for as long as the leader tries; the error that ends the program says so.
func TestALostLeaseSaysWhyItWasNotRenewed(t *testing.T) {
	forbidden := apierrors.NewForbidden(coordinationv1.Resource("leases"), "diskplugin-csi-alibabacloud-com", errors.New("its role has no update"))
	for name, verb := range map[string]string{"update": "update", "everything": "*"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, _ := leaseServer(t)
				var changed atomic.Bool
				api.PrependReactor(verb, "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return changed.Load(), nil, forbidden })
				lease, stuck := testLease(), make(chan struct{})
				defer close(stuck)
				err := lease.RunWhileHeld(t.Context(), api, func(context.Context) error {
					changed.Store(true)
					<-stuck
					return nil
				})
				if !errors.Is(err, ErrLost) || !errors.Is(err, forbidden) || !strings.Contains(err.Error(), "its role has no update") {
					t.Errorf("got %v", err)
				}
				if err := lease.Held(); !errors.Is(err, forbidden) {
					t.Errorf("what is begun is refused with %v", err)
				}
			})
		})
	}
}

func TestALeaseThatAnotherHasTakenIsNotGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, _ := leaseServer(t)
		leases := api.CoordinationV1().Leases("kube-system")
		holder := func() *coordinationv1.Lease {
			lease, err := leases.Get(t.Context(), "", metav1.GetOptions{})
			must(t, err)
			return lease
		}
		must(t, testLease().RunWhileHeld(t.Context(), api, func(context.Context) error {
			synctest.Wait() // it renews the Lease at once
			lease := holder()
			lease.Spec.HolderIdentity = ptr.To("another")
			_, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{})
			return err
		}))
		if is := *holder().Spec.HolderIdentity; is != "another" {
			t.Errorf("the Lease is held by %q", is)
		}
	})
}

func TestAReleasedLeaseIsTakenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, _ := leaseServer(t)
		patient := func() *Lease { // it would ask again after an hour
			return &Lease{
				Namespace: "kube-system", Name: "diskplugin-csi-alibabacloud-com", Labels: map[string]string{"team": "storage"},
				LeaseDuration: 4 * time.Hour, RenewDeadline: 3 * time.Hour, RetryPeriod: time.Hour,
			}
		}
		first, stop := context.WithCancel(t.Context())
		leads := make(chan struct{})
		ended := make(chan error, 2)
		go func() {
			ended <- patient().RunWhileHeld(first, api, func(ctx context.Context) error { close(leads); <-ctx.Done(); return nil })
		}()
		<-leads
		tookOver := make(chan struct{})
		second, stopSecond := context.WithCancel(t.Context())
		go func() {
			ended <- patient().RunWhileHeld(second, api, func(context.Context) error { close(tookOver); return nil })
		}()
		synctest.Wait() // the second watches the Lease
		lease, err := api.CoordinationV1().Leases("kube-system").Get(t.Context(), "", metav1.GetOptions{})
		if err != nil || lease.Labels["team"] != "storage" {
			t.Errorf("the Lease has labels %v, %v", lease.Labels, err)
		}
		stopped := time.Now()
		stop()
		<-tookOver
		if after := time.Since(stopped); after > time.Second {
			t.Errorf("taken %s after it was released", after)
		}
		stopSecond()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestNothingIsWrittenAfterTheLeaseHasExpired(t *testing.T) {
	l := testLease()
	var sent []string
	client := FenceHTTP(l.Held, tripper(func(r *http.Request) { sent = append(sent, r.Method) }))
	for name, test := range map[string]struct {
		renewed time.Duration // ago
		held    bool
		sent    int
	}{
		"never held":           {sent: 1},
		"renewed just now":     {held: true, sent: 4},
		"renewed too long ago": {held: true, renewed: l.RenewDeadline + time.Second, sent: 1},
	} {
		t.Run(name, func(t *testing.T) {
			sent = nil
			l.renewed.Store(nil)
			if at := time.Now().Add(-test.renewed); test.held {
				l.renewed.Store(&at)
			}
			for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete} {
				r, err := http.NewRequestWithContext(t.Context(), method, "http://api", nil)
				must(t, err)
				response, err := client.RoundTrip(r)
				if err == nil {
					_ = response.Body.Close()
				} else if !errors.Is(err, ErrLost) {
					t.Errorf("%s: %v", method, err)
				}
			}
			if len(sent) != test.sent || sent[0] != http.MethodGet {
				t.Errorf("sent %v, want %d", sent, test.sent)
			}
		})
	}
}

type tripper func(*http.Request)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) {
	f(r)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestALeaseThatNobodyRenewsIsTakenAsSoonAsItExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, _ := leaseServer(t)
		leases := api.CoordinationV1().Leases("kube-system")
		patient := &Lease{Namespace: "kube-system", Name: "diskplugin-csi-alibabacloud-com", LeaseDuration: 4 * time.Hour, RenewDeadline: 3 * time.Hour, RetryPeriod: time.Hour}
		renewed := metav1.NowMicro()
		lease, err := leases.Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: patient.Name},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("the first"), LeaseDurationSeconds: ptr.To(int32(1)), RenewTime: &renewed},
		}, metav1.CreateOptions{})
		must(t, err)
		ctx, stop := context.WithCancel(t.Context())
		leads, ended := make(chan time.Time, 1), make(chan error, 1)
		go func() {
			ended <- patient.RunWhileHeld(ctx, api, func(ctx context.Context) error { leads <- time.Now(); <-ctx.Done(); return nil })
		}()
		synctest.Wait() // the Lease is watched, and was asked for
		last := metav1.NowMicro()
		lease = lease.DeepCopy()
		lease.Spec.RenewTime = &last // for the last time
		_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		must(t, err)
		if after := (<-leads).Sub(last.Time); after < time.Second || after > 2*time.Second {
			t.Errorf("taken %s after it was renewed for a second", after)
		}
		stop()
		must(t, <-ended)
	})
}

func TestALeaseThatWasRenewedUnseenIsHeld(t *testing.T) {
	api, _ := leaseServer(t)
	l := testLease()
	seen, live := metav1.NewMicroTime(time.Unix(1000, 1000)), metav1.NewMicroTime(time.Unix(1000, 2000))
	spec := func(holder string, renewed metav1.MicroTime) *coordinationv1.LeaseSpec {
		return &coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: ptr.To(int32(1)), RenewTime: &renewed}
	}
	_, err := api.CoordinationV1().Leases("kube-system").Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: l.Name}, Spec: *spec("a", live)}, metav1.CreateOptions{})
	must(t, err)
	inner, err := resourcelock.New(resourcelock.LeasesResourceLock, "kube-system", l.Name, api.CoreV1(), api.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: "b"})
	must(t, err)
	for name, test := range map[string]struct {
		expired *coordinationv1.LeaseSpec
		holder  string
	}{
		"nothing has expired":         {holder: "a"},
		"it has expired":              {expired: spec("a", live)},
		"it was renewed since":        {expired: spec("a", seen), holder: "a"},
		"another one has taken it":    {expired: spec("c", live), holder: "a"},
		"it was said to have no time": {expired: &coordinationv1.LeaseSpec{HolderIdentity: ptr.To("a")}, holder: "a"},
	} {
		l.expired.Store(test.expired)
		record, _, err := (&timedLock{Interface: inner, lease: l}).Get(t.Context())
		if err != nil || record.HolderIdentity != test.holder {
			t.Errorf("%s: held by %q, %v", name, record.HolderIdentity, err)
		}
	}
}

// A renewal is proof only if it was sent after the call.
func TestARenewalIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, away := leaseServer(t)
		lease := testLease()
		if err := lease.AwaitRenewal(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("before it is held: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		leading := make(chan struct{})
		go func() {
			ended <- lease.RunWhileHeld(ctx, api, func(ctx context.Context) error { close(leading); <-ctx.Done(); return nil })
		}()
		<-leading
		called := time.Now()
		if err := lease.AwaitRenewal(t.Context()); err != nil || !lease.renewed.Load().After(called) {
			t.Errorf("%v; it was called at %s, and the last renewal was sent at %s", err, called, lease.renewed.Load())
		}
		away.Store(true)
		if err := lease.AwaitRenewal(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("without the API server: %v", err)
		}
		cancel()
		<-ended
	})
}
