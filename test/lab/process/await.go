package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// StartLimit is how long one program may take to become ready. On a loaded machine of two cores it takes a tenth of it.
const StartLimit = 60 * time.Second

// The first and the longest pause between two looks of Await: the longer something takes, the rarer they are, for looking at an
// API server costs the programs that are waited for their processor.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 500 * time.Millisecond
)

// Await polls until check reports true. An error of check does not end the wait; the last one is part of the error at the limit.
// A program that ends by itself ends the wait at once, with the end of its log.
func (g *Group) Await(ctx context.Context, what string, limit time.Duration, check func(context.Context) (bool, error)) error {
	begin := time.Now()
	var last error
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pauses := wait.Backoff{Duration: firstPause, Factor: 1.1, Steps: math.MaxInt, Cap: longestPause}
	err := pauses.DelayFunc().Until(limited, true, true, func(ctx context.Context) (bool, error) {
		ok, err := check(ctx)
		if ok && err == nil {
			return true, nil
		}
		if err != nil && ctx.Err() == nil {
			last = err
		}
		return false, g.Failure()
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("await %s: %w", what, errors.Join(context.Cause(ctx), last))
	case !wait.Interrupted(err):
		return fmt.Errorf("await %s: %w", what, err)
	}
	err = fmt.Errorf("not so after %s: %s", time.Since(begin).Round(time.Second), what)
	if last != nil {
		err = fmt.Errorf("%w: %w", err, last)
	}
	return err
}

// AwaitPage polls a URL of a process until it answers 200, or a process ends.
func (g *Group) AwaitPage(ctx context.Context, p *Process, url string) error {
	return g.AwaitPageOf(ctx, &http.Client{Timeout: 5 * time.Second}, p, url)
}

// AwaitPageOf is AwaitPage with a client. What was answered last is part of the error.
func (g *Group) AwaitPageOf(ctx context.Context, client *http.Client, p *Process, url string) error {
	err := g.Await(ctx, p.Name+" is ready", StartLimit, func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false, err
		}
		answer, err := client.Do(request)
		if err != nil {
			return false, err
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
		if answer.StatusCode != http.StatusOK {
			return false, fmt.Errorf("%s: %s: %s", url, answer.Status, body)
		}
		return true, nil
	})
	if err != nil && !p.Ended() && ctx.Err() == nil {
		return fmt.Errorf("%w\n%s", err, LogTail(p.Log))
	}
	return err
}

// Serve starts a program with the flag --http-endpoint, and returns when its page answers 200.
func (g *Group) Serve(ctx context.Context, c Command, page string) (*Process, error) {
	g.mu.Lock()
	port, err := g.ports[c.Name], error(nil)
	if port == 0 {
		err = FreePorts(&port)
		g.ports[c.Name] = port
	}
	g.mu.Unlock()
	if err != nil {
		return nil, err
	}
	c.Args = append(slices.Clone(c.Args), fmt.Sprintf("--http-endpoint=127.0.0.1:%d", port))
	p, err := g.Start(c)
	if err != nil {
		return nil, err
	}
	return p, g.AwaitPage(ctx, p, g.URL(c.Name, page))
}

// URL is that of a page of a program that Serve has started.
func (g *Group) URL(name, page string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return fmt.Sprintf("http://127.0.0.1:%d%s", g.ports[name], page)
}

// FreePorts fills in ports of 127.0.0.1 that nothing listens on, all different. They are below the ephemeral
// ports (net.ipv4.ip_local_port_range), so that no connection has a program's port when that starts again.
func FreePorts(ports ...*int) error {
	for _, port := range ports {
		listener, err := listenBelowEphemeral()
		if err != nil {
			return fmt.Errorf("find a free port: %w", err)
		}
		defer listener.Close()
		*port = listener.Addr().(*net.TCPAddr).Port
	}
	return nil
}

func listenBelowEphemeral() (listener net.Listener, err error) {
	for range 100 {
		if listener, err = net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(20000))); err == nil {
			return listener, nil
		}
	}
	return nil, err
}
