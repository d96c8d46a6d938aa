//go:build e2e

package crash

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// writeJournal and readJournal are what a ConfigMap is written and read for.
const (
	writeJournal = "write journal"
	readJournal  = "read journal"
)

// catchUp is the list of volumes' versions that a new leader asks for.
const catchUp = "catch up with persistentvolumes"

var errLost = errors.New("the reply is lost")

// callKey is the key of a request's context that holds its name.
type callKey struct{}

// through serves HTTP on loopback (HTTPS with a certificate), has every call pass the gates, and forwards it. A call that has arrived is carried
// out even if its caller dies meanwhile. name says what a request is called; empty for one that is not held.
func through(target string, security *tls.Config, g *gates, name func(*http.Request) string) (address string, err error) {
	to, err := url.Parse(target)
	if err != nil {
		return "", err
	}
	proxy := &httputil.ReverseProxy{
		Transport:     &http.Transport{TLSClientConfig: security, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 64},
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host // which a signature of ECS covers
		},
		ModifyResponse: func(r *http.Response) error {
			if r.Request.URL.Query().Get("watch") != "" {
				r.Body = &watched{ReadCloser: r.Body, gates: g, resource: path.Base(r.Request.URL.Path)}
			}
			if call, ok := r.Request.Context().Value(callKey{}).(string); ok && g.at(call, true) == lose {
				return errLost
			}
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if call := name(r); call != "" {
			ctx, done := context.WithCancel(context.WithValue(context.WithoutCancel(r.Context()), callKey{}, call))
			defer done()
			r = r.WithContext(ctx)
			if g.at(call, false) == lose {
				panic(http.ErrAbortHandler)
			}
		}
		proxy.ServeHTTP(w, r)
	})}
	if security == nil {
		go server.Serve(listener)
		return "http://" + listener.Addr().String(), nil
	}
	server.TLSConfig = &tls.Config{Certificates: security.Certificates}
	go server.ServeTLS(listener, "", "")
	return "https://" + listener.Addr().String(), nil
}

// watched is the stream of a watch, which the gates may freeze.
type watched struct {
	io.ReadCloser
	gates    *gates
	resource string
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	w.gates.awaitThaw(w.resource)
	return n, err
}

// apiCall names a request to the API server: method and resource, such as "POST persistentvolumes".
func apiCall(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return ""
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	one := len(parts) > 1
	switch resource := parts[0]; {
	case resource == "configmaps" && r.Method == http.MethodGet:
		return readJournal
	case resource == "configmaps":
		return writeJournal
	case resource == "events" || resource == "leases" || resource == "csistoragecapacities" || resource == "csidrivers":
		return ""
	case resource == "persistentvolumes" && !one && r.URL.Query().Get("watch") == "" &&
		strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList"):
		return catchUp
	case r.Method == http.MethodGet && !one:
		return "" // a list or a watch
	default:
		return r.Method + " " + resource
	}
}

// ecsCall names a request to ECS by its action.
func ecsCall(r *http.Request) string { return r.Header.Get("X-Acs-Action") }

// csiGate is the driver's socket as the provisioner sees it. Its connections end with the driver.
type csiGate struct {
	socket, driver string
	gates          *gates
	ledger         *ledger
	cancelled      atomic.Int64 // calls that their caller gave up

	listener *net.UnixListener
	server   *grpc.Server
	conn     *grpc.ClientConn
}

// open serves the socket.
func (c *csiGate) open() (err error) {
	if err := os.Remove(c.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if c.conn, err = grpc.NewClient("unix://"+c.driver, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return err
	}
	if c.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: c.socket, Net: "unix"}); err != nil {
		return err
	}
	c.listener.SetUnlinkOnClose(false) // by then another may listen there
	conn := c.conn
	c.server = grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error { return c.forward(conn, stream) }))
	go c.server.Serve(c.listener)
	return nil
}

// shut breaks off the connections, as the end of the driver does.
func (c *csiGate) shut() {
	if c.server == nil {
		return
	}
	c.listener.Close()
	go c.server.Stop() // it waits for calls that are held
	c.conn.Close()
	c.server = nil
}

// heldCSI are the calls that change something.
var heldCSI = []string{"CreateVolume", "DeleteVolume"}

// forward carries one call. A message of an unknown type keeps all its fields.
func (c *csiGate) forward(conn *grpc.ClientConn, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	call := method[strings.LastIndexByte(method, '/')+1:]
	var in, out emptypb.Empty
	if err := stream.RecvMsg(&in); err != nil {
		return err
	}
	gated := slices.Contains(heldCSI, call)
	e, err := c.ledger.begin(call, in.ProtoReflect().GetUnknown())
	if err != nil {
		return err
	}
	defer c.ledger.end(e)
	if gated && c.gates.at(call, false) == lose {
		return status.Error(codes.Unavailable, "the call is lost")
	}
	ctx := stream.Context()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md) // such as that no disk can exist
	}
	err = conn.Invoke(ctx, method, &in, &out)
	c.ledger.answer(e, status.Code(err))
	if stream.Context().Err() != nil {
		c.cancelled.Add(1)
	}
	if gated && c.gates.at(call, true) == lose {
		return status.Error(codes.Unavailable, "the reply is lost")
	}
	if err != nil {
		return err
	}
	return stream.SendMsg(&out)
}
