package turns

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
				turns, release := New(1), make(chan struct{})
				turns.all, turns.most = 1, 1
				turns.Add("first", func() { <-release })
				var got strings.Builder
				for _, namespace := range strings.Split(test.added, "") {
					turns.Add(namespace, func() { got.WriteString(namespace) })
				}
				if synctest.Wait(); got.Len() > 0 {
					t.Errorf("%s is begun too early", got.String())
				}
				close(release)
				if turns.Wait(); got.String() != test.want {
					t.Errorf("got %s, want %s", got.String(), test.want)
				}
			})
		})
	}
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
				turns, release := New(3), make(chan struct{})
				var all provisionertest.Crowd
				each := make([]provisionertest.Crowd, len(test.namespaces))
				for i, namespace := range test.namespaces {
					for range works {
						turns.Add(namespace, func() {
							defer all.Enter()()
							defer each[i].Enter()()
							<-release
						})
					}
				}
				synctest.Wait()
				for i, want := range test.under {
					if now := int(each[i].Now.Load()); now != want {
						t.Errorf("namespace %s has %d under way, want %d", test.namespaces[i], now, want)
					}
				}
				for range works * len(test.namespaces) {
					release <- struct{}{}
					synctest.Wait()
				}
				turns.Wait()
				for i := range each {
					if each[i].Most.Load() != 3 || each[i].All.Load() != works {
						t.Errorf("namespace %s had %d under way, and %d in the end", test.namespaces[i], each[i].Most.Load(), each[i].All.Load())
					}
				}
				if most, want := int(all.Most.Load()), min(6, 3*len(each))+max(0, len(each)-2); most != want { // the third has one beyond the bound
					t.Errorf("all together had %d under way", most)
				}
			})
		})
	}
}

// However many namespaces there are, there is a bound of all together.
func TestManyNamespacesHaveABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, release := New(3), make(chan struct{})
		var all provisionertest.Crowd
		for n := range 100 {
			turns.Add(fmt.Sprint(n), func() { defer all.Enter()(); <-release })
		}
		synctest.Wait()
		if now := int(all.Now.Load()); now != 8*3 {
			t.Errorf("%d are under way", now)
		}
		close(release)
		if turns.Wait(); all.All.Load() != 100 {
			t.Errorf("%d are done", all.All.Load())
		}
	})
}

// Whoever adds work from however many goroutines, all of it is done once, within the bounds, and nothing is kept of a namespace afterwards.
func TestAllWorkIsDoneWithinTheBounds(t *testing.T) {
	const namespaces, adders, works = 7, 4, 200
	turns := New(2)
	var all provisionertest.Crowd
	var each [namespaces]provisionertest.Crowd
	var adding sync.WaitGroup
	for range adders {
		adding.Go(func() {
			for n := range works {
				of := n * n % namespaces // some have more than others
				turns.Add(fmt.Sprint(of), func() {
					defer all.Enter()()
					defer each[of].Enter()()
					time.Sleep(time.Duration(n%3) * 50 * time.Microsecond)
				})
			}
		})
	}
	adding.Wait()
	turns.Wait()
	if done, most := all.All.Load(), all.Most.Load(); done != adders*works || most > 4+namespaces {
		t.Errorf("%d are done, and %d were under way", done, most)
	}
	for of := range each {
		if most := each[of].Most.Load(); most > 2 {
			t.Errorf("namespace %d had %d under way", of, most)
		}
	}
	if turns.total != 0 || len(turns.running)+len(turns.waiting)+len(turns.ring) > 0 {
		t.Errorf("%d are under way; left are %v, %v and %v", turns.total, turns.running, turns.waiting, turns.ring)
	}
}

func TestWaitReturnsWhenAllHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := New(1)
		var ended atomic.Int32
		for _, namespace := range []string{"a", "a", "a", "a", "a", "b", "b"} {
			turns.Add(namespace, func() { time.Sleep(time.Second); ended.Add(1) })
		}
		began := time.Now()
		turns.Wait()
		if n, took := ended.Load(), time.Since(began); n != 7 || took != 5*time.Second {
			t.Errorf("%d have ended, after %v", n, took)
		}
		turns.Wait() // nothing is left
	})
}
