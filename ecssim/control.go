package ecssim

import (
	"encoding/json"
	"html/template"
	"net/http"
	"slices"
	"strings"
)

// controlPath is where the buttons of the page send what they stand for: a
// route of the admin API and its body.
const controlPath = "control"

// control is a button of the page.
type control struct {
	Label  string
	Method string
	Route  string
	Body   string
	Place  string // the part of the page to come back to
	Off    bool   // it is in force already
}

func button(label, method, route, place string, body any) control {
	text, err := json.Marshal(body)
	if err != nil {
		panic("ecssim: a button without a body: " + err.Error()) // bodies hold strings, numbers and truth values only
	}
	return control{Label: label, Method: method, Route: route, Body: string(text), Place: place}
}

// serveControl does what a button of the page stands for, and shows the page
// again. Pages of other sites can't press it.
func (s *Server) serveControl(w http.ResponseWriter, req *http.Request) {
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
	routes := adminRoutes()
	i := slices.IndexFunc(routes, func(r adminRoute) bool { return r.path == path && r.method == method })
	if i < 0 {
		http.Error(w, "no route "+method+" "+adminRoot+path+"; there are\n"+strings.Join(routeNames(routes), "\n"), http.StatusNotFound)
		return
	}
	if _, err := routes[i].serve(s, []byte(req.PostForm.Get("body"))); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	back := adminRoot
	if place := req.PostForm.Get("place"); place != "" {
		back += "#" + template.URLQueryEscaper(place)
	}
	http.Redirect(w, req, back, http.StatusSeeOther)
}

// lossy are the actions whose next reply a button loses.
var lossy = []string{"CreateDisk", "AttachDisk", "DetachDisk", "ResizeDisk", "DeleteDisk", "DescribeDisks"}

// loseButtons lose the next reply of an action.
func loseButtons() []control {
	var list []control
	for _, action := range lossy {
		list = append(list, button(action, "POST", "faults", "faults", Fault{Action: action, Do: FaultLostReply, Count: 1}))
	}
	return list
}

// faultButtons are faults that a person may want to see at work.
func faultButtons() []control {
	return []control{
		button("30 % brown-out for a minute", "POST", "faults", "faults", map[string]any{"do": FaultBrownOut, "percent": 30, "for": "60s"}),
		button("reads 5 s behind for a minute", "POST", "faults", "faults", map[string]any{"do": FaultStale, "lag": "5s", "for": "60s"}),
		button("end temporary keys", "POST", "keys", "faults", map[string]any{"endTemporary": true}),
		button("clear all faults", "DELETE", "faults", "faults", map[string]any{}),
	}
}

// throttleButtons put a profile of limits in force.
func throttleButtons(now ThrottleState) []control {
	var list []control
	for _, name := range ThrottleProfiles {
		b := button(name, "POST", "throttle", "throttle", map[string]any{"profile": name})
		if profile, err := ThrottleProfile(name); err == nil {
			b.Off = len(profile.Limits) == len(now.Limits) && profile.Limits[""] == now.Limits[""]
		}
		list = append(list, b)
	}
	return list
}

// stockCell is the stock of a category in a zone, with the button that
// changes it.
type stockCell struct {
	StockLevel
	Offered bool
	Button  control
}

// stockRow is a category and its stock, zone by zone.
type stockRow struct {
	Category string
	Cells    []stockCell
}

// stockRows is the stock as a table: a row for each category, a column for
// each zone, the last for the region's own.
func stockRows(state State) []stockRow {
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
			cell.Button = button("restock", "POST", "stock", "stock", map[string]any{"zone": level.Zone, "category": level.Category, "units": Unlimited})
		}
		rows[i].Cells[slices.Index(columns, level.Zone)] = cell
	}
	return rows
}

// zoneButtons sell out a whole zone.
func zoneButtons(state State) [][]control {
	var list [][]control
	for _, zone := range state.Zones {
		list = append(list, []control{
			button("sell out", "POST", "zone", "stock", map[string]any{"zone": zone, "units": 0}),
			button("restock", "POST", "zone", "stock", map[string]any{"zone": zone, "units": Unlimited}),
		})
	}
	return list
}

// adminZone sets the stock of every category that a zone offers.
func (s *Server) adminZone(body []byte) (any, error) {
	var want struct {
		Zone  string `json:"zone"`
		Units *int   `json:"units"`
		Code  string `json:"code"`
	}
	if err := decodeStrict(body, &want); err != nil {
		return nil, err
	}
	switch {
	case !slices.Contains(s.config.Zones, want.Zone):
		return nil, &ConfigError{"zone", want.Zone, "one of " + quoted(s.config.Zones)}
	case want.Units == nil:
		return nil, &ConfigError{"units", "", "a number of disks: 0 is sold out, less than 0 is no limit"}
	case want.Code != "" && !slices.Contains(SoldOutCodes, want.Code):
		return nil, &ConfigError{"code", want.Code, "one of " + quoted(SoldOutCodes)}
	}
	for _, level := range s.State().Stock {
		if level.Zone != want.Zone {
			continue
		}
		if err := s.setStock(level.Zone, level.Category, *want.Units, want.Code); err != nil {
			return nil, err
		}
	}
	return s.State().Stock, nil
}

// instanceButton stops an instance, or starts it.
func instanceButton(i InstanceState) control {
	if i.Status == instanceRunning {
		return button("stop", "POST", "instances", "instances", map[string]any{"id": i.ID, "status": instanceStopped})
	}
	return button("start", "POST", "instances", "instances", map[string]any{"id": i.ID, "status": instanceRunning})
}
