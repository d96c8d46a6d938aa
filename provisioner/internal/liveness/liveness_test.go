package liveness

import (
	"strings"
	"testing"
	"time"
)

func TestCheckReportsAStuckQueue(t *testing.T) {
	clock := time.Unix(1700000000, 0)
	m := New(func() time.Time { return clock })
	check := func(what string, ill bool) {
		t.Helper()
		if err := m.Check(time.Minute); (err != nil) != ill {
			t.Errorf("%s: %v", what, err)
		}
	}
	m.Queued("a")
	clock = clock.Add(time.Hour)
	check("a queue without workers", false)
	m.Start()
	check("it has just begun", false)
	clock = clock.Add(time.Minute)
	check("a minute is not too long", false)
	clock = clock.Add(time.Second)
	check("it is now", true)
	if err := m.Check(time.Minute); err == nil || !strings.Contains(err.Error(), "1 objects are queued") {
		t.Errorf("got %v", err)
	}
	m.Queued("b")
	m.Worked("a")
	check("a worker has begun", false)
	clock = clock.Add(time.Minute)
	m.Progressed()
	clock = clock.Add(time.Minute)
	check("it got further a minute ago", false)
	clock = clock.Add(time.Minute)
	check("and another object waits since", true)
	m.Worked("b")
	clock = clock.Add(time.Hour)
	check("nothing is queued", false)
	m.Queued("c")
	check("it is queued just now", false)
	clock = clock.Add(2 * time.Minute)
	m.Stop()
	check("it has ended", false)
}
