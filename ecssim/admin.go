package ecssim

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// adminRoot is where the simulator's own API is.
const adminRoot = "/_sim/"

// adminRoute is one route of the admin API.
type adminRoute struct {
	method, path string
	serve        func(*Server, []byte) (any, error) // the body in, what to answer out
}

// adminRoutes are all routes but the page for people, which is at the root.
// What they take is a JSON object without unknown fields:
//
//	stock:  zone ("" for regional categories), category, units (0 is sold out,
//	        less than 0 no limit), code (optional, one of SoldOutCodes)
//	zone:   zone, units, code: the same for every category that it offers
//	faults: a Fault; its durations are strings such as "1.5s"
//	clock:  advance, a duration such as "60s"
//	instances: id, and to change one status or locked, or to add one zone and
//	        type; with DELETE id alone
//	queues: attach, detach, as in Queues; both 0 is one at a time
//	unstick: disk, "" for all
//	locks:  disk and the reasons for which it is locked; none unlocks it
//	latency: profile to begin with (else what is), api (durations by action),
//	        spans (durations by field of Latency), spread
//	doubts: the fields of Doubts; those that are left out are as by default
//	quotas: disks, gib and zoneGib by category, as in Quotas; 0 is no limit
//	volume: disk; the answer is how many calls named it alone, by action
//	denials: who, action, empty as in Denial
//	policies: who and policy, a RAM policy as RAM itself takes it; none lifts it
//	keys:   id and secret (an empty one takes the key away), or endTemporary
//	throttle: profile, or limits (calls a minute by action, "" for the others);
//	        code, phase, bucket, stickyMinute as in Throttle
func adminRoutes() []adminRoute {
	return []adminRoute{
		{"GET", "state", func(s *Server, _ []byte) (any, error) { return s.State(), nil }},
		{"GET", "calls", func(s *Server, _ []byte) (any, error) { return s.Calls(), nil }},
		{"GET", "stock", func(s *Server, _ []byte) (any, error) { return s.State().Stock, nil }},
		{"POST", "stock", (*Server).adminStock},
		{"POST", "zone", (*Server).adminZone},
		{"GET", "faults", func(s *Server, _ []byte) (any, error) { return s.Faults(), nil }},
		{"POST", "faults", (*Server).adminFault},
		{"DELETE", "faults", func(s *Server, _ []byte) (any, error) { s.ClearFaults(); return s.Faults(), nil }},
		{"POST", "clock", (*Server).adminClock},
		{"POST", "instances", (*Server).adminInstance},
		{"DELETE", "instances", (*Server).adminRemoveInstance},
		{"POST", "queues", (*Server).adminQueues},
		{"GET", "devices", func(s *Server, _ []byte) (any, error) { return s.allDevices(), nil }},
		{"POST", "unstick", (*Server).adminUnstick},
		{"POST", "locks", (*Server).adminLock},
		{"GET", "latency", func(s *Server, _ []byte) (any, error) { return s.State().Latency, nil }},
		{"POST", "latency", (*Server).adminLatency},
		{"POST", "doubts", (*Server).adminDoubts},
		{"GET", "denials", func(s *Server, _ []byte) (any, error) { return s.Denials(), nil }},
		{"POST", "denials", (*Server).adminDenial},
		{"DELETE", "denials", func(s *Server, _ []byte) (any, error) { s.ClearDenials(); return s.Denials(), nil }},
		{"POST", "policies", (*Server).adminPolicy},
		{"GET", "keys", func(s *Server, _ []byte) (any, error) { return s.KeyIDs(), nil }},
		{"POST", "keys", (*Server).adminKeys},
		{"POST", "quotas", (*Server).adminQuotas},
		{"GET", "stats", func(s *Server, _ []byte) (any, error) { return s.Stats(), nil }},
		{"DELETE", "stats", func(s *Server, _ []byte) (any, error) { s.ResetStats(); return s.Stats(), nil }},
		{"POST", "volume", (*Server).adminVolume},
		{"GET", "throttle", func(s *Server, _ []byte) (any, error) { return s.State().Throttle, nil }},
		{"POST", "throttle", (*Server).adminThrottle},
		{"DELETE", "throttle", func(s *Server, _ []byte) (any, error) { return s.adminThrottle([]byte(`{"profile":"off"}`)) }},
	}
}

// serveAdmin answers the admin API: JSON in, JSON out, errors with status 400
// and {"error": ...}.
func (s *Server) serveAdmin(w http.ResponseWriter, req *http.Request) {
	path := strings.TrimSuffix(strings.TrimPrefix(req.URL.Path, adminRoot), "/")
	if path == "" || req.URL.Path+"/" == adminRoot {
		s.servePage(w, req)
		return
	}
	if path == controlPath && req.Method == http.MethodPost {
		s.serveControl(w, req)
		return
	}
	routes := adminRoutes()
	i := slices.IndexFunc(routes, func(r adminRoute) bool { return r.path == path && r.method == req.Method })
	if i < 0 {
		answerJSON(w, noRoute(routes, path), map[string]any{"error": "no route " + req.Method + " " + req.URL.Path, "routes": routeNames(routes)})
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		answerJSON(w, http.StatusBadRequest, map[string]any{"error": err.Error()})
		return
	}
	answer, err := routes[i].serve(s, body)
	if err != nil {
		answerJSON(w, http.StatusBadRequest, map[string]any{"error": err.Error()})
		return
	}
	answerJSON(w, http.StatusOK, answer)
}

// noRoute is the status of a request that has no route.
func noRoute(routes []adminRoute, path string) int {
	if slices.ContainsFunc(routes, func(r adminRoute) bool { return r.path == path }) {
		return http.StatusMethodNotAllowed
	}
	return http.StatusNotFound
}

func routeNames(routes []adminRoute) []string {
	names := []string{"GET " + adminRoot}
	for _, r := range routes {
		names = append(names, r.method+" "+adminRoot+r.path)
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

func (s *Server) adminStock(body []byte) (any, error) {
	var want struct {
		Zone     *string `json:"zone"`
		Category *string `json:"category"`
		Units    *int    `json:"units"`
		Code     string  `json:"code"`
	}
	if err := decodeStrict(body, &want); err != nil {
		return nil, err
	}
	switch {
	case want.Zone == nil:
		return nil, &ConfigError{"zone", "", `one of ` + quoted(s.config.Zones) + `, or "" for regional categories`}
	case want.Category == nil:
		return nil, &ConfigError{"category", "", "one of " + quoted(categoryNames(*want.Zone == ""))}
	case want.Units == nil:
		return nil, &ConfigError{"units", "", "a number of disks: 0 is sold out, less than 0 is no limit"}
	case want.Code != "" && !slices.Contains(SoldOutCodes, want.Code):
		return nil, &ConfigError{"code", want.Code, "one of " + quoted(SoldOutCodes)}
	}
	if err := s.setStock(*want.Zone, *want.Category, *want.Units, want.Code); err != nil {
		return nil, err
	}
	return s.State().Stock, nil
}

func (s *Server) adminFault(body []byte) (any, error) {
	var f Fault
	if err := f.UnmarshalJSON(body); err != nil {
		return nil, err
	}
	return s.addFault(f)
}

func (s *Server) adminClock(body []byte) (any, error) {
	var want struct {
		Advance string `json:"advance"`
	}
	if err := decodeStrict(body, &want); err != nil {
		return nil, err
	}
	d, err := readSpan("advance", want.Advance)
	if err != nil {
		return nil, err
	}
	if d == 0 {
		return nil, &ConfigError{"advance", want.Advance, `a duration above zero, such as "60s"`}
	}
	return map[string]any{"now": s.Now().Add(d)}, s.Advance(d)
}

// State is all there is to see at one moment.
type State struct {
	Now           time.Time                 `json:"now"`
	Region        string                    `json:"region"`
	Zones         []string                  `json:"zones"`
	Instances     []InstanceState           `json:"instances"`
	Disks         []DiskState               `json:"disks"`
	Snapshots     []SnapshotState           `json:"snapshots"`
	Tasks         []TaskState               `json:"tasks"`     // all since the start
	DisksMade     int                       `json:"disksMade"` // since the start
	DisksDeleted  int                       `json:"disksDeleted"`
	Queues        Queues                    `json:"queues"`
	Latency       LatencyForm               `json:"latency"`
	Doubts        Doubts                    `json:"doubts"`
	Stuck         int                       `json:"stuck"` // transitions that FaultStuck keeps back
	Stock         []StockLevel              `json:"stock"`
	Throttle      ThrottleState             `json:"throttle"`
	Quotas        Quotas                    `json:"quotas"`
	Denials       []Denial                  `json:"denials"`
	Faults        []Fault                   `json:"faults"`
	Calls         map[string]map[string]int `json:"calls"`         // counts by action and code, "" for success
	UnknownParams map[string]int            `json:"unknownParams"` // counts by action and name, numbers replaced by N
	Broken        string                    `json:"broken"`        // what Check finds wrong, empty for nothing
}

// State returns all there is to see.
func (s *Server) State() State {
	var st State
	s.look(func(now time.Time) {
		st = State{
			Now: now, Region: s.config.Region, Zones: slices.Clone(s.config.Zones),
			Instances: s.instanceStates(), Disks: s.diskStates(),
			Snapshots: s.snapshotStates(now), Tasks: s.taskStates(),
			Queues: s.config.Queues, Latency: s.config.Latency.form(), Doubts: s.config.Doubts, Stuck: len(s.stuck),
			DisksMade: s.disks.made, DisksDeleted: s.disks.deleted,
			Stock: s.levels(), Throttle: s.gates.state(now), Quotas: s.config.Quotas, Denials: append([]Denial{}, s.denials...), Faults: s.faults.list(), Calls: s.ledger.copyCounts(), UnknownParams: s.ledger.copyUnknown(),
		}
		if err := s.broken(); err != nil {
			st.Broken = err.Error()
		}
	})
	return st
}
