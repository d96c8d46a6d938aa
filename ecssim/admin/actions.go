package admin

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/ecssim/config"
)

// actionPath is where the forms of the page send what they stand for: a route
// of the admin API and its body.
const actionPath = "action"

// action is a button of the page.
type action struct {
	Label   string
	About   string // what it is about, which its place shows to those who see it
	Done    string // what is said when it is done
	Method  string
	Route   string
	Body    string
	Section string // the part of the page to come back to
	Pressed string // of a choice: true if it is in force, false if not
	Key     string // the same whatever the state, so that the button keeps the focus
}

func button(label, about, done, route, section string, body any) action {
	text, err := json.Marshal(body)
	if err != nil {
		panic("admin: a button without a body: " + err.Error()) // bodies hold strings, numbers and truth values only
	}
	return action{
		Label: label, About: about, Done: done, Method: http.MethodPost, Route: route, Body: string(text), Section: section,
		Key: section + " " + label + " " + about,
	}
}

// keyed gives a button whose label changes a key that does not.
func (a action) keyed() action {
	a.Key = a.Section + " " + a.About
	return a
}

// choice is a button that is pressed if it is in force.
func (a action) choice(inForce bool) action {
	a.Pressed = strconv.FormatBool(inForce)
	return a
}

// serveAction does what a form of the page stands for. It answers as the route
// does to whoever accepts JSON, else with the page.
func (h handler) serveAction(w http.ResponseWriter, req *http.Request) {
	req.Body = http.MaxBytesReader(w, req.Body, maxBody)
	asJSON := strings.Contains(req.Header.Get("Accept"), "application/json")
	answer, status, err := h.act(req)
	switch {
	case err != nil && asJSON:
		answerJSON(w, status, map[string]any{"error": err.Error()})
	case err != nil:
		h.showPage(w, status, filter{}, err.Error())
	case asJSON:
		answerJSON(w, status, answer)
	default:
		http.Redirect(w, req, root+"?done#"+url.PathEscape(req.PostForm.Get("section")), http.StatusSeeOther)
	}
}

// act calls the route that a form names.
func (h handler) act(req *http.Request) (any, int, error) {
	if err := req.ParseForm(); err != nil {
		return nil, http.StatusBadRequest, err
	}
	method, path := req.PostForm.Get("method"), req.PostForm.Get("route")
	r, ok := findRoute(method, path)
	if !ok {
		return nil, http.StatusNotFound, config.Invalid("route", method+" "+root+path, config.OneOf(routeNames()))
	}
	body, err := actionBody(req.PostForm)
	if err != nil {
		return nil, http.StatusBadRequest, err
	}
	answer, err := r.serve(h.sim, body)
	if err != nil {
		return nil, http.StatusBadRequest, err
	}
	return answer, http.StatusOK, nil
}

// actionBody is the body of a form: its field body, with the fields text.NAME
// and number.NAME that are not empty.
func actionBody(form url.Values) ([]byte, error) {
	body := map[string]any{}
	if err := json.Unmarshal([]byte(form.Get("body")), &body); err != nil {
		return nil, config.Invalid("body", form.Get("body"), "a JSON object")
	}
	for name := range form {
		value := strings.TrimSpace(form.Get(name))
		kind, field, _ := strings.Cut(name, ".")
		switch {
		case value == "":
		case kind == "text":
			body[field] = value
		case kind == "number":
			n, err := strconv.Atoi(value)
			if err != nil {
				return nil, config.Invalid(field, value, "a whole number")
			}
			body[field] = n
		}
	}
	return json.Marshal(body)
}

// powerButton stops an instance, or starts it.
func powerButton(i ecssim.InstanceState) action {
	label, done, status := "Start", i.ID+" runs.", "Running"
	if i.Status == "Running" {
		label, done, status = "Stop", i.ID+" is stopped.", "Stopped"
	}
	return button(label, i.ID, done, "instances", "instances", map[string]any{"id": i.ID, "status": status}).keyed()
}

func unstickButton() action {
	return button("Complete them", "", "What was kept back is done.", "unstick", "changes", map[string]any{"disk": ""})
}

// zoneButtons sell out a whole zone, or end that.
func zoneButtons(zone string) []action {
	return []action{
		button("Sell out", zone, zone+" is sold out.", "zone", "zones", map[string]any{"zone": zone, "units": 0}),
		button("Restock", zone, zone+" has stock again.", "zone", "zones", map[string]any{"zone": zone, "units": ecssim.Unlimited}),
	}
}

// stockButton sells out a category in a zone, or ends that.
func stockButton(level ecssim.StockLevel) action {
	about := level.Category
	if level.Zone != "" {
		about += " in " + level.Zone
	}
	label, done, units := "Sell out", about+" is sold out.", 0
	if level.Units == 0 {
		label, done, units = "Restock", about+" is in stock again.", ecssim.Unlimited
	}
	return button(label, about, done, "stock", "zones", map[string]any{"zone": level.Zone, "category": level.Category, "units": units}).keyed()
}

// lossy are the actions whose next reply a button loses.
var lossy = []string{"CreateDisk", "AttachDisk", "DetachDisk", "ResizeDisk", "DeleteDisk", "DescribeDisks"}

// loseButtons lose the next reply of an action.
func loseButtons() []action {
	var list []action
	for _, name := range lossy {
		list = append(list, button(name, "loses its next reply", "The next reply to "+name+" will be lost.", "faults", "faults",
			ecssim.Fault{Action: name, Do: ecssim.FaultLostReply, Count: 1}))
	}
	return list
}

// faultButtons are faults that a person may want to see at work.
func faultButtons() []action {
	clearAll := button("Clear all faults", "", "No fault is in force.", "faults", "faults", map[string]any{})
	clearAll.Method = http.MethodDelete
	return []action{
		button("Refuse 30 % of calls for a minute", "", "30 % of calls are refused for a minute.", "faults", "faults",
			map[string]any{"do": ecssim.FaultBrownOut, "percent": 30, "for": "60s"}),
		button("Reads 5 s behind for a minute", "", "Reads are 5 s behind for a minute.", "faults", "faults",
			map[string]any{"do": ecssim.FaultStale, "lag": "5s", "for": "60s"}),
		button("End temporary keys", "", "All temporary keys have ended.", "keys", "faults", map[string]any{"endTemporary": true}),
		clearAll,
	}
}

// throttleButtons put a profile of limits in force.
func throttleButtons(now ecssim.ThrottleState) []action {
	var list []action
	for _, name := range ecssim.ThrottleProfiles {
		b := button(name, "limits", "Limits of calls: "+name+".", "throttle", "throttle", map[string]any{"profile": name})
		profile, err := ecssim.ThrottleProfile(name)
		list = append(list, b.choice(err == nil && maps.Equal(profile.Limits, now.Limits)))
	}
	return list
}

// latencyButtons put a profile of latencies in force.
func latencyButtons(now string) []action {
	var list []action
	for _, name := range ecssim.Profiles {
		list = append(list, button(name, "latency", "Latency: "+name+".", "latency", "clock", map[string]any{"profile": name}).choice(name == now))
	}
	return list
}

// queueButtons put a profile of queues in force.
func queueButtons(now ecssim.Queues) []action {
	var list []action
	for _, name := range ecssim.QueueProfiles {
		q, err := ecssim.QueueProfile(name)
		list = append(list, button(name, "queues", "Attaches and detaches: "+name+".", "queues", "clock", q).choice(err == nil && q == now))
	}
	return list
}
