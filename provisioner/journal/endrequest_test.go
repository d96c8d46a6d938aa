package journal

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// recording is a journal that is committing, and what it has told of requests.
type recording struct {
	*Store
	told []string
}

// openRecording returns one that answers each request as it is told to.
func openRecording(t *testing.T, client clients, answer func(s *Store, key string)) *recording {
	t.Helper()
	h := &recording{Store: loaded(t, client)}
	h.OnEndRequest(func(key, reason string) {
		h.told = append(h.told, key+": "+reason)
		answer(h.Store, key)
	})
	h.runUntilEnd(t, func(err error) { t.Errorf("taken over: %v", err) })
	return h
}

// requestEnd asks from another process.
func requestEnd(t *testing.T, client clients, key, reason string) {
	t.Helper()
	must(t, loaded(t, client).RequestEnd(t.Context(), key, reason))
}

// annotations counts those of a ConfigMap.
func (api *fakeAPI) annotations(name string) int {
	api.mu.Lock()
	defer api.mu.Unlock()
	return len(api.kept[name].Annotations)
}

func TestARequestedEndIsHandled(t *testing.T) {
	for how, others := range map[string]int{"written whole": 1, "patched": 9} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, client := newAPI()
				s := openRecording(t, client, (*Store).Delete)
				for n := range 1 + others {
					wrote(t, s.Store, n)
				}
				requestEnd(t, client, key(0), "no proof")
				wrote(t, s.Store, 20) // a commit that the request is in the way of
				time.Sleep(shardCheckInterval + 3*deleteDelay)
				synctest.Wait()
				if !slices.Equal(s.told, []string{"key-0: no proof"}) {
					t.Errorf("told of %q", s.told)
				}
				if n := api.annotations("journal-0"); n > 0 || api.entries() != 1+others {
					t.Errorf("%d annotations and %d records are left, want none and %d", n, api.entries(), 1+others)
				}
				writes := api.writes
				time.Sleep(time.Hour)
				synctest.Wait()
				if api.writes != writes || len(s.told) != 1 {
					t.Errorf("%d writes later it was told of %q", api.writes-writes, s.told)
				}
			})
		})
	}
}

func TestARejectedEndRequestIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, client := newAPI()
		s := openRecording(t, client, (*Store).RejectEnd)
		wrote(t, s.Store, 0, 1)
		for n := range 2 {
			requestEnd(t, client, key(0), "no proof")
			time.Sleep(shardCheckInterval + 3*deleteDelay)
			synctest.Wait()
			if left := api.annotations("journal-0"); left > 0 || api.entries() != 2 || len(s.told) != n+1 {
				t.Errorf("after request %d there are %d annotations and %d records; told of %q", n, left, api.entries(), s.told)
			}
		}
	})
}

// The one who has the Lease next heeds what the one before has not answered.
func TestAnEndRequestOutlivesTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, client := newAPI()
		s := loaded(t, client)
		_, err := s.enter(key(0), string(record(0)))
		must(t, err)
		s.commit(t.Context())
		requestEnd(t, client, key(0), "no proof")
		reader := loaded(t, client)
		if name, reason := reader.Record(key(0)); name != "journal-0" || reason != "no proof" {
			t.Errorf("the record is in %q, to be ended for %q", name, reason)
		}
		next := openRecording(t, client, (*Store).Delete)
		time.Sleep(3 * deleteDelay)
		synctest.Wait()
		if len(next.told) != 1 || api.annotations("journal-0") > 0 || api.entries() > 0 {
			t.Errorf("told of %q, %d annotations and %d records are left", next.told, api.annotations("journal-0"), api.entries())
		}
	})
}

// A request is not lost to a write that replaces the ConfigMap before it is heeded.
func TestAnEndRequestOutlivesWholeWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, client := newAPI()
		s := openRecording(t, client, func(*Store, string) {})
		wrote(t, s.Store, 0)
		time.Sleep(shardCheckInterval)
		requestEnd(t, client, key(0), "no proof")
		patches := api.patches
		for n := range 3 {
			must(t, s.Put(t.Context(), key(0), record(10+n)))
		}
		if api.patches != patches {
			t.Fatal("it was not replaced")
		}
		if api.annotations("journal-0") != 1 || len(s.told) > 1 {
			t.Errorf("%d annotations, told of %q", api.annotations("journal-0"), s.told)
		}
	})
}

func TestAnEndRequestForNoRecordIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, client := newAPI()
		s := openRecording(t, client, (*Store).Delete)
		wrote(t, s.Store, 0, 1)
		reader := loaded(t, client)
		if err := reader.RequestEnd(t.Context(), key(7), "no proof"); !errors.Is(err, ErrNoRecord) {
			t.Errorf("a record that isn't there: %v", err)
		}
		s.Delete(key(1))
		must(t, reader.RequestEnd(t.Context(), key(1), "no proof"))
		time.Sleep(shardCheckInterval + 3*deleteDelay)
		synctest.Wait()
		if len(s.told) > 0 || api.annotations("journal-0") > 0 || api.entries() != 1 {
			t.Errorf("told of %q; %d annotations and %d records are left", s.told, api.annotations("journal-0"), api.entries())
		}
	})
}

// An attempt is ended for the reason that the journal has, not for one that was rejected or whose record is gone.
func TestTheReasonOfAnEndRequestIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := newAPI()
		s := openRecording(t, client, func(*Store, string) {})
		wrote(t, s.Store, 0, 1, 2)
		expect := func(what string, reasons ...string) {
			t.Helper()
			for n, want := range reasons {
				if got := s.EndRequest(key(n)); got != want {
					t.Errorf("%s: record %d is to be ended for %q, want %q", what, n, got, want)
				}
			}
		}
		expect("nobody has asked", "", "", "", "")
		requestEnd(t, client, key(0), "no proof")
		requestEnd(t, client, key(1), "no keys")
		time.Sleep(shardCheckInterval + 3*deleteDelay)
		synctest.Wait()
		expect("two are requested", "no proof", "no keys", "", "")
		s.RejectEnd(key(0))
		expect("one is rejected", "", "no keys", "", "")
		s.Delete(key(1))
		expect("the other is granted", "", "", "", "")
		time.Sleep(3 * deleteDelay)
		synctest.Wait()
		expect("both are answered", "", "", "", "")
		requestEnd(t, client, key(0), "still no proof")
		time.Sleep(shardCheckInterval + 3*deleteDelay)
		synctest.Wait()
		expect("it is requested again", "still no proof", "", "", "")
	})
}

// Who reads the journal anew knows a request before it is told of it.
func TestTheNextWriterKnowsAnEndRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := newAPI()
		s := openRecording(t, client, func(*Store, string) {})
		wrote(t, s.Store, 0)
		requestEnd(t, client, key(0), "no proof")
		if reason := loaded(t, client).EndRequest(key(0)); reason != "no proof" {
			t.Errorf("the record is to be ended for %q", reason)
		}
	})
}
