package provisioner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/topodisk/topodisk/internal/leader"
)

// shelf is a fake API server of ConfigMaps that enforces resource versions, as
// client-go's fake does not.
type shelf struct {
	mu     sync.Mutex
	kept   map[string]*v1.ConfigMap
	writes int
	before error            // the next write fails with this and has no effect
	after  error            // the next write fails with this and has its effect
	broken map[string]error // every write of the ConfigMap fails with this and has no effect
}

func newShelf() (*shelf, *fake.Clientset) {
	s := &shelf{kept: map[string]*v1.ConfigMap{}}
	api := fake.NewClientset()
	api.PrependReactor("*", "configmaps", s.react)
	return s, api
}

func (s *shelf) react(action clienttesting.Action) (bool, runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	group := v1.Resource("configmaps")
	if get, ok := action.(clienttesting.GetAction); ok && action.GetVerb() == "get" {
		if s.kept[get.GetName()] == nil {
			return true, nil, apierrors.NewNotFound(group, get.GetName())
		}
		return true, s.kept[get.GetName()].DeepCopy(), nil
	}
	configMap := action.(clienttesting.CreateAction).GetObject().(*v1.ConfigMap) // an update's object is got the same way
	s.writes++
	if err := s.before; err != nil {
		s.before = nil
		return true, nil, err
	}
	if err := s.broken[configMap.Name]; err != nil {
		return true, nil, err
	}
	now := s.kept[configMap.Name]
	switch {
	case action.GetVerb() == "create" && now != nil:
		return true, nil, apierrors.NewAlreadyExists(group, configMap.Name)
	case action.GetVerb() == "update" && now == nil:
		return true, nil, apierrors.NewNotFound(group, configMap.Name)
	case action.GetVerb() == "update" && now.ResourceVersion != configMap.ResourceVersion:
		return true, nil, apierrors.NewConflict(group, configMap.Name, errors.New("it has changed"))
	}
	configMap.ResourceVersion = strconv.Itoa(s.writes)
	s.kept[configMap.Name] = configMap.DeepCopy()
	if err := s.after; err != nil {
		s.after = nil
		return true, nil, err
	}
	return true, configMap, nil
}

func (s *shelf) set(f func(*shelf)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

// entries counts what stands in the book.
func (s *shelf) entries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, configMap := range s.kept {
		n += len(configMap.Data)
	}
	return n
}

// openBook returns a loaded book that is committing.
func openBook(t *testing.T, api *fake.Clientset) *configMapBook {
	t.Helper()
	b := newBook(api, "kube-system", "journal", func() {})
	if _, err := b.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { b.run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return b
}

func orderOf(t *testing.T, n int) *order {
	t.Helper()
	o, _, err := newBench(t, nil).newOrder(t.Context(), claimOf(n, "20Gi"), testClass(nil), "node-1")
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestAnOrderReadFromTheBookIsTheOrder(t *testing.T) {
	b := newBench(t, nil, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vault", Name: "x"}, Data: map[string][]byte{"key": []byte("hush")}})
	class := testClass(map[string]string{
		"type": "cloud_essd", fsTypeKey: "xfs",
		"csi.storage.k8s.io/secret-name": "x", "csi.storage.k8s.io/secret-namespace": "vault",
	})
	class.UID = "class-uid"
	o, _, err := b.newOrder(t.Context(), testClaim(), class, "node-1")
	if err != nil {
		t.Fatal(err)
	}
	data, err := encode(o)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), "hush") || strings.Contains(string(data), "aHVzaA") {
		t.Error("the book has a secret")
	}
	read, err := decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(o.request, read.request, protocmp.Transform()); diff != "" {
		t.Errorf("request (-written +read):\n%s", diff)
	}
	if !read.unknown || read.node != "node-1" || !isOurs(read.claim, driverName) || read.claim.Annotations[annSelectedNode] != "node-1" || classKey(read.class) != classKey(class) {
		t.Errorf("read %+v", read)
	}
	o.claim.ResourceVersion = "" // that of the claim is told as far as it is known
	o.made, read.made = made("d-bp1", 20*gib, "zone-a").volume, made("d-bp1", 20*gib, "zone-a").volume
	if diff := cmp.Diff(b.volume(o), b.volume(read)); diff != "" {
		t.Errorf("PersistentVolume (-written +read):\n%s", diff)
	}
}

func TestWritesSideBySideGoIntoFewCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := newShelf()
		b := openBook(t, api)
		var all sync.WaitGroup
		for n := range 200 {
			o := orderOf(t, n)
			all.Go(func() {
				if err := b.write(t.Context(), o); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got := s.entries(); got != 200 {
			t.Errorf("%d entries", got)
		}
		if s.writes > 10 {
			t.Errorf("%d commits for 200 entries", s.writes)
		}
	})
}

func TestWhatIsStruckGoesWithTheNextCommitOrSoonAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := newShelf()
		b := openBook(t, api)
		for n := range 2 {
			if err := b.write(t.Context(), orderOf(t, n)); err != nil {
				t.Fatal(err)
			}
		}
		writes := s.writes
		b.strike("uid-0")
		time.Sleep(gatherMost)
		synctest.Wait()
		if s.writes != writes {
			t.Error("a strike alone was written at once")
		}
		if err := b.write(t.Context(), orderOf(t, 2)); err != nil {
			t.Fatal(err)
		}
		if s.writes != writes+1 || s.entries() != 2 {
			t.Errorf("%d commits, %d entries", s.writes-writes, s.entries())
		}
		b.strike("uid-1")
		time.Sleep(2 * strikeLinger)
		synctest.Wait()
		if s.entries() != 1 || s.writes != writes+2 {
			t.Errorf("%d commits, %d entries", s.writes-writes, s.entries())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.writes != writes+2 {
			t.Error("the book was written without a reason")
		}
	})
}

func TestAWriteThatFailsIsToldAndTheNextOneWorks(t *testing.T) {
	tests := map[string]func(*shelf){
		"without effect":    func(s *shelf) { s.before = apierrors.NewInternalError(errors.New("etcd is slow")) },
		"with a lost reply": func(s *shelf) { s.after = errors.New("connection reset") },
		"forbidden": func(s *shelf) {
			s.before = apierrors.NewForbidden(v1.Resource("configmaps"), "journal-0", errors.New("no rule"))
		},
	}
	for name, fail := range tests {
		for _, existing := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, existing %v", name, existing), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, api := newShelf()
					b := openBook(t, api)
					b.fatal = func(err error) { t.Errorf("fatal: %v", err) }
					if existing {
						if err := b.write(t.Context(), orderOf(t, 9)); err != nil {
							t.Fatal(err)
						}
					}
					s.set(fail)
					if err := b.write(t.Context(), orderOf(t, 1)); err == nil {
						t.Fatal("no error")
					}
					if err := b.write(t.Context(), orderOf(t, 2)); err != nil {
						t.Fatal(err)
					}
					b.strike("uid-1")
					b.strike("uid-2")
					b.strike("uid-9")
					time.Sleep(2 * strikeLinger)
					synctest.Wait()
					if n := s.entries(); n != 0 {
						t.Errorf("%d entries are left", n)
					}
				})
			})
		}
	}
}

func TestAnotherWriterEndsThisOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := newShelf()
		b := openBook(t, api)
		var fatal error
		b.fatal = func(err error) { fatal = err }
		if err := b.write(t.Context(), orderOf(t, 1)); err != nil {
			t.Fatal(err)
		}
		s.set(func(s *shelf) {
			s.kept["journal-0"].Data["uid-other"], s.kept["journal-0"].ResourceVersion = "{}", "1000"
		})
		for n := range 2 {
			if err := b.write(t.Context(), orderOf(t, 2+n)); err == nil {
				t.Error("it was written over")
			}
		}
		if !errors.Is(fatal, leader.ErrLost) {
			t.Errorf("got %v", fatal)
		}
		if s.kept["journal-0"].Data["uid-other"] != "{}" {
			t.Error("the other's entry is gone")
		}
	})
}

func TestTheBookOutlivesItsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := newShelf()
		first := openBook(t, api)
		for n := range 3 {
			if err := first.write(t.Context(), orderOf(t, n)); err != nil {
				t.Fatal(err)
			}
		}
		s.set(func(s *shelf) { s.kept["journal-0"].Data["uid-broken"] = "not JSON" })
		second := newBook(api, "kube-system", "journal", func() {})
		orders, err := second.load(t.Context())
		if err != nil || len(orders) != 3 {
			t.Fatalf("%d orders, %v", len(orders), err)
		}
		for _, o := range orders {
			second.strike(o.claim.UID)
		}
		second.commit(t.Context())
		if s.entries() != 1 || s.kept["journal-0"].Data["uid-broken"] != "not JSON" {
			t.Errorf("kept %v, want the entry that can't be read", s.kept["journal-0"].Data)
		}
	})
}

// TestAnOrderOfALaterVersionStays reads what a later version has written: fields that it adds stay as they are, and of a
// format that it knows not, nobody begins anew.
func TestAnOrderOfALaterVersionStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := newShelf()
		wrote(t, openBook(t, api), 0, 1, 2)
		page := func() map[string]string { return s.kept["journal-0"].Data }
		known, unknown, other := orderOf(t, 0), orderOf(t, 1), orderOf(t, 2)
		s.set(func(*shelf) {
			page()[string(known.claim.UID)] = strings.Replace(page()[string(known.claim.UID)], "{", `{"since":{"version":2},`, 1)
			page()[string(unknown.claim.UID)] = strings.Replace(page()[string(unknown.claim.UID)], "{", `{"format":2,`, 1)
		})
		before := maps.Clone(page())
		b := newBook(api, "kube-system", "journal", func() {})
		orders, err := b.load(t.Context())
		must(t, err)
		if len(orders) != 2 {
			t.Fatalf("read %d orders, want those of claims 0 and 2", len(orders))
		}
		if err := b.write(t.Context(), unknown); err == nil || !strings.Contains(err.Error(), string(unknown.claim.UID)) || !strings.Contains(err.Error(), "kube-system/journal-0") {
			t.Errorf("the order of a later format was begun anew: %v", err)
		}
		b.foresee(unknown)
		b.dismiss(unknown.claim.UID)
		b.strike(unknown.claim.UID)
		b.strike(other.claim.UID)
		b.commit(t.Context())
		delete(before, string(other.claim.UID))
		if diff := cmp.Diff(before, page()); diff != "" {
			t.Errorf("the page (-before +after):\n%s", diff)
		}
	})
}

func TestAFullBookMakesOrdersWait(t *testing.T) {
	_, api := newShelf()
	b := newBook(api, "kube-system", "journal", func() {})
	if _, err := b.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", pageBytes/2)
	for n := range mostPages + 1 {
		_, err := b.enter(types.UID(fmt.Sprint(n)), large)
		if full := n >= mostPages; full != (err != nil) {
			t.Fatalf("entry %d: %v", n, err)
		}
	}
	b.strike("3")
	if _, err := b.enter("again", large); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}

func TestPagesStayHandyAsLongAsThereIsAnother(t *testing.T) {
	_, api := newShelf()
	b := newBook(api, "kube-system", "journal", func() {})
	if _, err := b.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	entry := strings.Repeat("x", 1<<10)
	enter := func(orders int) (largest, used int) {
		for n := range orders {
			if _, err := b.enter(types.UID(fmt.Sprint(n)), entry); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range b.pages {
			largest = max(largest, p.bytes)
			if p.bytes > 0 {
				used++
			}
		}
		return largest, used
	}
	if largest, used := enter(40); largest > handyBytes || used != 3 {
		t.Errorf("%d pages with 40 KiB, of %d bytes at most", used, largest)
	}
	if largest, used := enter(400); largest > 60<<10 || used != mostPages {
		t.Errorf("%d pages with 400 KiB, of %d bytes at most", used, largest)
	}
}

// failingBook takes no entry.
type failingBook struct{ noBook }

func (failingBook) write(context.Context, *order) error { return errors.New("the API server is away") }

func TestTheDriverIsNotAskedBeforeTheBookHasTheOrder(t *testing.T) {
	b := newBench(t, []answer{made("d-bp1", 0, "zone-a")})
	b.journal.book = failingBook{}
	if _, outcome, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); outcome != Unchanged || err == nil {
		t.Errorf("got %v, %v", outcome, err)
	}
	if creates, _ := b.driver.calls(); creates != 0 {
		t.Error("the driver was asked")
	}
}

func TestAnOrderThatCouldNotBeWrittenIsNotInTheBook(t *testing.T) {
	for name, fail := range map[string]func(*shelf){
		"no effect": func(s *shelf) { s.before = errors.New("away") },
		"effect":    func(s *shelf) { s.after = errors.New("away") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, api := newShelf()
				j := newJournal(openBook(t, api))
				s.set(fail)
				if err := j.open(t.Context(), orderOf(t, 1)); err == nil {
					t.Fatal("opened, though the book could not be written")
				}
				time.Sleep(2 * strikeLinger)
				synctest.Wait()
				if s.entries() != 0 {
					t.Errorf("the book has %d entries of volumes that nobody was asked for", s.entries())
				}
			})
		})
	}
}

func TestTheDiskStaysUntilTheBookHasForgottenIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := newShelf()
		pv := testVolume("d-bp1")
		b, r := reclaimBench(t, pv, nil, pv.DeepCopy())
		defer r.queue.ShutDown()
		b.journal.book = openBook(t, api)
		o := orderOf(t, 1)
		o.claim.UID = pv.Spec.ClaimRef.UID
		if err := b.journal.open(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		looked := false
		b.look = func(*v1.PersistentVolumeClaim) { looked = true }
		if err := r.reclaim(t.Context(), "d-bp1"); !errors.Is(err, errUnderWay) || !looked || len(b.driver.deleted) > 0 {
			t.Errorf("while the order is under way: %v, looked at again %v, deleted %v", err, looked, b.driver.deleted)
		}
		b.journal.close(o.claim.UID)
		left := -1
		b.driver.onDelete = func() { left = s.entries() }
		if err := r.reclaim(t.Context(), "d-bp1"); err != nil || left != 0 {
			t.Errorf("%v; when the disk was deleted the book had %d entries, want none", err, left)
		}
	})
}

func TestWhatIsRetiredWaitsForAnotherReasonToWrite(t *testing.T) {
	end := map[string]struct {
		f     func(*testing.T, *configMapBook)
		least time.Duration // until it is out
	}{
		"the next order":         {f: func(t *testing.T, b *configMapBook) { wrote(t, b, 2) }},
		"its disk is to go":      {f: func(t *testing.T, b *configMapBook) { must(t, b.flush(t.Context(), "uid-1")) }},
		"its volume is going":    {f: func(_ *testing.T, b *configMapBook) { b.hurry("uid-1") }, least: strikeLinger},
		"another one was struck": {f: func(_ *testing.T, b *configMapBook) { b.strike("uid-0") }, least: strikeLinger},
		"a minute has passed":    {f: func(*testing.T, *configMapBook) {}, least: retireLinger/2 + strikeLinger},
	}
	for name, test := range end {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, api := newShelf()
				b := openBook(t, api)
				wrote(t, b, 0, 1)
				writes := s.writes
				b.retire("uid-1")
				b.hurry("uid-0") // of an order that is under way it means nothing
				time.Sleep(retireLinger / 2)
				if s.writes != writes || !s.has("uid-1") {
					t.Errorf("written %d times for nothing but that", s.writes-writes)
				}
				test.f(t, b)
				time.Sleep(test.least)
				synctest.Wait()
				if s.writes != writes+1 || s.has("uid-1") {
					t.Errorf("%d writes, and it is in the book: %v", s.writes-writes, s.has("uid-1"))
				}
				must(t, b.flush(t.Context(), "uid-1"))
				if s.writes != writes+1 {
					t.Error("the book was written although it is out")
				}
			})
		})
	}
}

func TestWhatWasForeseenIsOutBeforeADiskGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := newShelf()
		j := newJournal(openBook(t, api))
		j.book.foresee(orderOf(t, 1))
		synctest.Wait()
		if err := j.isOver(t.Context(), "uid-1"); err != nil || s.has("uid-1") {
			t.Errorf("%v; in the book: %v", err, s.has("uid-1"))
		}
	})
}

func TestTheLastCommitLeavesNothingThatHasEndedOrWasNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := newShelf()
		b := newBook(api, "kube-system", "journal", func() {})
		if _, err := b.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { b.run(ctx); close(done) }()
		wrote(t, b, 0, 1)
		b.foresee(orderOf(t, 2))
		b.retire("uid-1")
		synctest.Wait()
		cancel()
		<-done
		if s.entries() != 1 || !s.has("uid-0") {
			t.Errorf("%d entries, want the one that is under way", s.entries())
		}
	})
}

func TestWhatWasForeseenIsNotWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := newShelf()
		b := openBook(t, api)
		b.foresee(orderOf(t, 1))
		b.foresee(orderOf(t, 1))
		synctest.Wait()
		if s.writes != 1 || !s.has("uid-1") {
			t.Fatalf("%d writes, %d entries", s.writes, s.entries())
		}
		wrote(t, b, 1)
		if s.writes != 1 {
			t.Error("an order was written that stood there")
		}
		changed := orderOf(t, 1)
		changed.node = "node-2"
		b.foresee(changed) // too late: the order is under way
		time.Sleep(time.Hour)
		if s.writes != 1 {
			t.Error("an order under way was written over")
		}
		must(t, b.write(t.Context(), changed))
		if s.writes != 2 {
			t.Error("an order that is another one was not written")
		}
		b.dismiss("uid-1")
		time.Sleep(time.Hour)
		if !s.has("uid-1") {
			t.Error("an order under way was dismissed")
		}
	})
}

func TestAnOrderThatIsBeingWrittenIsWaitedFor(t *testing.T) {
	for name, fails := range map[string]error{"written": nil, "not written": errors.New("away")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, api := newShelf()
				held := make(chan struct{})
				api.PrependReactor("create", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { <-held; return false, nil, nil })
				s.set(func(s *shelf) { s.before = fails })
				b := openBook(t, api)
				b.foresee(orderOf(t, 1))
				synctest.Wait()
				got := make(chan error, 1)
				go func() { got <- b.write(t.Context(), orderOf(t, 1)) }()
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
				if want := 1; fails == nil && s.writes != want {
					t.Errorf("%d writes, want %d", s.writes, want)
				}
			})
		})
	}
}

// A slow API server is asked seldom for what nobody waits for, and at once for what somebody does.
func TestWhatNobodyWaitsForLeavesASlowAPIServerTime(t *testing.T) {
	const slow, orders = 30 * time.Millisecond, 40
	synctest.Test(t, func(t *testing.T) {
		s, api := newShelf()
		b := openBook(t, api)
		b.commits = func() { time.Sleep(slow) }
		begin := time.Now()
		for n := range orders {
			b.foresee(orderOf(t, n))
			time.Sleep(slow / 2)
		}
		most := int(time.Since(begin)/((aheadShare+1)*slow)) + 2
		s.set(func(s *shelf) {
			if s.writes > most {
				t.Errorf("%d writes in %s, want %d at most", s.writes, time.Since(begin), most)
			}
		})
		time.Sleep(time.Second)
		wrote(t, b, orders)
		time.Sleep(time.Second)
		b.foresee(orderOf(t, orders+1))
		b.foresee(orderOf(t, orders+2))
		begin = time.Now()
		wrote(t, b, orders+2)
		if took := time.Since(begin); took > 2*slow {
			t.Errorf("who waited was told after %s", took)
		}
	})
}

// Where orders stand in the book long before their turn, many are written at once, and still before it.
func TestOrdersWhoseTurnComesLateAreWrittenTogether(t *testing.T) {
	const each, orders = 20 * time.Millisecond, 200
	for _, lead := range []time.Duration{0, 100 * time.Millisecond, 2 * time.Second} {
		t.Run(lead.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, api := newShelf()
				b := openBook(t, api)
				b.commits = func() { time.Sleep(time.Millisecond) }
				var turns sync.WaitGroup
				for n := range orders {
					b.foresee(orderOf(t, n))
					turns.Go(func() {
						time.Sleep(lead)
						begin := time.Now()
						if err := b.write(t.Context(), orderOf(t, n)); err != nil || lead > 0 && time.Since(begin) > 0 {
							t.Errorf("order %d: %v after %s", n, err, time.Since(begin))
						}
					})
					time.Sleep(each)
				}
				turns.Wait()
				between := min(lead/leadShare, aheadMost)
				most := min(orders, int(lead/each+orders*each/max(between, each))) + 2 // before the first turn nothing is known
				s.set(func(s *shelf) {
					if s.writes > most {
						t.Errorf("%d writes, want %d at most", s.writes, most)
					}
					t.Logf("%d writes for %d orders", s.writes, orders)
				})
			})
		})
	}
}

// A commit for another order changes nothing about one that stands there.
func TestAnOrderThatStandsThereWaitsForNoCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, api := newShelf()
		b := openBook(t, api)
		b.foresee(orderOf(t, 1))
		synctest.Wait() // it was written
		held := make(chan struct{})
		api.PrependReactor("update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { <-held; return false, nil, nil })
		b.foresee(orderOf(t, 2))
		time.Sleep(gatherMost)
		synctest.Wait() // the commit of the other one is under way
		defer close(held)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		if err := b.write(ctx, orderOf(t, 1)); err != nil || time.Since(begin) > 0 {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
	})
}

// A commit under way may take an order out that comes again before its answer.
func TestAnOrderIsInTheBookThoughItWasJustTakenOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := newShelf()
		b := openBook(t, api)
		wrote(t, b, 1)
		held := make(chan struct{})
		api.PrependReactor("update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { <-held; return false, nil, nil })
		b.strike("uid-1")
		time.Sleep(strikeLinger)
		synctest.Wait() // the commit is under way
		got := make(chan error, 1)
		go func() { got <- b.write(t.Context(), orderOf(t, 1)) }()
		synctest.Wait()
		close(held)
		if err := <-got; err != nil || !s.has("uid-1") {
			t.Errorf("%v; in the book: %v", err, s.has("uid-1"))
		}
	})
}

func TestFewAreForeseen(t *testing.T) {
	_, api := newShelf()
	b := newBook(api, "kube-system", "journal", func() {})
	if _, err := b.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := orderOf(t, 0)
	for n := range 2 * mostForeseen {
		o.claim.UID = types.UID(fmt.Sprintf("uid-%d", n))
		b.foresee(o)
	}
	if len(b.where) != mostForeseen {
		t.Errorf("%d entries", len(b.where))
	}
	b.dismiss("uid-0")
	if b.foresee(orderOf(t, 2*mostForeseen)); len(b.where) != mostForeseen {
		t.Errorf("%d entries after one was dismissed", len(b.where))
	}
}

func (s *shelf) has(claim string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, configMap := range s.kept {
		if _, ok := configMap.Data[claim]; ok {
			return true
		}
	}
	return false
}

// wrote writes the orders of those claims.
func wrote(t *testing.T, b *configMapBook, claims ...int) {
	t.Helper()
	for _, n := range claims {
		must(t, b.write(t.Context(), orderOf(t, n)))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
