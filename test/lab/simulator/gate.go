package simulator

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
)

// Gate is a TCP proxy on a port of its own that can be shut: then connections are refused and those that were open
// break off, as when a network fails. What is behind it keeps running.
type Gate struct {
	address string // where it listens
	behind  string

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
}

// NewGate is an open one in front of a URL.
func NewGate(url string) (*Gate, error) {
	g := &Gate{address: "127.0.0.1:0", behind: strings.TrimPrefix(url, "http://"), conns: map[net.Conn]bool{}}
	return g, g.Open()
}

// URL is what to connect to.
func (g *Gate) URL() string { return "http://" + g.address }

// Open lets connections through again.
func (g *Gate) Open() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.listener != nil {
		return nil
	}
	listener, err := net.Listen("tcp4", g.address)
	if err != nil {
		return fmt.Errorf("open gate: %w", err)
	}
	g.listener, g.address = listener, listener.Addr().String()
	go g.accept(listener)
	return nil
}

// Shut refuses connections from now on and breaks off those that are open.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.listener == nil {
		return
	}
	g.listener.Close()
	g.listener = nil
	for conn := range g.conns {
		conn.Close()
	}
	clear(g.conns)
}

func (g *Gate) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // shut
		}
		go g.pass(conn)
	}
}

// pass copies both ways until either side ends.
func (g *Gate) pass(near net.Conn) {
	far, err := net.Dial("tcp4", g.behind)
	if err != nil {
		near.Close()
		return
	}
	if !g.note(near, far) {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			io.Copy(way[0], way[1]) //nolint:errcheck // the end of a connection, whichever way it comes
			near.Close()
			far.Close()
		})
	}
	both.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, near)
	delete(g.conns, far)
}

// note remembers the connections so that Shut can break them; if it is shut by now they are broken at once.
func (g *Gate) note(conns ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, conn := range conns {
		if g.listener == nil {
			conn.Close()
			continue
		}
		g.conns[conn] = true
	}
	return g.listener != nil
}
