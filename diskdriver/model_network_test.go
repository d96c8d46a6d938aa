package diskdriver

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
)

// network is what is between the driver's processes and ECS. While it is bad, requests that attach or detach a disk, and the
// replies to them, are late, lost or doubled, and reads leave out a disk.
type network struct {
	sim  *ecssim.Server
	late sync.WaitGroup

	mu     sync.Mutex
	random *rand.Rand
	until  time.Time // it is bad
	hidden string    // the disk that reads leave out
}

// mostTravel is for how long a request may be on its way; it was sent a moment after it was signed.
const mostTravel = disk.RequestLifetime - time.Second

// worsen lets the network be bad for a while.
func (n *network) worsen(seed uint64, lasts time.Duration, hidden string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.random, n.until, n.hidden = rand.New(rand.NewPCG(seed, 1)), time.Now().Add(lasts), hidden
}

// draw is what the network does to a request: how late it and its reply are, and whether the reply, or both, are lost or the request is
// doubled.
func (n *network) draw() (bad bool, request, reply time.Duration, what int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !time.Now().Before(n.until) {
		return false, 0, 0, 0
	}
	some := func() time.Duration {
		if n.random.IntN(2) == 0 {
			return 0
		}
		return time.Duration(n.random.Int64N(int64(mostTravel)))
	}
	return true, some(), some() / 4, n.random.IntN(8)
}

// carry carries a request to ECS and the reply back, if they aren't lost; the request arrives, whoever waits for the reply.
func (n *network) carry(req *http.Request) (*http.Response, error) {
	switch action := req.Header.Get("X-Acs-Action"); {
	case action == "":
		panic("a request without an action")
	case action == "DescribeDisks":
		return n.read(req)
	case !slices.Contains([]string{"AttachDisk", "DetachDisk"}, action):
		return n.sim.RoundTrip(req)
	}
	bad, before, after, what := n.draw()
	if !bad {
		return n.sim.RoundTrip(req)
	}
	type result struct {
		reply *http.Response
		err   error
	}
	replies := make(chan result, 2)
	send := func(wait time.Duration, sent *http.Request) {
		n.late.Go(func() {
			time.Sleep(wait)
			reply, err := n.sim.RoundTrip(sent)
			time.Sleep(after)
			replies <- result{reply, err}
		})
	}
	first, second := twice(req)
	switch what {
	case 0: // both are lost
		return nil, io.EOF
	case 1: // the reply is
		send(before, first)
		return nil, io.EOF
	case 2:
		send(before+after, second)
	}
	send(before, first)
	select {
	case r := <-replies:
		return r.reply, r.err
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// twice returns a request as it arrives, whatever becomes of the caller, and once more.
func twice(req *http.Request) (first, second *http.Request) {
	body := []byte{}
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
	}
	clone := func() *http.Request {
		c := req.Clone(context.WithoutCancel(req.Context()))
		c.Body = io.NopCloser(bytes.NewReader(body))
		return c
	}
	return clone(), clone()
}

// read carries a read, and leaves the hidden disk out of what it shows.
func (n *network) read(req *http.Request) (*http.Response, error) {
	reply, err := n.sim.RoundTrip(req)
	n.mu.Lock()
	hidden := n.hidden
	if !time.Now().Before(n.until) {
		hidden = ""
	}
	n.mu.Unlock()
	if err != nil || hidden == "" || reply.StatusCode != http.StatusOK {
		return reply, err
	}
	var answer map[string]any
	if err := json.NewDecoder(reply.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if disks, ok := answer["Disks"].(map[string]any); ok {
		shown, _ := disks["Disk"].([]any)
		left := slices.DeleteFunc(slices.Clone(shown), func(d any) bool { return d.(map[string]any)["DiskId"] == hidden })
		disks["Disk"] = left
		if n, ok := answer["TotalCount"].(float64); ok {
			answer["TotalCount"] = n - float64(len(shown)-len(left))
		}
	}
	body, err := json.Marshal(answer)
	reply.Body, reply.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	reply.Header.Del("Content-Length")
	return reply, err
}
