package admin

import (
	"encoding/json"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/topodisk/topodisk/ecssim"
)

// actionPath is where the buttons of the page send what they stand for: a
// route of the admin API and its body.
const actionPath = "control"

// action is a button of the page.
type action struct {
	Label   string
	Method  string
	Route   string
	Body    string
	Section string // the part of the page to come back to
	Off     bool   // it is in force already
}

func button(label, method, route, section string, body any) action {
	text, err := json.Marshal(body)
	if err != nil {
		panic("admin: a button without a body: " + err.Error()) // bodies hold strings, numbers and truth values only
	}
	return action{Label: label, Method: method, Route: route, Body: string(text), Section: section}
}

// serveAction does what a button of the page stands for, and shows the page
// again. Pages of other sites can't press it.
func (h handler) serveAction(w http.ResponseWriter, req *http.Request) {
	if site := req.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		http.Error(w, "Only the simulator's own page has these buttons.", http.StatusForbidden)
		return
	}
	req.Body = http.MaxBytesReader(w, req.Body, maxBody)
	if err := req.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	method, path := req.PostForm.Get("method"), req.PostForm.Get("route")
	r, ok := findRoute(method, path)
	if !ok {
		http.Error(w, "no route "+method+" "+root+path+"; there are\n"+strings.Join(routeNames(), "\n"), http.StatusNotFound)
		return
	}
	if _, err := r.serve(h.sim, []byte(req.PostForm.Get("body"))); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	back := root
	if section := req.PostForm.Get("place"); section != "" {
		back += "#" + template.URLQueryEscaper(section)
	}
	http.Redirect(w, req, back, http.StatusSeeOther)
}

// lossy are the actions whose next reply a button loses.
var lossy = []string{"CreateDisk", "AttachDisk", "DetachDisk", "ResizeDisk", "DeleteDisk", "DescribeDisks"}

// loseButtons lose the next reply of an action.
func loseButtons() []action {
	var list []action
	for _, name := range lossy {
		list = append(list, button(name, "POST", "faults", "faults", ecssim.Fault{Action: name, Do: ecssim.FaultLostReply, Count: 1}))
	}
	return list
}

// faultButtons are faults that a person may want to see at work.
func faultButtons() []action {
	return []action{
		button("30 % brown-out for a minute", "POST", "faults", "faults", map[string]any{"do": ecssim.FaultBrownOut, "percent": 30, "for": "60s"}),
		button("reads 5 s behind for a minute", "POST", "faults", "faults", map[string]any{"do": ecssim.FaultStale, "lag": "5s", "for": "60s"}),
		button("end temporary keys", "POST", "keys", "faults", map[string]any{"endTemporary": true}),
		button("clear all faults", "DELETE", "faults", "faults", map[string]any{}),
	}
}

// throttleButtons put a profile of limits in force.
func throttleButtons(now ecssim.ThrottleState) []action {
	var list []action
	for _, name := range ecssim.ThrottleProfiles {
		b := button(name, "POST", "throttle", "throttle", map[string]any{"profile": name})
		if profile, err := ecssim.ThrottleProfile(name); err == nil {
			b.Off = len(profile.Limits) == len(now.Limits) && profile.Limits[""] == now.Limits[""]
		}
		list = append(list, b)
	}
	return list
}

// stockCell is the stock of a category in a zone, with the button that
// changes it.
type stockCell struct {
	ecssim.StockLevel
	Offered bool
	Button  action
}

// stockRow is a category and its stock, zone by zone.
type stockRow struct {
	Category string
	Cells    []stockCell
}

// stockRows is the stock as a table: a row for each category, a column for
// each zone, the last for the region's own.
func stockRows(state ecssim.State) []stockRow {
	var rows []stockRow
	columns := append(slices.Clone(state.Zones), "")
	for _, level := range state.Stock {
		i := slices.IndexFunc(rows, func(r stockRow) bool { return r.Category == level.Category })
		if i < 0 {
			i = len(rows)
			rows = append(rows, stockRow{level.Category, make([]stockCell, len(columns))})
		}
		cell := stockCell{StockLevel: level, Offered: true}
		cell.Button = button("sell out", "POST", "stock", "stock", map[string]any{"zone": level.Zone, "category": level.Category, "units": 0})
		if level.Units == 0 {
			cell.Button = button("restock", "POST", "stock", "stock", map[string]any{"zone": level.Zone, "category": level.Category, "units": ecssim.Unlimited})
		}
		rows[i].Cells[slices.Index(columns, level.Zone)] = cell
	}
	return rows
}

// zoneButtons sell out a whole zone.
func zoneButtons(state ecssim.State) [][]action {
	var list [][]action
	for _, zone := range state.Zones {
		list = append(list, []action{
			button("sell out", "POST", "zone", "stock", map[string]any{"zone": zone, "units": 0}),
			button("restock", "POST", "zone", "stock", map[string]any{"zone": zone, "units": ecssim.Unlimited}),
		})
	}
	return list
}

// instanceButton stops an instance, or starts it.
func instanceButton(i ecssim.InstanceState) action {
	if i.Status == "Running" {
		return button("stop", "POST", "instances", "instances", map[string]any{"id": i.ID, "status": "Stopped"})
	}
	return button("start", "POST", "instances", "instances", map[string]any{"id": i.ID, "status": "Running"})
}
