package claim

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
)

func TestNamespacesTakeTurns(t *testing.T) {
	for name, test := range map[string]struct{ added, want string }{
		"one after the other":          {"aaabbbccc", "abcabcabc"},
		"in the order of their coming": {"cba", "cba"},
		"one has more than the others": {"aaaaabcc", "abcacaaa"},
		"one alone":                    {"aaa", "aaa"},
		"one comes back":               {"abab", "abab"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turns, release := newTurns(1), make(chan struct{})
				turns.all, turns.most = 1, 1
				turns.add("first", func() { <-release })
				var got strings.Builder
				for _, namespace := range strings.Split(test.added, "") {
					turns.add(namespace, func() { got.WriteString(namespace) })
				}
				if synctest.Wait(); got.Len() > 0 {
					t.Errorf("%s is begun too early", got.String())
				}
				close(release)
				if turns.wait(); got.String() != test.want {
					t.Errorf("got %s, want %s", got.String(), test.want)
				}
			})
		})
	}
}

// crowd counts what is under way at the same time.
type crowd struct{ now, most, all atomic.Int32 }

func (c *crowd) enter() (leave func()) {
	now := c.now.Add(1)
	for most := c.most.Load(); now > most && !c.most.CompareAndSwap(most, now); most = c.most.Load() {
	}
	return func() { c.now.Add(-1); c.all.Add(1) }
}

func TestANamespaceHasABoundedShare(t *testing.T) {
	for name, test := range map[string]struct {
		namespaces []string // that have work
		under      []int    // way, of each
	}{
		"one":   {[]string{"a"}, []int{3}},
		"two":   {[]string{"a", "b"}, []int{3, 3}},
		"three": {[]string{"a", "b", "c"}, []int{3, 3, 1}}, // the third has come last, and need not wait for the others
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const works = 10
				turns, release := newTurns(3), make(chan struct{})
				var all crowd
				each := make([]crowd, len(test.namespaces))
				for i, namespace := range test.namespaces {
					for range works {
						turns.add(namespace, func() {
							defer all.enter()()
							defer each[i].enter()()
							<-release
						})
					}
				}
				synctest.Wait()
				for i, want := range test.under {
					if now := int(each[i].now.Load()); now != want {
						t.Errorf("namespace %s has %d under way, want %d", test.namespaces[i], now, want)
					}
				}
				for range works * len(test.namespaces) {
					release <- struct{}{}
					synctest.Wait()
				}
				turns.wait()
				for i := range each {
					if each[i].most.Load() != 3 || each[i].all.Load() != works {
						t.Errorf("namespace %s had %d under way, and %d in the end", test.namespaces[i], each[i].most.Load(), each[i].all.Load())
					}
				}
				if most, want := int(all.most.Load()), min(6, 3*len(each))+max(0, len(each)-2); most != want { // the third has one beyond the bound
					t.Errorf("all together had %d under way", most)
				}
			})
		})
	}
}

// However many namespaces there are, there is a bound of all together.
func TestManyNamespacesHaveABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, release := newTurns(3), make(chan struct{})
		var all crowd
		for n := range 100 {
			turns.add(fmt.Sprint(n), func() { defer all.enter()(); <-release })
		}
		synctest.Wait()
		if now := int(all.now.Load()); now != 8*3 {
			t.Errorf("%d are under way", now)
		}
		close(release)
		if turns.wait(); all.all.Load() != 100 {
			t.Errorf("%d are done", all.all.Load())
		}
	})
}

// Whoever adds work from however many goroutines, all of it is done once, within the bounds, and nothing is kept of a namespace afterwards.
func TestAllWorkIsDoneWithinTheBounds(t *testing.T) {
	const namespaces, adders, works = 7, 4, 200
	turns := newTurns(2)
	var all crowd
	var each [namespaces]crowd
	var adding sync.WaitGroup
	for range adders {
		adding.Go(func() {
			for n := range works {
				of := n * n % namespaces // some have more than others
				turns.add(fmt.Sprint(of), func() {
					defer all.enter()()
					defer each[of].enter()()
					time.Sleep(time.Duration(n%3) * 50 * time.Microsecond)
				})
			}
		})
	}
	adding.Wait()
	turns.wait()
	if done, most := all.all.Load(), all.most.Load(); done != adders*works || most > 4+namespaces {
		t.Errorf("%d are done, and %d were under way", done, most)
	}
	for of := range each {
		if most := each[of].most.Load(); most > 2 {
			t.Errorf("namespace %d had %d under way", of, most)
		}
	}
	if turns.total != 0 || len(turns.running)+len(turns.waiting)+len(turns.ring) > 0 {
		t.Errorf("%d are under way; left are %v, %v and %v", turns.total, turns.running, turns.waiting, turns.ring)
	}
}

func TestWaitReturnsWhenAllHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(1)
		var ended atomic.Int32
		for _, namespace := range []string{"a", "a", "a", "a", "a", "b", "b"} {
			turns.add(namespace, func() { time.Sleep(time.Second); ended.Add(1) })
		}
		began := time.Now()
		turns.wait()
		if n, took := ended.Load(), time.Since(began); n != 7 || took != 5*time.Second {
			t.Errorf("%d have ended, after %v", n, took)
		}
		turns.wait() // nothing is left
	})
}

// deafDriver does not answer for claims of one namespace.
type deafDriver struct {
	*provisionertest.ScriptedDriver
	namespace string
	calls     crowd
}

func (d *deafDriver) CreateVolume(ctx context.Context, in *csi.CreateVolumeRequest, options ...grpc.CallOption) (*csi.CreateVolumeResponse, error) {
	if strings.HasSuffix(in.Name, "-"+d.namespace) {
		defer d.calls.enter()()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &csi.CreateVolumeResponse{Volume: made("d-"+in.Name, 20*gib, "zone-a").Volume}, nil
}

// A namespace whose claims all wait for the driver keeps those of another one waiting no moment.
func TestASmallNamespaceIsServedBesideALargeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, few = 3000, 10
		b := newBench(t, nil)
		driver := &deafDriver{ScriptedDriver: b.driver, namespace: "crowd"}
		b.Driver, b.Events, b.Now = driver, &record.FakeRecorder{}, time.Now
		class := testClass(nil)
		class.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
		must(t, b.Classes.Add(class))
		begin := func(namespace string, claims int) {
			for n := range claims {
				claim := claimIn(namespace, n)
				must(t, b.Claims.Add(claim))
				b.Start(claim)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { b.Run(ctx) })
		begin("crowd", many)
		time.Sleep(time.Second)
		began := time.Now()
		begin("shop", few)
		synctest.Wait()
		for n := range few {
			if state := b.state(claimIn("shop", n).UID); state != "saved" {
				t.Errorf("claim %d is %s", n, state)
			}
		}
		if now := int(driver.calls.now.Load()); now != b.Workers+b.Workers/4 {
			t.Errorf("the driver has %d calls of the large namespace", now)
		}
		time.Sleep(time.Minute)
		if most := int(driver.calls.most.Load()); most != b.Workers+b.Workers/4 || driver.calls.all.Load() == 0 {
			t.Errorf("the driver had %d calls of the large namespace at a time, and %d in all", most, driver.calls.all.Load())
		}
		cancel()
		run.Wait()
		if left := driver.calls.now.Load(); left != 0 || time.Since(began) > time.Minute+b.Timeout {
			t.Errorf("after %v, %d calls are under way", time.Since(began), left)
		}
	})
}
