package ratelimit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// A third of the calls is refused for a while, again and again, whatever their number: no window is used up. As soon as none is refused
// any more the client must send as many calls as before.
func TestRefusalsByChanceAreSoonForgotten(t *testing.T) {
	const (
		period, refusing = 8 * time.Minute, 48 * time.Second
		recovery, most   = 2 * time.Minute, 2 * time.Minute
		periods          = 5
	)
	for _, every := range []time.Duration{10 * time.Second, 2 * time.Second} {
		for seed := range uint64(100) {
			t.Run(fmt.Sprintf("a call in %v, seed %d", every, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(time.Duration(seed) * 7 * time.Second) // begin somewhere in a minute
					l, began := testLimiter(), time.Now()
					var mu sync.Mutex
					random := rand.New(rand.NewPCG(seed, 0))
					call := func() error {
						mu.Lock()
						refuse := time.Since(began)%period > period-refusing && random.IntN(3) == 0
						mu.Unlock()
						time.Sleep(50 * time.Millisecond)
						if refuse {
							return disk.Errorf(disk.Throttled, "throttled")
						}
						return nil
					}
					var all sync.WaitGroup
					defer all.Wait()
					for time.Since(began) < periods*period {
						since := time.Since(began)
						all.Go(func() {
							_ = do(context.Background(), l, call)
							took := time.Since(began) - since
							if after := since % period; since > period && after > recovery && after < period-refusing-most && took > most {
								t.Errorf("a call of %v after the last refusal took %v", after, took)
							}
						})
						time.Sleep(every)
					}
				})
			})
		}
	}
}
