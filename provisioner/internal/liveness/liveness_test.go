package liveness

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestCheckReportsAStuckQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New()
		check := func(what string, ill bool) {
			t.Helper()
			if err := m.Check(time.Minute); (err != nil) != ill {
				t.Errorf("%s: %v", what, err)
			}
		}
		m.Queued("a")
		time.Sleep(time.Hour)
		check("a queue without workers", false)
		m.Start()
		check("it has just begun", false)
		time.Sleep(time.Minute)
		check("a minute is not too long", false)
		time.Sleep(time.Second)
		check("it is now", true)
		if err := m.Check(time.Minute); err == nil || !strings.Contains(err.Error(), "1 objects are queued") {
			t.Errorf("got %v", err)
		}
		m.Queued("b")
		m.Worked("a")
		check("a worker has begun", false)
		time.Sleep(time.Minute)
		m.Progressed()
		time.Sleep(time.Minute)
		check("it got further a minute ago", false)
		time.Sleep(time.Minute)
		check("and another object waits since", true)
		m.Worked("b")
		time.Sleep(time.Hour)
		check("nothing is queued", false)
		m.Queued("c")
		check("it is queued just now", false)
		time.Sleep(2 * time.Minute)
		m.Stop()
		check("it has ended", false)
	})
}
