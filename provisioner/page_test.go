package provisioner

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

var errImmutable = apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), "journal-0", nil)

// fillBefore has orders go to that page, as if those before it were full.
func (b *configMapBook) fillBefore(page int) (undo func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.pages[:page] {
		p.bytes += pageBytes
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, p := range b.pages[:page] {
			p.bytes -= pageBytes
		}
	}
}

func TestAPageThatFailsIsNoOtherPagesFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := newShelf()
		b := openBook(t, api)
		wrote(t, b, 0)
		undo := b.fillBefore(1)
		wrote(t, b, 1)
		undo()
		s.set(func(s *shelf) { s.broken = map[string]error{"journal-0": errImmutable} })
		b.strike("uid-0") // page 0 is written with every commit from now on
		undo = b.fillBefore(1)
		for n := 2; n < 12; n++ {
			if err := b.write(t.Context(), orderOf(t, n)); err != nil {
				t.Errorf("order %d of page 1: %v", n, err)
			}
		}
		undo()
		if err := b.flush(t.Context(), "uid-0"); !apierrors.IsInvalid(err) {
			t.Errorf("an order that can't be taken out of its page: %v", err)
		}
	})
}

func TestNewOrdersAvoidAPageThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := newShelf()
		b := openBook(t, api)
		j := newJournal(b)
		wrote(t, b, 0)
		s.set(func(s *shelf) { s.broken = map[string]error{"journal-0": errImmutable} })
		if err := j.open(t.Context(), orderOf(t, 1)); !apierrors.IsInvalid(err) {
			t.Fatalf("the order that finds out: %v", err)
		}
		if err := j.open(t.Context(), orderOf(t, 2)); err != nil {
			t.Errorf("the next order: %v", err)
		}
		time.Sleep(2 * strikeLinger)
		synctest.Wait()
		if err := j.open(t.Context(), orderOf(t, 1)); err != nil {
			t.Errorf("the first order, later: %v", err)
		}
		if b.where["uid-1"] != b.pages[1] || b.where["uid-2"] != b.pages[1] {
			t.Error("they are not on the next page")
		}
		s.set(func(s *shelf) { s.broken = nil })
		time.Sleep(2 * strikeLinger)
		synctest.Wait()
		wrote(t, b, 3)
		if b.where["uid-3"] != b.pages[0] {
			t.Error("the page is written again, and avoided still")
		}
	})
}

func TestADeletedPageIsWrittenAgain(t *testing.T) {
	for what, deleted := range map[string]func(*shelf){
		"deleted": func(s *shelf) { delete(s.kept, "journal-0") },
		"deleted, and the next write fails": func(s *shelf) {
			delete(s.kept, "journal-0")
			s.before = apierrors.NewInternalError(errors.New("etcd is slow"))
		},
		"deleted, and the next reply is lost": func(s *shelf) {
			delete(s.kept, "journal-0")
			s.after = errors.New("connection reset")
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, api := newShelf()
				b := openBook(t, api)
				b.fatal = func(err error) { t.Errorf("fatal: %v", err) }
				wrote(t, b, 1, 2)
				s.set(deleted)
				_ = b.write(t.Context(), orderOf(t, 3)) // the second and third case fail once
				wrote(t, b, 3)
				for _, claim := range []string{"uid-1", "uid-2", "uid-3"} {
					if !s.has(claim) {
						t.Errorf("%s is forgotten", claim)
					}
				}
				b.strike("uid-1")
				if must(t, b.flush(t.Context(), "uid-1")); s.has("uid-1") {
					t.Error("uid-1 is still there")
				}
			})
		})
	}
}

func TestADeletedPageComesBackUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := newShelf()
		b := openBook(t, api)
		b.fatal = func(err error) { t.Errorf("fatal: %v", err) }
		wrote(t, b, 1)
		s.set(func(s *shelf) { delete(s.kept, "journal-0") })
		time.Sleep(2 * lookForPages)
		synctest.Wait()
		if !s.has("uid-1") {
			t.Error("nothing else was written, and the order is not in the journal")
		}
		b.strike("uid-1")
		time.Sleep(2 * strikeLinger)
		s.set(func(s *shelf) { delete(s.kept, "journal-0") })
		before := len(api.Actions())
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(api.Actions()) - before; n != 0 {
			t.Errorf("%d requests for a journal without orders", n)
		}
	})
}

// An entry on two pages is what a crash inside a commit left before orders stayed on their page.
func TestAnOrderIsOnOnePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := newShelf()
		b := openBook(t, api)
		undo := b.fillBefore(1)
		wrote(t, b, 1)
		undo()
		s.set(func(s *shelf) { s.broken = map[string]error{"journal-1": errors.New("away")} })
		b.strike("uid-1")
		time.Sleep(2 * strikeLinger)
		synctest.Wait()
		_ = b.write(t.Context(), orderOf(t, 1)) // another order for the claim, say of another node
		time.Sleep(2 * strikeLinger)
		synctest.Wait()
		if _, twice := s.kept["journal-0"]; twice {
			t.Error("journal-1 has an order for the claim, and so has journal-0")
		}
	})
}

func TestOfTwoEntriesForAClaimNoneReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := newShelf()
		first := openBook(t, api)
		wrote(t, first, 1)
		s.set(func(s *shelf) {
			twin := s.kept["journal-0"].DeepCopy()
			twin.Name = "journal-3"
			s.kept["journal-3"] = twin
		})
		b := newBook(api, "kube-system", "journal", func() {})
		orders, err := b.load(t.Context())
		if err != nil || len(orders) != 1 {
			t.Fatalf("%d orders, %v", len(orders), err)
		}
		b.strike(types.UID("uid-1"))
		b.commit(t.Context())
		if s.has("uid-1") {
			t.Error("the order has ended, and its other entry is left for the next leader")
		}
	})
}
