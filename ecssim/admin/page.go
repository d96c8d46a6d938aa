package admin

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

//go:embed page
var files embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"stamp": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"clock": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
	"age":   ageOf,
	"took":  func(d time.Duration) string { return d.Round(time.Millisecond).String() },
}).ParseFS(files, "page/*.html"))

// shownRows is how many rows of each list the page shows.
const shownRows = 25

// pageHeaders keep scripts and styles of anybody else out of the page, and the
// page out of frames.
var pageHeaders = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	"X-Content-Type-Options": "nosniff",
	"Referrer-Policy":        "same-origin",
	"Cache-Control":          "no-store",
}

// assets are the files that the page loads, by the end of their path.
var assets = map[string]string{"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8"}

// updatePath is where the page asks for what has changed.
const updatePath = "update"

// section is a part of the page that has a heading.
type section struct{ ID, Title string }

// sections are in the order of the page.
var sections = []section{
	{"instances", "Instances"}, {"changes", "Changes under way"}, {"disks", "Disks"}, {"snapshots", "Snapshots and tasks"},
	{"zones", "Zones and stock"}, {"calls", "Calls"}, {"counts", "Counts by action and code"}, {"throttle", "Throttling"},
	{"faults", "Faults"}, {"clock", "Clock and latency"},
}

// pageView is what the page shows.
type pageView struct {
	parts
	Sections   []section
	Filter     filter
	Advance    action
	AddFault   action
	Actions    []string
	FaultKinds []string
	Routes     []string
	Notice     string // what came of the action that led here
}

// servePage shows the state to a person.
func (h handler) servePage(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		answerJSON(w, http.StatusMethodNotAllowed, map[string]any{"error": "GET shows the page", "routes": routeNames()})
		return
	}
	notice := ""
	if req.URL.Query().Has("done") {
		notice = "The change was made."
	}
	h.showPage(w, http.StatusOK, readFilter(req.URL.Query()), notice)
}

// showPage answers with the page.
func (h handler) showPage(w http.ResponseWriter, status int, f filter, notice string) {
	view := pageView{
		parts: newParts(h.sim.Overview(f.query())), Sections: sections, Filter: f, Notice: notice, Routes: routeNames(),
		Advance:  action{Method: http.MethodPost, Route: "clock", Body: "{}", Section: "clock"},
		AddFault: action{Method: http.MethodPost, Route: "faults", Body: "{}", Section: "faults"},
		Actions:  ecssim.ActionNames(), FaultKinds: ecssim.FaultKinds,
	}
	var page bytes.Buffer
	if err := templates.ExecuteTemplate(&page, "page.html", view); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	for name, value := range pageHeaders {
		w.Header().Set(name, value)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(page.Bytes()) // a caller that has gone is told nothing
}

// serveAsset answers with a file of the page.
func serveAsset(w http.ResponseWriter, name string) {
	text, err := files.ReadFile("page/" + name)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", assets[name])
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(text) // a caller that has gone is told nothing
}

// update is what has changed of the page.
type update struct {
	Now   time.Time              `json:"now"`
	Parts map[string]changedPart `json:"parts"`
}

// changedPart is a part of the page that has changed.
type changedPart struct {
	Version string `json:"version"`
	HTML    string `json:"html"`
}

// serveUpdate answers with the parts of the page that are not of the versions
// that the query names in have: part.version, separated by commas.
func (h handler) serveUpdate(w http.ResponseWriter, req *http.Request) {
	query := req.URL.Query()
	have := strings.Split(query.Get("have"), ",")
	p := newParts(h.sim.Overview(readFilter(query).query()))
	changed := map[string]changedPart{}
	for name := range p.data {
		version, err := p.Version(name)
		if err == nil && slices.Contains(have, name+"."+version) {
			continue
		}
		html, failed := p.Part(name)
		if err := errors.Join(err, failed); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		changed[name] = changedPart{version, string(html)}
	}
	w.Header().Set("Cache-Control", "no-store")
	answerJSON(w, http.StatusOK, update{p.Now, changed})
}

// parts are the parts of the page that change.
type parts struct {
	Now    time.Time
	Region string
	data   map[string]any // by name of their template
}

func newParts(o ecssim.Overview) parts {
	return parts{Now: o.Now, Region: o.Region, data: map[string]any{
		"summary": summaryOf(o), "instances": instancesOf(o), "changes": changesOf(o), "disks": disksOf(o), "snapshots": snapshotsOf(o),
		"zones": zonesOf(o), "calls": callsOf(o), "counts": countsOf(o), "throttle": throttleOf(o), "faults": faultsOf(o), "clock": clockOf(o),
	}}
}

// partView is what the template of a part gets.
type partView struct {
	Now  time.Time
	Data any
}

// Part renders a part.
func (p parts) Part(name string) (template.HTML, error) {
	var text strings.Builder
	err := templates.ExecuteTemplate(&text, name, partView{p.Now, p.data[name]})
	return template.HTML(text.String()), err // the template has escaped what it shows
}

// Version is the same for parts that look the same but for ages.
func (p parts) Version(name string) (string, error) {
	text, err := json.Marshal(p.data[name])
	if err != nil {
		return "", err
	}
	sum := fnv.New64a()
	_, _ = sum.Write(text) // never fails
	return fmt.Sprintf("%x", sum.Sum64()), nil
}

// age is a time and how long ago that is.
type age struct {
	At   time.Time
	Text string
}

func ageOf(now, at time.Time) age {
	d := now.Sub(at)
	text := fmt.Sprintf("%d s", max(0, int(d.Seconds())))
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{time.Minute, "min"}, {time.Hour, "h"}, {24 * time.Hour, "d"}} {
		if d >= unit.length {
			text = fmt.Sprintf("%d %s", d/unit.length, unit.name)
		}
	}
	return age{at, text}
}

// filter is what a person wants to see of the lists.
type filter struct {
	Find               string // of disks
	Action, Code, Disk string // of calls
}

func readFilter(query url.Values) filter {
	return filter{query.Get("find"), query.Get("action"), query.Get("code"), query.Get("disk")}
}

func (f filter) query() ecssim.OverviewQuery {
	return ecssim.OverviewQuery{
		Rows: shownRows, Disk: strings.TrimSpace(f.Find),
		Calls: ecssim.CallFilter{Action: strings.TrimSpace(f.Action), Code: strings.TrimSpace(f.Code), Disk: strings.TrimSpace(f.Disk)},
	}
}

// field is a field of a filter.
type field struct{ Name, Value string }

// Others returns the fields that are set but for the named ones, so that one
// form of the page keeps what another has set.
func (f filter) Others(names ...string) []field {
	all := []field{{"find", f.Find}, {"action", f.Action}, {"code", f.Code}, {"disk", f.Disk}}
	return slices.DeleteFunc(all, func(x field) bool { return x.Value == "" || slices.Contains(names, x.Name) })
}
