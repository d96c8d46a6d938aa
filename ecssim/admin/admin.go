// Package admin is the simulator's own API and its page for people, below
// /_sim/: they show the state, and change what no ECS API changes, such as stock,
// faults and the clock.
package admin

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/ecssim/config"
)

// root is where the admin API is.
const root = "/_sim/"

// maxBody is how many bytes of a request's body are read.
const maxBody = 1 << 20

// crossOrigin refuses requests that change something and that a browser sends
// for a page of another origin. Programs, which say no origin, pass.
var crossOrigin = http.NewCrossOriginProtection()

// handler is a simulator with its admin API.
type handler struct{ sim *ecssim.Server }

// Handler returns an http.Handler of the simulator with its admin API: requests
// below /_sim/ are for the API, all others for the simulator.
//
// The API takes and gives JSON; its errors have status 400 and {"error": ...},
// with the routes that exist where there is no such route (404, 405).
func Handler(sim *ecssim.Server) http.Handler { return handler{sim} }

// route is one route of the admin API.
type route struct {
	method, path string
	serve        func(*ecssim.Server, []byte) (any, error) // the body in, what to answer out
}

// routes are all routes but those of the page. What they take is a JSON object
// without unknown fields.
func routes() []route {
	return slices.Concat(
		stateRoutes(), stockRoutes(), faultRoutes(), clockRoutes(), instanceRoutes(), diskRoutes(),
		latencyRoutes(), accountRoutes(), throttleRoutes(),
	)
}

// findRoute returns the route of a method and a path, and whether it exists.
func findRoute(method, path string) (route, bool) {
	all := routes()
	i := slices.IndexFunc(all, func(r route) bool { return r.path == path && r.method == method })
	if i < 0 {
		return route{}, false
	}
	return all[i], true
}

func (h handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path, own := strings.CutPrefix(req.URL.Path+"/", root)
	if !own {
		h.sim.ServeHTTP(w, req)
		return
	}
	path = strings.Trim(path, "/")
	if err := crossOrigin.Check(req); err != nil {
		answerJSON(w, http.StatusForbidden, map[string]any{"error": "another site's page may not change the simulator: " + err.Error()})
		return
	}
	switch method := req.Method; {
	case path == "":
		h.servePage(w, req)
	case path == updatePath && method == http.MethodGet:
		h.serveUpdate(w, req)
	case assets[path] != "" && method == http.MethodGet:
		serveAsset(w, path)
	case path == actionPath && method == http.MethodPost:
		h.serveAction(w, req)
	default:
		h.serveAPI(w, req, path)
	}
}

// serveAPI answers a route of the API.
func (h handler) serveAPI(w http.ResponseWriter, req *http.Request, path string) {
	r, ok := findRoute(req.Method, path)
	if !ok {
		answerJSON(w, noRoute(path), map[string]any{"error": "no route " + req.Method + " " + req.URL.Path, "routes": routeNames()})
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		answerJSON(w, http.StatusBadRequest, map[string]any{"error": err.Error()})
		return
	}
	answer, err := r.serve(h.sim, body)
	if err != nil {
		answerJSON(w, http.StatusBadRequest, map[string]any{"error": err.Error()})
		return
	}
	answerJSON(w, http.StatusOK, answer)
}

// noRoute is the status of a request that has no route.
func noRoute(path string) int {
	if slices.ContainsFunc(routes(), func(r route) bool { return r.path == path }) {
		return http.StatusMethodNotAllowed
	}
	return http.StatusNotFound
}

func routeNames() []string {
	names := []string{"GET " + root}
	for _, r := range routes() {
		names = append(names, r.method+" "+root+r.path)
	}
	return names
}

func answerJSON(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(answer) // a caller that has gone is told nothing
}

// get is a route that only reads.
func get(path string, read func(*ecssim.Server) any) route {
	return route{"GET", path, func(s *ecssim.Server, _ []byte) (any, error) { return read(s), nil }}
}

// change returns the route of a method that reads its body into a T.
func change[T any](method, path string, do func(*ecssim.Server, T) (any, error)) route {
	return route{method, path, func(s *ecssim.Server, body []byte) (any, error) {
		var want T
		if err := config.Decode(body, &want); err != nil {
			return nil, err
		}
		return do(s, want)
	}}
}
