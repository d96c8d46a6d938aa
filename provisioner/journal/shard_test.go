package journal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
)

var errImmutable = apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), "journal-0", nil)

// fillBefore has records go to that shard, as if those before it were full.
func (s *Store) fillBefore(n int) (undo func()) { return s.fill(n, shardBytes) }

// fill has the first shards so many bytes larger than they are.
func (s *Store) fill(shards, bytes int) (undo func()) {
	grow := func(bytes int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, sh := range s.shards[:shards] {
			sh.bytes += bytes
		}
	}
	grow(bytes)
	return func() { grow(-bytes) }
}

// putOrDelete puts a record, and deletes it if that fails.
func (s *Store) putOrDelete(t *testing.T, n int) error {
	t.Helper()
	err := s.Put(t.Context(), key(n), record(n))
	if err != nil {
		s.Delete(key(n))
	}
	return err
}

func TestAFailingShardFailsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, client := newAPI()
		s := open(t, client)
		wrote(t, s, 0)
		undo := s.fillBefore(1)
		wrote(t, s, 1)
		undo()
		api.set(func(api *fakeAPI) { api.broken = map[string]error{"journal-0": errImmutable} })
		s.Delete("key-0") // shard 0 is written with every commit from now on
		undo = s.fillBefore(1)
		for n := 2; n < 12; n++ {
			if err := s.Put(t.Context(), key(n), record(n)); err != nil {
				t.Errorf("record %d of shard 1: %v", n, err)
			}
		}
		undo()
		if err := s.Flush(t.Context(), "key-0"); !apierrors.IsInvalid(err) {
			t.Errorf("a record that can't be deleted from its shard: %v", err)
		}
	})
}

func TestNewRecordsAvoidAFailingShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, client := newAPI()
		s := open(t, client)
		wrote(t, s, 0)
		api.set(func(api *fakeAPI) { api.broken = map[string]error{"journal-0": errImmutable} })
		if err := s.putOrDelete(t, 1); !apierrors.IsInvalid(err) {
			t.Fatalf("the record that finds out: %v", err)
		}
		if err := s.putOrDelete(t, 2); err != nil {
			t.Errorf("the next record: %v", err)
		}
		time.Sleep(2 * deleteDelay)
		synctest.Wait()
		if err := s.putOrDelete(t, 1); err != nil {
			t.Errorf("the first record, later: %v", err)
		}
		if s.find("key-1") != s.shards[1] || s.find("key-2") != s.shards[1] {
			t.Error("they are not on the next shard")
		}
		api.set(func(api *fakeAPI) { api.broken = nil })
		time.Sleep(avoidTime)
		synctest.Wait()
		wrote(t, s, 3)
		if s.find("key-3") != s.shards[0] {
			t.Error("the shard is written again, and avoided still")
		}
	})
}

func TestADeletedShardIsWrittenAgain(t *testing.T) {
	for what, deleted := range map[string]func(*fakeAPI){
		"deleted": func(api *fakeAPI) { delete(api.kept, "journal-0") },
		"deleted, and the next write fails": func(api *fakeAPI) {
			delete(api.kept, "journal-0")
			api.before = apierrors.NewInternalError(errors.New("etcd is slow"))
		},
		"deleted, and the next reply is lost": func(api *fakeAPI) {
			delete(api.kept, "journal-0")
			api.after = errors.New("connection reset")
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, client := newAPI()
				s := open(t, client)
				wrote(t, s, 1, 2)
				api.set(deleted)
				_ = s.Put(t.Context(), key(3), record(3)) // the second and third case fail once
				wrote(t, s, 3)
				for _, claim := range []string{"key-1", "key-2", "key-3"} {
					if !api.has(claim) {
						t.Errorf("%s is forgotten", claim)
					}
				}
				s.Delete("key-1")
				if must(t, s.Flush(t.Context(), "key-1")); api.has("key-1") {
					t.Error("key-1 is still there")
				}
			})
		})
	}
}

func TestADeletedShardIsNoticedWithoutAPut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, client := newAPI()
		s := open(t, client)
		wrote(t, s, 1)
		time.Sleep(shardCheckInterval / 2)
		api.set(func(api *fakeAPI) {
			if api.looks > 0 {
				t.Error("a ConfigMap that is new was checked")
			}
			delete(api.kept, "journal-0")
		})
		time.Sleep(2 * shardCheckInterval)
		synctest.Wait()
		if !api.has("key-1") {
			t.Error("nothing else was written, and the record is not in the journal")
		}
		s.Delete("key-1")
		time.Sleep(2 * deleteDelay)
		api.set(func(api *fakeAPI) { delete(api.kept, "journal-0") })
		before := len(client.Actions())
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(client.Actions()) - before; n != 0 {
			t.Errorf("%d requests for a journal without records", n)
		}
	})
}

// slowMetadata does what it is asked after a while.
type slowMetadata struct {
	metadata.ResourceInterface
	client     metadata.Interface
	get, patch map[string]time.Duration // by the name of the ConfigMap
}

func (m slowMetadata) Resource(r schema.GroupVersionResource) metadata.Getter {
	m.ResourceInterface = m.client.Resource(r).Namespace("kube-system")
	return m
}

func (m slowMetadata) Namespace(string) metadata.ResourceInterface { return m }

func (m slowMetadata) Get(ctx context.Context, name string, o metav1.GetOptions, subresources ...string) (*metav1.PartialObjectMetadata, error) {
	time.Sleep(m.get[name])
	return m.ResourceInterface.Get(ctx, name, o, subresources...)
}

func (m slowMetadata) Patch(ctx context.Context, name string, pt types.PatchType, body []byte, o metav1.PatchOptions, subresources ...string) (*metav1.PartialObjectMetadata, error) {
	time.Sleep(m.patch[name])
	return m.ResourceInterface.Patch(ctx, name, pt, body, o, subresources...)
}

// openSlow returns a journal that is committing, whose first shards have some records each.
func openSlow(t *testing.T, shards int, slow slowMetadata) (*fakeAPI, *Store) {
	t.Helper()
	api, client := newAPI()
	for n := range shards {
		name := fmt.Sprint("journal-", n)
		data := map[string]string{}
		for m := range 5 {
			data[fmt.Sprintf("shard-%d-%d", n, m)] = "{}"
		}
		api.kept[name] = &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"}, Data: data}
	}
	slow.client = client.metadata
	s := New(client, slow, "kube-system", "journal", func() {})
	_, err := s.Load(t.Context())
	must(t, err)
	s.runUntilEnd(t, func(err error) { t.Errorf("taken over: %v", err) })
	return api, s
}

// putWithin puts a record and reports if that takes longer than most.
func putWithin(t *testing.T, s *Store, n int, most time.Duration) {
	t.Helper()
	begin := time.Now()
	if err := s.Put(t.Context(), key(n), record(n)); err != nil || time.Since(begin) > most {
		t.Errorf("record %d after %s: %v; want %s at most", n, time.Since(begin), err, most)
	}
}

// Whoever waits for one shard does not wait for another, and those who come while theirs is being written share the next write.
func TestASlowShardDelaysNoOther(t *testing.T) {
	const slow = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		api, s := openSlow(t, 2, slowMetadata{patch: map[string]time.Duration{"journal-0": slow}})
		var puts sync.WaitGroup
		puts.Go(func() { putWithin(t, s, 0, slow) })
		synctest.Wait() // it is being written
		for n := 1; n < 10; n++ {
			puts.Go(func() { putWithin(t, s, n, 2*slow+batchMost) })
		}
		synctest.Wait()
		defer s.fillBefore(1)()
		for n := 10; n < 20; n++ {
			putWithin(t, s, n, batchMost)
		}
		if api.has(key(0)) {
			t.Error("the slow shard was written before the others")
		}
		puts.Wait()
		if want := 10 + 2; api.writes != want {
			t.Errorf("%d writes, want %d", api.writes, want)
		}
	})
}

// A record that comes while a write takes long goes to another shard.
func TestAShardWhoseWriteTakesLongGetsNoMoreRecords(t *testing.T) {
	const slow = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		_, s := openSlow(t, 2, slowMetadata{patch: map[string]time.Duration{"journal-0": slow}})
		var puts sync.WaitGroup
		puts.Go(func() { putWithin(t, s, 0, slow) })
		time.Sleep(longWrite)
		putWithin(t, s, 1, batchMost)
		puts.Wait()
		putWithin(t, s, 2, slow)
		if at := s.find(key(2)).name; at != "journal-0" {
			t.Errorf("the shard is avoided still: the record is in %s", at)
		}
	})
}

// Whoever waits for a commit does not wait for the check of the shard that is due, and the next one for no more than one request,
// or for none of another shard.
func TestTheCheckDelaysNoCommit(t *testing.T) {
	const slow = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		_, s := openSlow(t, 3, slowMetadata{get: map[string]time.Duration{"journal-0": slow, "journal-1": slow, "journal-2": slow}})
		time.Sleep(shardCheckInterval + time.Millisecond)
		putWithin(t, s, 10, 0)
		putWithin(t, s, 11, slow+batchMost)
		time.Sleep(shardCheckInterval + time.Millisecond)
		putWithin(t, s, 12, 0)
		defer s.fillBefore(3)()
		putWithin(t, s, 13, batchMost)
	})
}

// A shard that is written all the time is checked, too.
func TestABusyShardIsChecked(t *testing.T) {
	const slow = time.Second
	synctest.Test(t, func(t *testing.T) {
		api, s := openSlow(t, 1, slowMetadata{patch: map[string]time.Duration{"journal-0": slow}})
		for n := range 100 {
			var puts sync.WaitGroup
			for m := range 2 { // the second of them waits while the first is written
				puts.Go(func() { time.Sleep(time.Duration(m) * slow / 2); putWithin(t, s, 10*n+m, 2*slow+batchMost) })
			}
			puts.Wait()
		}
		if want := int(100 * slow / (shardCheckInterval + 2*slow)); api.looks < want {
			t.Errorf("%d checks, want %d at least", api.looks, want)
		}
	})
}

// A record on two shards is what a crash inside a commit left before records stayed on their shard.
func TestAKeyIsOnOneShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, client := newAPI()
		s := open(t, client)
		undo := s.fillBefore(1)
		wrote(t, s, 1)
		undo()
		api.set(func(api *fakeAPI) { api.broken = map[string]error{"journal-1": errors.New("away")} })
		s.Delete("key-1")
		time.Sleep(2 * deleteDelay)
		synctest.Wait()
		_ = s.Put(t.Context(), key(1), record(1))
		time.Sleep(2 * deleteDelay)
		synctest.Wait()
		if _, twice := api.kept["journal-0"]; twice {
			t.Error("journal-1 has a record of the key, and so has journal-0")
		}
	})
}

func TestAnOlderRecordOfAKeyStaysDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, client := newAPI()
		first := open(t, client)
		wrote(t, first, 1)
		api.set(func(api *fakeAPI) {
			twin := api.kept["journal-0"].DeepCopy()
			twin.Name = "journal-3"
			api.kept["journal-3"] = twin
		})
		s := newStore(client, func() {})
		records, err := s.Load(t.Context())
		if err != nil || len(records) != 1 {
			t.Fatalf("%d records, %v", len(records), err)
		}
		s.Delete("key-1")
		s.commitAll(t.Context())
		if api.has("key-1") {
			t.Error("the record was deleted, and its other copy is left for the next leader")
		}
	})
}

// Whatever two states of a shard are, the API server makes one into the other by the patch.
func FuzzPatch(f *testing.F) {
	f.Add("a=1,b=2", "a=1,c=3")
	f.Add("", `u={"request":"x<y>&\u2028"}`)
	f.Add("u=v", "")
	f.Fuzz(func(t *testing.T, from, to string) {
		if !utf8.ValidString(from) || !utf8.ValidString(to) {
			t.Skip("Put takes no such record")
		}
		saved, entries := parsed(from), parsed(to)
		body, err := differenceOf(saved, entries).patch("7")
		must(t, err)
		now := &v1.ConfigMap{Data: maps.Clone(saved)}
		if now, err = merge(now, body); err != nil || now.ResourceVersion != "7" || !maps.Equal(now.Data, entries) {
			t.Errorf("%s makes %v of %v, want %v: %v", body, now.Data, saved, entries, err)
		}
	})
}

// parsed returns entries that are written as key=record,key=record.
func parsed(text string) map[string]string {
	entries := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		if key, record, ok := strings.Cut(part, "="); ok {
			entries[key] = record
		}
	}
	return entries
}
