package attachment

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/internal/deadline"
)

func TestHowLongACallMayWait(t *testing.T) {
	const left = 2 * time.Minute
	for _, test := range []struct {
		limit   Limit
		waiting int
		want    time.Duration // 0: not at all
	}{
		{0, 100000, left}, {900, 0, left}, {900, 450, left / 2}, {900, 675, left / 4}, {900, 890, shortestWait}, {900, 899, shortestWait},
		{900, 900, 0}, {900, 901, 0}, {1, 0, left}, {1, 1, 0}, {2, 1, left / 2},
	} {
		wait, ok := test.limit.wait(test.waiting, left)
		if wait.Round(time.Millisecond) != test.want || ok != (test.want > 0) {
			t.Errorf("limit %d, %d wait: %v, %v, want %v", test.limit, test.waiting, wait, ok, test.want)
		}
	}
	if wait, ok := Limit(900).wait(899, time.Second); wait != time.Second || !ok {
		t.Errorf("a caller with a second gets %v, %v", wait, ok)
	}
}

// Each answer is a write to the API server: those who come at once aren't answered at once.
func TestCallsThatComeAtOnceAreAnsweredOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable(5400)
		answers := map[time.Duration]int{}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		for range 5000 {
			admitted, _, err := table.admit(ctx, detached)
			if err != nil {
				t.Fatal(err)
			}
			limited, stop := deadline.BeforeAnswer(admitted)
			end, _ := limited.Deadline()
			stop()
			answers[time.Until(end).Truncate(time.Second)]++
		}
		for second, n := range answers {
			if n > 150 && second > shortestWait {
				t.Errorf("%d calls of 5000 are answered within the second after %v, want 150 at most", n, second)
			}
		}
	})
}

// Whoever waits for one operation never keeps the other from waiting, and a call that has ended leaves its room to the next.
func TestOperationsHaveALimitEach(t *testing.T) {
	table := NewTable(2)
	var leave []func()
	for range 2 {
		_, left, err := table.admit(t.Context(), detached)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, left)
	}
	if _, _, err := table.admit(t.Context(), detached); disk.KindOf(err) != disk.Pending {
		t.Errorf("a third detach: %v, want Pending", err)
	}
	if _, left, err := table.admit(t.Context(), attached); err != nil {
		t.Errorf("an attach beside two detaches: %v", err)
	} else {
		left()
	}
	leave[0]()
	if _, _, err := table.admit(t.Context(), detached); err != nil {
		t.Errorf("a detach after another has ended: %v", err)
	}
}

func TestWhatIsAskedForIsCountedUntilItIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable(0)
		expect := func(when, metrics string) {
			t.Helper()
			if err := testutil.CollectAndCompare(table, strings.NewReader(metrics)); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
		ask := func(id disk.ID, wanted phase) { table.begin(t.Context(), id, here, wanted) }
		expect("a fresh process", "")
		ask("d-1", detached)
		time.Sleep(time.Minute)
		ask("d-1", detached)
		ask("d-2", detached)
		time.Sleep(time.Minute)
		const help = `
			# HELP topodisk_csi_oldest_pending_attachment_seconds How long ago the driver was first asked for the oldest of them; 0 if there is none.
			# TYPE topodisk_csi_oldest_pending_attachment_seconds gauge
			topodisk_csi_oldest_pending_attachment_seconds{operation="detach"} OLDEST
			# HELP topodisk_csi_pending_attachments Disks and nodes that the driver is asked to attach or detach, again and again, and that it has not been able to yet.
			# TYPE topodisk_csi_pending_attachments gauge
			topodisk_csi_pending_attachments{operation="detach"} PENDING
			`
		detaches := func(pending, oldest string) string {
			return strings.NewReplacer("OLDEST", oldest, "PENDING", pending).Replace(help)
		}
		expect("two detaches between two calls", detaches("2", "120"))
		table.change("d-1", here, func(r *Record, _ time.Time) { r.become(detached) })
		expect("one of them is done", detaches("1", "60"))
		time.Sleep(longestRetry)
		expect("nobody asks any more", detaches("0", "0"))
		ask("d-3", attached)
		if n := testutil.CollectAndCount(table); n != 4 {
			t.Errorf("%d series, want 4", n)
		}
	})
}

// A call that is answered early is told by its context alone: what is under way is not cut off.
func TestAdmitLeavesTheCallItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable(2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 2 {
			admitted, _, err := table.admit(ctx, detached)
			if err != nil {
				t.Fatal(err)
			}
			if end, _ := admitted.Deadline(); time.Until(end) != time.Minute {
				t.Errorf("the call has %v, want a minute", time.Until(end))
			}
		}
	})
}
