package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose clients are in this process.
type pipes chan net.Conn

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }
func (p pipes) Accept() (net.Conn, error) {
	conn, open := <-p
	if !open {
		return nil, http.ErrServerClosed
	}
	return conn, nil
}

// dial returns the client's end of a connection.
func (p pipes) dial() net.Conn {
	client, server := net.Pipe()
	p <- server
	return client
}

// servedPort serves a page of health with the limits of Serve.
func servedPort(t *testing.T, page http.Handler) pipes {
	port := make(pipes)
	server := &http.Server{Handler: page}
	bound(server)
	go func() { _ = server.Serve(port) }()
	t.Cleanup(func() { close(port); _ = server.Close() })
	return port
}

// ask sends a request and returns the status; the connection stays open.
func ask(conn net.Conn) (int, error) {
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return 0, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, errors.Join(err, answer.Body.Close())
}

// isClosed says whether the server has closed its end.
func isClosed(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := conn.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

func healthy() http.Handler { return Answer(func(*http.Request) error { return nil }) }

func TestAPortHasAtMost64Connections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		port := servedPort(t, healthy())
		used := port.dial()
		if status, err := ask(used); status != http.StatusOK {
			t.Fatalf("%d, %v", status, err)
		}
		var idle []net.Conn
		for range 500 {
			idle = append(idle, port.dial())
			synctest.Wait()
		}
		open := 0
		for _, conn := range idle {
			if !isClosed(conn) {
				open++
			}
		}
		if open != maxConnections || !isClosed(used) {
			t.Errorf("%d of 500 idle connections are open, and the one before them is closed=%t", open, isClosed(used))
		}
		if status, err := ask(port.dial()); status != http.StatusOK {
			t.Errorf("a probe beside them: %d, %v", status, err)
		}
	})
}

func TestSlowClientsAreLeft(t *testing.T) {
	for name, test := range map[string]struct {
		begin string
		after time.Duration
	}{
		"a connection without a request": {"", headerTimeout},
		"half a header":                  {"GET /healthz HTTP/1.1\r\nHost: x\r\n", headerTimeout},
		"half a body":                    {"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf", requestTimeout},
		"a response that isn't read":     {"GET /much HTTP/1.1\r\nHost: x\r\n\r\n", responseTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan struct{}, 1)
				conn := servedPort(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					_, err := io.WriteString(w, strings.Repeat("x", 1<<20))
					if r.URL.Path == "/much" && err != nil {
						ended <- struct{}{}
					}
				})).dial()
				begun := time.Now()
				_, err := io.WriteString(conn, test.begin)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(test.begin, "/much") {
					<-ended
				} else {
					_, _ = io.Copy(io.Discard, conn) // until it is closed
				}
				if took := time.Since(begun); took > test.after+time.Second {
					t.Errorf("it was kept for %s, want %s", took, test.after)
				}
			})
		})
	}
}

func TestAnIdleConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := servedPort(t, healthy()).dial()
		if status, err := ask(conn); status != http.StatusOK {
			t.Fatalf("%d, %v", status, err)
		}
		begun := time.Now()
		_, _ = io.Copy(io.Discard, conn)
		if took := time.Since(begun); took > idleTimeout+time.Second {
			t.Errorf("it was kept for %s", took)
		}
	})
}

func TestOnlyLoopbackIsToldWhy(t *testing.T) {
	page := Answer(func(*http.Request) error { return errors.New("no file /var/run/secrets/access-key-id") })
	for from, told := range map[string]bool{
		"127.0.0.1:1234": true, "[::1]:1234": true, "[::ffff:127.0.0.1]:1234": true,
		"10.0.0.1:1234": false, "[fe80::1%eth0]:1234": false, "pipe": false, "": false,
	} {
		request, answer := httptest.NewRequest(http.MethodGet, "/readyz", nil), httptest.NewRecorder()
		request.RemoteAddr = from
		page(answer, request)
		want := "not ok\n"
		if told {
			want = "no file /var/run/secrets/access-key-id\n"
		}
		if answer.Code != http.StatusServiceUnavailable || answer.Body.String() != want {
			t.Errorf("%s is told %d %q, want %q", from, answer.Code, answer.Body, want)
		}
	}
}

func TestServeSetsTheLimits(t *testing.T) {
	server := &http.Server{Addr: "127.0.0.1:0", Handler: healthy()}
	if err := Serve(server, "it ends"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Shutdown(context.Background()) }()
	limits := fmt.Sprint(server.ReadHeaderTimeout, server.ReadTimeout, server.WriteTimeout, server.IdleTimeout, server.MaxHeaderBytes, server.ConnState != nil)
	if limits != "5s 10s 1m0s 1m0s 16384 true" {
		t.Error(limits)
	}
}

func TestAFailingCheckIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := &lastError{}
		step := func(after time.Duration, text string, news bool) {
			t.Helper()
			time.Sleep(after)
			var err error
			if text != "" {
				err = errors.New(text)
			}
			if said.isNews(err) != news {
				t.Errorf("%q is news=%t", text, !news)
			}
		}
		step(0, "", false)
		step(0, "no key", true)
		step(time.Hour, "no key", false)
		step(0, "no file", true)
		step(time.Second, "no key", false)
		step(time.Minute, "no key", true)
		step(time.Second, "", true)
		step(time.Second, "no key", true)
	})
}
