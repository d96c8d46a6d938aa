package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
)

var must = provisionertest.Must

// fakeAPI is an API server of ConfigMaps that enforces resource versions, as
// client-go's fake does not.
type fakeAPI struct {
	mu      sync.Mutex
	kept    map[string]*v1.ConfigMap
	writes  int
	patches int              // of the writes
	bytes   int              // of what was written, as JSON
	looks   int              // at metadata
	before  error            // the next write fails with this and has no effect
	after   error            // the next write fails with this and has its effect
	broken  map[string]error // every write of the ConfigMap fails with this and has no effect
}

// clients are those of one API server.
type clients struct {
	*fake.Clientset
	metadata *metadatafake.FakeMetadataClient
}

func newAPI() (*fakeAPI, clients) {
	api := &fakeAPI{kept: map[string]*v1.ConfigMap{}}
	c := clients{fake.NewClientset(), metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())}
	c.PrependReactor("*", "configmaps", api.react)
	c.metadata.PrependReactor("get", "configmaps", api.look)
	c.metadata.PrependReactor("patch", "configmaps", api.patch)
	return api, c
}

var group = v1.Resource("configmaps")

func (api *fakeAPI) react(action clienttesting.Action) (bool, runtime.Object, error) {
	api.mu.Lock()
	defer api.mu.Unlock()
	if get, ok := action.(clienttesting.GetAction); ok && action.GetVerb() == "get" {
		if api.kept[get.GetName()] == nil {
			return true, nil, apierrors.NewNotFound(group, get.GetName())
		}
		return true, api.kept[get.GetName()].DeepCopy(), nil
	}
	if a, ok := action.(clienttesting.PatchAction); ok {
		return api.annotate(a)
	}
	configMap := action.(clienttesting.CreateAction).GetObject().(*v1.ConfigMap) // an update's object is got the same way
	body, err := json.Marshal(configMap)
	if err != nil {
		return true, nil, err
	}
	written, err := api.write(action.GetVerb(), configMap.DeepCopy(), len(body))
	return true, written, err
}

// look answers a question for metadata.
func (api *fakeAPI) look(action clienttesting.Action) (bool, runtime.Object, error) {
	api.mu.Lock()
	defer api.mu.Unlock()
	api.looks++
	name := action.(clienttesting.GetAction).GetName()
	if api.kept[name] == nil {
		return true, nil, apierrors.NewNotFound(group, name)
	}
	return true, &metav1.PartialObjectMetadata{ObjectMeta: api.kept[name].ObjectMeta}, nil
}

// patch applies a strategic merge patch, and answers with metadata.
func (api *fakeAPI) patch(action clienttesting.Action) (bool, runtime.Object, error) {
	api.mu.Lock()
	defer api.mu.Unlock()
	a := action.(clienttesting.PatchAction)
	now := api.kept[a.GetName()]
	if now == nil || a.GetPatchType() != types.StrategicMergePatchType {
		return true, nil, apierrors.NewNotFound(group, a.GetName())
	}
	configMap, err := merge(now, a.GetPatch())
	if err != nil {
		return true, nil, err
	}
	api.patches++
	written, err := api.write("patch", configMap, len(a.GetPatch()))
	if err != nil {
		return true, nil, err
	}
	return true, &metav1.PartialObjectMetadata{ObjectMeta: written.ObjectMeta}, nil
}

// annotate applies a merge patch, of whatever version there is. api.mu is held.
func (api *fakeAPI) annotate(a clienttesting.PatchAction) (bool, runtime.Object, error) {
	now := api.kept[a.GetName()]
	if now == nil {
		return true, nil, apierrors.NewNotFound(group, a.GetName())
	}
	configMap, err := merge(now, a.GetPatch())
	if err != nil {
		return true, nil, err
	}
	written, err := api.write("patch", configMap, len(a.GetPatch()))
	return true, written, err
}

// merge is what a patch of version, annotations and data comes to.
func merge(now *v1.ConfigMap, body []byte) (*v1.ConfigMap, error) {
	var patch struct {
		Metadata struct {
			ResourceVersion string
			Annotations     map[string]*string
		}
		Data map[string]*string
	}
	if err := json.Unmarshal(body, &patch); err != nil {
		return nil, err
	}
	configMap := now.DeepCopy()
	if patch.Metadata.ResourceVersion != "" {
		configMap.ResourceVersion = patch.Metadata.ResourceVersion
	}
	for name, value := range patch.Metadata.Annotations {
		if value == nil {
			delete(configMap.Annotations, name)
		} else {
			metav1.SetMetaDataAnnotation(&configMap.ObjectMeta, name, *value)
		}
	}
	for key, record := range patch.Data {
		if record == nil {
			delete(configMap.Data, key)
		} else {
			if configMap.Data == nil {
				configMap.Data = map[string]string{}
			}
			configMap.Data[key] = *record
		}
	}
	return configMap, nil
}

// write stores a ConfigMap. api.mu is held.
func (api *fakeAPI) write(verb string, configMap *v1.ConfigMap, length int) (*v1.ConfigMap, error) {
	api.writes++
	api.bytes += length
	if err := api.before; err != nil {
		api.before = nil
		return nil, err
	}
	if err := api.broken[configMap.Name]; err != nil {
		return nil, err
	}
	now := api.kept[configMap.Name]
	switch {
	case verb == "create" && now != nil:
		return nil, apierrors.NewAlreadyExists(group, configMap.Name)
	case verb != "create" && now == nil:
		return nil, apierrors.NewNotFound(group, configMap.Name)
	case verb != "create" && now.ResourceVersion != configMap.ResourceVersion:
		return nil, apierrors.NewConflict(group, configMap.Name, errors.New("it has changed"))
	}
	configMap.ResourceVersion = strconv.Itoa(api.writes)
	api.kept[configMap.Name] = configMap
	if err := api.after; err != nil {
		api.after = nil
		return nil, err
	}
	return configMap.DeepCopy(), nil
}

func (api *fakeAPI) set(f func(*fakeAPI)) {
	api.mu.Lock()
	defer api.mu.Unlock()
	f(api)
}

// entries counts the records of all ConfigMaps.
func (api *fakeAPI) entries() int {
	api.mu.Lock()
	defer api.mu.Unlock()
	n := 0
	for _, configMap := range api.kept {
		n += len(configMap.Data)
	}
	return n
}

func newStore(client clients, commits func()) *Store {
	return New(client, client.metadata, "kube-system", "journal", commits)
}

// loaded returns a journal that is not committing.
func loaded(t *testing.T, client clients) *Store {
	t.Helper()
	s := newStore(client, func() {})
	_, err := s.Load(t.Context())
	must(t, err)
	return s
}

// open returns a loaded journal that is committing.
func open(t *testing.T, client clients) *Store {
	t.Helper()
	return openUntil(t, client, func(err error) { t.Errorf("taken over: %v", err) })
}

func openUntil(t *testing.T, client clients, takenOver func(error)) *Store {
	t.Helper()
	s := loaded(t, client)
	s.runUntilEnd(t, takenOver)
	return s
}

// runUntilEnd has a journal commit until the test has ended.
func (s *Store) runUntilEnd(t *testing.T, takenOver func(error)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { s.Run(ctx, takenOver); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
}

func TestConcurrentPutsShareCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, client := newAPI()
		s := open(t, client)
		var all sync.WaitGroup
		for n := range 200 {
			all.Go(func() {
				if err := s.Put(t.Context(), key(n), record(n)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got := api.entries(); got != 200 {
			t.Errorf("%d entries", got)
		}
		if api.writes > 10 {
			t.Errorf("%d commits for 200 entries", api.writes)
		}
	})
}

func TestDeleteIsCommittedWithinSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, client := newAPI()
		s := open(t, client)
		for n := range 2 {
			if err := s.Put(t.Context(), key(n), record(n)); err != nil {
				t.Fatal(err)
			}
		}
		writes := api.writes
		s.Delete("key-0")
		time.Sleep(batchMost)
		synctest.Wait()
		if api.writes != writes {
			t.Error("a strike alone was written at once")
		}
		if err := s.Put(t.Context(), key(2), record(2)); err != nil {
			t.Fatal(err)
		}
		if api.writes != writes+1 || api.entries() != 2 {
			t.Errorf("%d commits, %d entries", api.writes-writes, api.entries())
		}
		s.Delete("key-1")
		time.Sleep(2 * deleteDelay)
		synctest.Wait()
		if api.entries() != 1 || api.writes != writes+2 {
			t.Errorf("%d commits, %d entries", api.writes-writes, api.entries())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if api.writes != writes+2 {
			t.Error("the journal was written without a reason")
		}
	})
}

func TestAFailedWriteIsReportedAndRetried(t *testing.T) {
	tests := map[string]func(*fakeAPI){
		"without effect":    func(api *fakeAPI) { api.before = apierrors.NewInternalError(errors.New("etcd is slow")) },
		"with a lost reply": func(api *fakeAPI) { api.after = errors.New("connection reset") },
		"forbidden": func(api *fakeAPI) {
			api.before = apierrors.NewForbidden(v1.Resource("configmaps"), "journal-0", errors.New("no rule"))
		},
	}
	for name, fail := range tests {
		for how, existing := range map[string]int{"create": 0, "update": 1, "patch": 5} {
			t.Run(name+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					api, client := newAPI()
					s := open(t, client)
					for n := range existing {
						wrote(t, s, 9+n)
					}
					if how == "update" {
						s.Delete(key(9))
					}
					patches := api.patches
					api.set(fail)
					err := s.Put(t.Context(), key(1), record(1))
					if whole := name == "forbidden" && how == "patch"; (err == nil) != whole { // it is written whole if it may not be patched
						t.Fatalf("got %v", err)
					}
					if (api.patches > patches) != (how == "patch") {
						t.Errorf("%d patches", api.patches-patches)
					}
					if err := s.Put(t.Context(), key(2), record(2)); err != nil {
						t.Fatal(err)
					}
					for n := range 20 {
						s.Delete(key(n))
					}
					time.Sleep(2 * deleteDelay)
					synctest.Wait()
					if n := api.entries(); n != 0 {
						t.Errorf("%d entries are left", n)
					}
				})
			})
		}
	}
}

func TestAnotherWriterIsNoticed(t *testing.T) {
	for how, existing := range map[string]int{"create": 0, "update": 1, "patch": 5} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, client := newAPI()
				var fatal error
				s := openUntil(t, client, func(err error) { fatal = err })
				for n := range existing {
					wrote(t, s, n)
				}
				if how == "update" {
					s.Delete(key(0))
				}
				patches := api.patches
				other := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "journal-0", ResourceVersion: "1000"}, Data: map[string]string{"key-other": "{}"}}
				api.set(func(api *fakeAPI) { api.kept["journal-0"] = other })
				for n := range 3 {
					if err := s.Put(t.Context(), key(10+n), record(10+n)); err == nil {
						t.Error("it was written over")
					}
				}
				if !errors.Is(fatal, ErrTakenOver) || (api.patches > patches) != (how == "patch") {
					t.Errorf("got %v after %d patches", fatal, api.patches-patches)
				}
				if got := api.kept["journal-0"].Data; !maps.Equal(got, map[string]string{"key-other": "{}"}) {
					t.Errorf("the other's shard has %v", got)
				}
			})
		})
	}
}

func TestRecordsOutliveTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := newAPI()
		wrote(t, open(t, client), 0, 1, 2)
		records, err := newStore(client, func() {}).Load(t.Context())
		must(t, err)
		if want := map[string][]byte{key(0): record(0), key(1): record(1), key(2): record(2)}; !reflect.DeepEqual(records, want) {
			t.Errorf("read %s, want %s", records, want)
		}
	})
}

// What a caller can't read nobody deletes, replaces or begins anew.
func TestAnUnreadableRecordIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, client := newAPI()
		wrote(t, open(t, client), 0, 1, 2)
		s := loaded(t, client)
		s.Keep(key(1), errors.New("its format is 2"))
		if err := s.Put(t.Context(), key(1), record(9)); err == nil || !strings.Contains(err.Error(), "key key-1 of ConfigMap kube-system/journal-0") {
			t.Errorf("it was put anew: %v", err)
		}
		s.Delete(key(1))
		s.Delete(key(0))
		s.commitAll(t.Context())
		want := map[string]string{key(1): string(record(1)), key(2): string(record(2))}
		if got := api.kept["journal-0"].Data; !maps.Equal(got, want) {
			t.Errorf("the shard has %v, want %v", got, want)
		}
	})
}

// isFull says whether a record was refused for lack of room.
func isFull(err error) bool { _, full := errors.AsType[*FullError](err); return full }

func TestPutRefusesARecordWithoutRoom(t *testing.T) {
	_, client := newAPI()
	s := loaded(t, client)
	large := strings.Repeat("x", shardBytes/2)
	for n := range Shards + 1 {
		if _, err := s.enter(key(n), large); isFull(err) != (n == Shards) {
			t.Fatalf("record %d: %v", n, err)
		}
	}
	s.Delete(key(3))
	if _, err := s.enter("again", large); err != nil {
		t.Errorf("after one was deleted: %v", err)
	}
	for what, record := range map[string][]byte{"larger than a shard": make([]byte, shardBytes), "no UTF-8": {0xff}} {
		if err := s.Put(t.Context(), "never", record); err == nil || isFull(err) {
			t.Errorf("a record that is %s: %v, want an error that no room ends", what, err)
		}
	}
}

// A record may grow between two puts.
func TestARecordGrowsOnlyIntoRoom(t *testing.T) {
	_, client := newAPI()
	s := loaded(t, client)
	if _, err := s.enter(key(0), string(sized(0))); err != nil {
		t.Fatal(err)
	}
	at := s.find(key(0))
	at.bytes += at.room() - 10 // of other records
	grown := string(sized(0)) + strings.Repeat("x", 11)
	if _, err := s.enter(key(0), grown); !isFull(err) || at.bytes > shardBytes {
		t.Errorf("%v; the shard has %d bytes, want %d at most", err, at.bytes, shardBytes)
	}
	if _, err := s.enter(key(0), grown[:len(grown)-1]); err != nil || at.room() != 0 {
		t.Errorf("a record that fits: %v, %d bytes are left", err, at.room())
	}
}

// sized returns a record as long as that of a claim is, nearly.
func sized(n int) []byte {
	return fmt.Appendf(nil, `{"record":%d,"request":%q}`, n, strings.Repeat("x", 800))
}

// putAll puts records side by side.
func putAll(t *testing.T, s *Store, records int) {
	t.Helper()
	var all sync.WaitGroup
	for n := range records {
		all.Go(func() {
			if err := s.Put(t.Context(), key(n), sized(n)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestTwentyThousandRecordsFit(t *testing.T) {
	api, client := newAPI()
	s := loaded(t, client)
	for n := range 20000 {
		_, err := s.enter(key(n), string(sized(n)))
		must(t, err)
	}
	s.commit(t.Context())
	records, err := newStore(client, func() {}).Load(t.Context())
	if must(t, err); len(records) != 20000 || api.writes > Shards {
		t.Errorf("%d records are read after %d writes", len(records), api.writes)
	}
}

// What a record costs to write and to delete doesn't depend on how many others there are.
func TestBytesWrittenPerRecord(t *testing.T) {
	for _, others := range []int{1, 100, 4000} {
		t.Run(fmt.Sprint(others), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, client := newAPI()
				s := open(t, client)
				putAll(t, s, others)
				const records = 50
				before := api.bytes
				for n := range records {
					must(t, s.Put(t.Context(), key(others+n), sized(others+n))) // in a commit of its own
					s.Delete(key(others + n))
				}
				time.Sleep(2 * deleteDelay)
				synctest.Wait()
				each := (api.bytes - before) / records
				if t.Logf("%d bytes for a record of %d", each, len(sized(others))); each > 2<<10 {
					t.Error("want 2 KiB at most")
				}
				if api.entries() != others {
					t.Errorf("%d records are left, want %d", api.entries(), others)
				}
			})
		})
	}
}

func TestShardsStaySmallAndCommitsAreFew(t *testing.T) {
	entry := strings.Repeat("x", 1<<10)
	for what, test := range map[string]struct {
		records         int
		together        bool
		largest, shards int
	}{
		"few, one by one":  {40, false, smallShard, 3},
		"many, one by one": {400, false, 60 << 10, firstShards},
		"few, together":    {40, true, 42 << 10, 1},
		"many, together":   {400, true, 66 << 10, 7},
	} {
		t.Run(what, func(t *testing.T) {
			_, client := newAPI()
			s := loaded(t, client)
			for n := range test.records {
				_, err := s.enter(key(n), entry)
				must(t, err)
				if !test.together {
					s.commit(t.Context())
				}
			}
			largest, used := 0, 0
			for _, sh := range s.shards {
				largest = max(largest, sh.bytes)
				if sh.bytes > 0 {
					used++
				}
			}
			if largest > test.largest || used != test.shards {
				t.Errorf("%d shards of %d bytes at most, want %d of %d", used, largest, test.shards, test.largest)
			}
		})
	}
}

// Versions before the patches read the first shards alone.
func TestTheFirstShardsAreFilledFirst(t *testing.T) {
	_, client := newAPI()
	s := loaded(t, client)
	for n := range 7000 {
		_, err := s.enter(key(n), string(sized(n)))
		must(t, err)
	}
	for _, sh := range s.shards[firstShards:] {
		if sh.bytes > 0 {
			t.Errorf("%s has %d bytes", sh.name, sh.bytes)
		}
	}
}

func TestDeleteWaitsForAnotherWrite(t *testing.T) {
	end := map[string]struct {
		f     func(*testing.T, *Store)
		least time.Duration // until it is out
	}{
		"the next record":         {f: func(t *testing.T, s *Store) { wrote(t, s, 2) }},
		"it is flushed":           {f: func(t *testing.T, s *Store) { must(t, s.Flush(t.Context(), "key-1")) }},
		"another one is deleted":  {f: func(_ *testing.T, s *Store) { s.Delete("key-0") }, least: deleteDelay/2 + lookInterval},
		"ten seconds have passed": {f: func(*testing.T, *Store) {}, least: deleteDelay/2 + lookInterval},
	}
	for name, test := range end {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, client := newAPI()
				s := open(t, client)
				wrote(t, s, 0, 1)
				writes := api.writes
				s.Delete("key-1")
				time.Sleep(deleteDelay / 2)
				if api.writes != writes || !api.has("key-1") {
					t.Errorf("written %d times for nothing but that", api.writes-writes)
				}
				test.f(t, s)
				time.Sleep(test.least)
				synctest.Wait()
				if api.writes != writes+1 || api.has("key-1") {
					t.Errorf("%d writes, and it is in the journal: %v", api.writes-writes, api.has("key-1"))
				}
				must(t, s.Flush(t.Context(), "key-1"))
				if api.writes != writes+1 {
					t.Error("the journal was written although it is out")
				}
			})
		})
	}
}

// Writes of other shards, as often as they may come, do not put off what is overdue.
func TestDeleteIsInTimeUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, client := newAPI()
		s := open(t, client)
		wrote(t, s, 0, 1)
		undo := s.fillBefore(1)
		defer undo()
		s.Delete(key(0))
		for n := range deleteDelay / time.Second {
			if !api.has(key(0)) {
				t.Fatalf("it was written for that alone after %d s", n)
			}
			must(t, s.Put(t.Context(), key(2), record(int(n)))) // in the other shard
			time.Sleep(time.Second)
		}
		must(t, s.Put(t.Context(), key(2), record(0)))
		synctest.Wait() // both shards are written at that moment
		if api.has(key(0)) || !api.has(key(1)) {
			t.Errorf("overdue, and it is in the journal: %v", api.has(key(0)))
		}
	})
}

func TestTheLastCommitKeepsPutRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, client := newAPI()
		s := loaded(t, client)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Run(ctx, func(error) {}); close(done) }()
		wrote(t, s, 0, 1)
		s.Delete("key-1")
		synctest.Wait()
		cancel()
		<-done
		if api.entries() != 1 || !api.has("key-0") {
			t.Errorf("%d entries, want the one that is under way", api.entries())
		}
	})
}

func TestPutWaitsForARecordBeingWritten(t *testing.T) {
	for name, fails := range map[string]error{"written": nil, "not written": errors.New("away")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, client := newAPI()
				held := make(chan struct{})
				client.PrependReactor("create", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { <-held; return false, nil, nil })
				api.set(func(api *fakeAPI) { api.before = fails })
				s := open(t, client)
				go func() { _ = s.Put(t.Context(), key(1), record(1)) }()
				synctest.Wait()
				got := make(chan error, 1)
				go func() { got <- s.Put(t.Context(), key(1), record(1)) }()
				synctest.Wait()
				select {
				case err := <-got:
					t.Fatalf("it was taken for written: %v", err)
				default:
				}
				close(held)
				if err := <-got; (err != nil) != (fails != nil) {
					t.Errorf("got %v", err)
				}
				if want := 1; fails == nil && api.writes != want {
					t.Errorf("%d writes, want %d", api.writes, want)
				}
			})
		})
	}
}

// A commit for another record changes nothing about one that stands there.
func TestPutOfAWrittenRecordReturnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := newAPI()
		s := open(t, client)
		wrote(t, s, 1)
		held := make(chan struct{})
		client.PrependReactor("update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { <-held; return false, nil, nil })
		go func() { _ = s.Put(t.Context(), key(2), record(2)) }()
		time.Sleep(batchMost)
		synctest.Wait() // the commit of the other one is under way
		defer close(held)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		if err := s.Put(ctx, key(1), record(1)); err != nil || time.Since(begin) > 0 {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
	})
}

// A commit under way may delete a record that comes again before its answer.
func TestPutAfterADeleteBeingWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, client := newAPI()
		s := open(t, client)
		wrote(t, s, 1)
		held := make(chan struct{})
		client.PrependReactor("update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { <-held; return false, nil, nil })
		s.Delete("key-1")
		time.Sleep(deleteDelay)
		synctest.Wait() // the commit is under way
		got := make(chan error, 1)
		go func() { got <- s.Put(t.Context(), key(1), record(1)) }()
		synctest.Wait()
		close(held)
		if err := <-got; err != nil || !api.has("key-1") {
			t.Errorf("%v; in the journal: %v", err, api.has("key-1"))
		}
	})
}

func (api *fakeAPI) has(claim string) bool {
	api.mu.Lock()
	defer api.mu.Unlock()
	for _, configMap := range api.kept {
		if _, ok := configMap.Data[claim]; ok {
			return true
		}
	}
	return false
}

// wrote puts those records.
func wrote(t *testing.T, s *Store, numbers ...int) {
	t.Helper()
	for _, n := range numbers {
		must(t, s.Put(t.Context(), key(n), record(n)))
	}
}

func key(n int) string    { return fmt.Sprint("key-", n) }
func record(n int) []byte { return fmt.Appendf(nil, `{"record":%d}`, n) }
