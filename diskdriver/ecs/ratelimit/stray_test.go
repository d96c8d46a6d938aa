package ratelimit

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// stray is an ECS that refuses the n-th call, or none if that is 0, and no other.
type stray struct {
	refuse int
	with   error

	mu    sync.Mutex
	calls int
}

func (s *stray) call() error {
	s.mu.Lock()
	s.calls++
	refused := s.calls == s.refuse
	s.mu.Unlock()
	time.Sleep(500 * time.Millisecond)
	if refused {
		return s.with
	}
	return nil
}

// mostOfAStray is the most that one refusal costs 5 000 operations that wait.
const mostOfAStray = 3 * time.Second

// TestAStrayRefusalCostsSeconds: one refusal among 5 000 operations that wait, at any place in a minute and in the crowd, when windows are
// known and when not.
func TestAStrayRefusalCostsSeconds(t *testing.T) {
	const operations = 5000
	throttled := disk.Errorf(disk.Throttled, "throttled")
	for _, known := range []bool{false, true} {
		for offset := time.Duration(0); offset < time.Minute; offset += 7 * time.Second {
			for _, refuse := range []int{1, 50, 2000} {
				t.Run(fmt.Sprintf("windows known %t, %v after the minute, call %d", known, offset, refuse), func(t *testing.T) {
					var took [2]time.Duration
					for i, n := range []int{0, refuse} {
						synctest.Test(t, func(t *testing.T) {
							l := testLimiter()
							if known {
								learn(t, l)
							}
							time.Sleep(time.Until(time.Now().Truncate(window).Add(time.Minute + offset)))
							s := &stray{refuse: n, with: throttled}
							began := time.Now()
							var all sync.WaitGroup
							for range operations {
								all.Go(func() {
									if err := do(t.Context(), l, s.call); err != nil {
										t.Error(err)
									}
								})
							}
							all.Wait()
							took[i] = time.Since(began)
						})
					}
					if cost := took[1] - took[0]; cost > mostOfAStray {
						t.Errorf("one refusal costs %v: %v instead of %v", cost, took[1], took[0])
					}
				})
			}
		}
	}
}

// learn has a limiter use windows of 600 calls up, and then rest until it has forgotten its share.
func learn(t *testing.T, l *Limiter) {
	t.Helper()
	crowd(t, newAccount(600, 0), l, 1500)
	time.Sleep(5 * time.Minute)
}

// narrowECS is an ECS that takes so many calls at once.
type narrowECS struct {
	most int

	mu            sync.Mutex
	now, refusals int
}

func (e *narrowECS) call() error {
	e.mu.Lock()
	refused := e.now >= e.most
	if refused {
		e.refusals++
	} else {
		e.now++
	}
	e.mu.Unlock()
	time.Sleep(500 * time.Millisecond)
	if refused {
		return &disk.Error{Kind: disk.Throttled, Err: ErrTooManyAtOnce}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now--
	return nil
}

// TestTooManyAtOnceIsNoWindow: an ECS that takes some calls at once, and any number of them in a minute, is used to at least a third.
func TestTooManyAtOnceIsNoWindow(t *testing.T) {
	for _, most := range []int{1, 5, 20, 80} {
		t.Run(fmt.Sprintf("%d at once", most), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const operations = 2000
				e, l := &narrowECS{most: most}, testLimiter()
				began := time.Now()
				var all sync.WaitGroup
				for range operations {
					all.Go(func() {
						if err := do(t.Context(), l, e.call); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				best := time.Duration(operations/min(most, startConcurrency)) * 500 * time.Millisecond
				took := time.Since(began)
				t.Logf("%v, %v at best, %d refused", took, best, e.refusals)
				if took > 3*best || e.refusals > operations/4 {
					t.Errorf("it took %v, at best %v, and %d calls were refused", took, best, e.refusals)
				}
			})
		})
	}
}
