package provisioner

import (
	"strings"
	"testing"
	"time"
)

func TestAQueueThatNobodyServesIsNoticed(t *testing.T) {
	clock := time.Unix(1700000000, 0)
	p := newProgress(func() time.Time { return clock })
	check := func(what string, ill bool) {
		t.Helper()
		if err := p.check(time.Minute); (err != nil) != ill {
			t.Errorf("%s: %v", what, err)
		}
	}
	p.enqueue("a")
	clock = clock.Add(time.Hour)
	check("a stand-by serves nothing", false)
	p.begin()
	check("it has just begun", false)
	clock = clock.Add(time.Minute)
	check("a minute is not too long", false)
	clock = clock.Add(time.Second)
	check("it is now", true)
	if err := p.check(time.Minute); !strings.Contains(text(err), "1 objects are queued") {
		t.Errorf("got %v", err)
	}
	p.enqueue("b")
	p.work("a")
	check("a worker has begun", false)
	clock = clock.Add(2 * time.Minute)
	check("and another object waits since", true)
	p.work("b")
	clock = clock.Add(time.Hour)
	check("nothing is queued", false)
	p.enqueue("c")
	check("it is queued just now", false)
	clock = clock.Add(2 * time.Minute)
	p.end()
	check("it has ended", false)
}
