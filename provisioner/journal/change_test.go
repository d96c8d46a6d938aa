package journal

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// change has somebody else change a shard.
func (api *fakeAPI) change(shard string, change func(map[string]string)) {
	api.set(func(api *fakeAPI) {
		changed := api.kept[shard].DeepCopy()
		if changed.Data == nil {
			changed.Data = map[string]string{}
		}
		change(changed.Data)
		changed.ResourceVersion += "1"
		api.kept[shard] = changed
	})
}

// alone is the state of a Lease that this process holds, and what is told of changes.
type alone struct {
	mu      sync.Mutex
	err     error
	changes []Change
}

// fail has the Lease be asked in vain, or not any more.
func (a *alone) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

func (a *alone) failure() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

func openAlone(t *testing.T, client clients) (*Store, *alone) {
	t.Helper()
	a := &alone{}
	s := loaded(t, client)
	s.OnChange(func(context.Context) error { return a.failure() }, func(c Change) { a.changes = append(a.changes, c) })
	s.runUntilEnd(t, func(err error) {
		if !errors.Is(a.failure(), ErrTakenOver) {
			t.Errorf("taken over: %v", err)
		}
	})
	return s, a
}

func TestAChangedShardIsMended(t *testing.T) {
	for what, test := range map[string]struct {
		change  func(map[string]string)
		removed int
		altered int
		added   string
	}{
		"all records are removed": {change: func(data map[string]string) { clear(data) }, removed: 3},
		"one is removed":          {change: func(data map[string]string) { delete(data, key(1)) }, removed: 1},
		"one is altered":          {change: func(data map[string]string) { data[key(1)] = "{}" }, altered: 1},
		"an old one is restored":  {change: func(data map[string]string) { data[key(9)] = string(record(9)) }, added: key(9)},
		"all at once": {change: func(data map[string]string) {
			delete(data, key(0))
			data[key(1)], data[key(9)] = "{}", string(record(9))
		}, removed: 1, altered: 1, added: key(9)},
	} {
		for how, wake := range map[string]func(*Store){
			"nothing else happens": func(*Store) { time.Sleep(shardCheckInterval + 2*deleteDelay) },
			"a record is deleted":  func(s *Store) { s.Delete(key(2)); time.Sleep(2 * deleteDelay) },
			"the next one is put":  func(s *Store) { _ = s.Put(context.Background(), key(3), record(3)); time.Sleep(2 * deleteDelay) },
			"the leader ends":      nil,
		} {
			t.Run(what+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					api, client := newAPI()
					s, a := openAlone(t, client)
					wrote(t, s, 0, 1, 2)
					want := map[string]string{key(0): string(record(0)), key(1): string(record(1)), key(2): string(record(2))}
					api.change("journal-0", test.change)
					if wake == nil {
						s.Delete(key(2))
						s.commitAll(t.Context())
						delete(want, key(2))
					} else {
						wake(s)
					}
					synctest.Wait()
					switch how {
					case "a record is deleted":
						delete(want, key(2))
					case "the next one is put":
						want[key(3)] = string(record(3))
					}
					if test.added != "" {
						want[test.added] = string(record(9))
					}
					if got := api.kept["journal-0"].Data; !maps.Equal(got, want) {
						t.Errorf("the shard has %v, want %v", got, want)
					}
					if len(a.changes) != 1 {
						t.Fatalf("%d changes were told", len(a.changes))
					}
					change := a.changes[0]
					if change.ConfigMap != "journal-0" || change.Altered != test.altered || len(change.Appeared) != min(1, len(test.added)) ||
						change.Removed != test.removed && how != "a record is deleted" && wake != nil {
						t.Errorf("told was %+v", change)
					}
					if test.added == "" {
						return
					}
					if string(change.Appeared[test.added]) != string(record(9)) {
						t.Errorf("told was %s", change.Appeared)
					}
					s.Delete(test.added)
					must(t, s.Flush(t.Context(), test.added))
					if _, left := api.kept["journal-0"].Data[test.added]; left {
						t.Error("it can't be deleted")
					}
				})
			})
		}
	}
}

// A record that was deleted does not come back.
func TestADeletedRecordIsNotRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, client := newAPI()
		s, a := openAlone(t, client)
		wrote(t, s, 0, 1)
		s.Delete(key(0))
		api.change("journal-0", func(data map[string]string) { data[key(1)] = "{}" })
		time.Sleep(shardCheckInterval + 2*deleteDelay)
		synctest.Wait()
		if got := api.kept["journal-0"].Data; !maps.Equal(got, map[string]string{key(1): string(record(1))}) || len(a.changes) != 1 || len(a.changes[0].Appeared) > 0 {
			t.Errorf("the shard has %v, told was %v", got, a.changes)
		}
	})
}

// Nothing is mended while another process may lead.
func TestNothingIsMendedWithoutTheLease(t *testing.T) {
	for what, err := range map[string]error{"another leads": ErrTakenOver, "the API server does not tell": errors.New("timeout")} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, client := newAPI()
				s, a := openAlone(t, client)
				wrote(t, s, 0, 1)
				a.fail(err)
				api.change("journal-0", func(data map[string]string) { clear(data) })
				if err := s.Put(t.Context(), key(2), record(2)); err == nil {
					t.Error("it was written over")
				}
				time.Sleep(shardCheckInterval)
				synctest.Wait()
				if got := api.kept["journal-0"].Data; len(got) > 0 || len(a.changes) > 0 {
					t.Errorf("the shard has %v, told was %v", got, a.changes)
				}
				if errors.Is(err, ErrTakenOver) {
					return
				}
				a.fail(nil)
				time.Sleep(shardCheckInterval)
				synctest.Wait()
				if got := api.kept["journal-0"].Data; len(got) != 3 && len(got) != 2 || len(a.changes) != 1 {
					t.Errorf("the shard has %v, told was %v", got, a.changes)
				}
			})
		})
	}
}

// Metadata that others write is no change.
func TestMetadataIsNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, client := newAPI()
		reads := 0
		client.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { reads++; return false, nil, nil })
		s, a := openAlone(t, client)
		wrote(t, s, 0)
		before := reads
		api.change("journal-0", func(map[string]string) {})
		time.Sleep(3 * shardCheckInterval)
		synctest.Wait()
		if len(a.changes) > 0 || reads != before+1 {
			t.Errorf("told was %v, after %d reads", a.changes, reads-before)
		}
	})
}
