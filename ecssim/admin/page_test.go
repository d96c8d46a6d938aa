package admin_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/ecssim/admin"
)

// element is an element of the page, with its attributes and all text in it.
type element struct {
	name     string
	attr     map[string]string
	text     string
	children []*element
}

// parse reads HTML whose elements are all closed, as the page's are, but for
// those that have no content.
func parse(t *testing.T, text string) *element {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(strings.TrimPrefix(text, "<!DOCTYPE html>")))
	d.Strict, d.AutoClose, d.Entity = false, []string{"meta", "link", "input", "br"}, xml.HTMLEntity
	open := []*element{{name: "page"}}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) && len(open) == 1 {
			return open[0]
		}
		if err != nil {
			t.Fatalf("not well formed: %v", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := &element{name: token.Name.Local, attr: map[string]string{}}
			for _, a := range token.Attr {
				e.attr[a.Name.Local] = a.Value
			}
			parent := open[len(open)-1]
			parent.children = append(parent.children, e)
			open = append(open, e)
		case xml.EndElement:
			if open[len(open)-1].name != token.Name.Local {
				t.Fatalf("</%s> ends <%s>", token.Name.Local, open[len(open)-1].name)
			}
			open = open[:len(open)-1]
		case xml.CharData:
			for _, e := range open {
				e.text += string(token)
			}
		}
	}
}

// all returns the elements of a name below e, in their order.
func (e *element) all(names ...string) []*element {
	var list []*element
	for _, c := range e.children {
		if slices.Contains(names, c.name) {
			list = append(list, c)
		}
		list = append(list, c.all(names...)...)
	}
	return list
}

// label is what a screen reader calls a button.
func (e *element) label() string { return strings.Join(strings.Fields(e.text), " ") }

// page returns the page.
func page(t *testing.T, s *ecssim.Server, query string) string {
	t.Helper()
	code, text := call(t, s, "GET", "/_sim/"+query, "")
	if code != http.StatusOK {
		t.Fatalf("the page: %d %s", code, text)
	}
	return text
}

// press presses the button with a label.
func press(t *testing.T, s *ecssim.Server, label string) {
	t.Helper()
	for _, form := range parse(t, page(t, s, "")).all("form") {
		buttons := form.all("button")
		if len(buttons) != 1 || buttons[0].label() != label {
			continue
		}
		fields := url.Values{}
		for _, input := range form.all("input") {
			fields.Set(input.attr["name"], input.attr["value"])
		}
		if form.attr["data-done"] == "" {
			t.Errorf("nothing is said when %q is done", label)
		}
		w := submit(s, fields, http.Header{"Sec-Fetch-Site": {"same-origin"}})
		if want := "/_sim/?done#" + fields.Get("section"); w.Code != http.StatusSeeOther || w.Header().Get("Location") != want {
			t.Fatalf("button %q: %d to %q, want 303 to %q: %s", label, w.Code, w.Header().Get("Location"), want, w.Body)
		}
		return
	}
	t.Fatalf("the page has no button %q", label)
}

func submit(s *ecssim.Server, form url.Values, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/_sim/action", strings.NewReader(form.Encode()))
	r.Header = header.Clone()
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	admin.Handler(s).ServeHTTP(w, r)
	return w
}

func TestButtonsDoWhatTheySay(t *testing.T) {
	s := newServer(t, nil)

	press(t, s, "Sell out "+zoneH)
	refused(t, s, "CreateDisk", essd(zoneH), "InvalidDataDiskCategory.NotSupported")
	for _, level := range s.Stock() {
		if (level.Units == 0) != (level.Zone == zoneH) {
			t.Errorf("stock %+v", level)
		}
	}
	press(t, s, "Restock cloud_ssd in "+zoneH)
	press(t, s, "Restock "+zoneH)
	createDisk(t, s, zoneH)

	press(t, s, "CreateDisk loses its next reply")
	refused(t, s, "CreateDisk", essd(zoneH), "EOF")
	if n := len(s.Disks()); n != 2 {
		t.Errorf("after a lost reply there are %d disks, want 2", n)
	}
	press(t, s, "Refuse 30 % of calls for a minute")
	if f := s.Faults(); len(f) != 2 || f[1].Percent != 30 {
		t.Errorf("faults %+v", f)
	}
	press(t, s, "Clear all faults")
	if f := s.Faults(); len(f) != 0 {
		t.Errorf("faults %+v", f)
	}

	press(t, s, "tight limits")
	if n := s.Throttle().Limits[""]; n != 60 {
		t.Errorf("limit %d, want 60", n)
	}
	press(t, s, "awful latency")
	press(t, s, "parallel queues")
	if o := s.Overview(ecssim.OverviewQuery{}); o.LatencyProfile != "awful" || o.Queues != ecssim.Parallel {
		t.Errorf("latency %q, queues %+v", o.LatencyProfile, o.Queues)
	}
	pressed := map[string]string{}
	for _, b := range parse(t, page(t, s, "")).all("button") {
		pressed[b.label()] = b.attr["aria-pressed"]
	}
	for label, want := range map[string]string{"tight limits": "true", "off limits": "false", "awful latency": "true", "zero latency": "false", "parallel queues": "true", "Stop i-1": ""} {
		if pressed[label] != want {
			t.Errorf("aria-pressed of %q is %q, want %q", label, pressed[label], want)
		}
	}

	press(t, s, "Stop i-1")
	if status := s.Instances()[0].Status; status != "Stopped" {
		t.Errorf("the instance is %s", status)
	}
	press(t, s, "Start i-1")
	press(t, s, "End temporary keys")
}

func TestFormsWithFieldsBecomeTheBody(t *testing.T) {
	s := newServer(t, nil)
	browser := http.Header{"Accept": {"application/json"}, "Origin": {"http://example.com"}}
	before := s.Now()
	w := submit(s, url.Values{"method": {"POST"}, "route": {"clock"}, "body": {"{}"}, "text.advance": {" 5m "}}, browser)
	if w.Code != http.StatusOK || s.Now().Sub(before) < 5*time.Minute {
		t.Errorf("clock: %d %s, %v later", w.Code, w.Body, s.Now().Sub(before))
	}
	w = submit(s, url.Values{"method": {"POST"}, "route": {"faults"}, "body": {"{}"}, "text.action": {""}, "text.do": {"delay"}, "number.count": {"3"}, "text.delayAfter": {"2s"}}, browser)
	if f := s.Faults(); w.Code != http.StatusOK || len(f) != 1 || f[0].Count != 3 || f[0].DelayAfter != 2*time.Second || f[0].Action != "" {
		t.Errorf("fault: %d %s, %+v", w.Code, w.Body, f)
	}
	for name, value := range map[string]string{"number.count": "many", "text.delayAfter": "2"} {
		w = submit(s, url.Values{"method": {"POST"}, "route": {"faults"}, "body": {"{}"}, "text.do": {"delay"}, name: {value}}, browser)
		_, field, _ := strings.Cut(name, ".")
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), field) || !strings.Contains(w.Body.String(), value) {
			t.Errorf("%s %q: %d %s", name, value, w.Code, w.Body)
		}
	}
}

func TestActionsAreRefused(t *testing.T) {
	for _, tt := range []struct {
		name, header, value string
		form                url.Values
		want                int
		mentions            string
	}{
		{"from another site", "Sec-Fetch-Site", "cross-site", url.Values{"method": {"DELETE"}, "route": {"faults"}, "body": {"{}"}}, 403, "another site"},
		{"from a sister site", "Sec-Fetch-Site", "same-site", url.Values{"method": {"DELETE"}, "route": {"faults"}, "body": {"{}"}}, 403, "another site"},
		{"from another origin", "Origin", "http://elsewhere.example", url.Values{"method": {"DELETE"}, "route": {"faults"}, "body": {"{}"}}, 403, "another site"},
		{"from no origin", "Origin", "null", url.Values{"method": {"DELETE"}, "route": {"faults"}, "body": {"{}"}}, 403, "another site"},
		{"an unknown route", "Sec-Fetch-Site", "same-origin", url.Values{"method": {"POST"}, "route": {"nothing"}, "body": {"{}"}}, 404, "POST /_sim/stock"},
		{"a wrong body", "Sec-Fetch-Site", "same-origin", url.Values{"method": {"POST"}, "route": {"stock"}, "body": {`{"zone":"x"}`}}, 400, "category"},
		{"no body", "Sec-Fetch-Site", "same-origin", url.Values{"method": {"DELETE"}, "route": {"faults"}}, 400, "JSON object"},
		{"a zone that is not there", "Sec-Fetch-Site", "same-origin", url.Values{"method": {"POST"}, "route": {"zone"}, "body": {`{"zone":"x","units":0}`}}, 400, zoneH},
		{"a zone without units", "Sec-Fetch-Site", "same-origin", url.Values{"method": {"POST"}, "route": {"zone"}, "body": {`{"zone":"cn-hangzhou-h"}`}}, 400, "0 is sold out"},
		{"no form", "Sec-Fetch-Site", "none", url.Values{}, 404, "route"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t, nil)
			if err := s.AddFault(ecssim.Fault{Do: ecssim.FaultThrottle}); err != nil {
				t.Fatal(err)
			}
			for _, accept := range []string{"text/html", "application/json"} {
				w := submit(s, tt.form, http.Header{tt.header: {tt.value}, "Accept": {accept}})
				if w.Code != tt.want || len(s.Faults()) != 1 || !strings.Contains(html.UnescapeString(w.Body.String()), tt.mentions) {
					t.Errorf("%s: got %d with %d faults left, want %d and mention of %q: %s", accept, w.Code, len(s.Faults()), tt.want, tt.mentions, w.Body)
				}
			}
		})
	}
}

func TestOtherSitesChangeNothing(t *testing.T) {
	s := newServer(t, nil)
	for _, tt := range []struct{ method, path, body string }{
		{"POST", "/_sim/faults", `{"do":"throttle"}`}, {"POST", "/_sim/clock", `{"advance":"1h"}`}, {"DELETE", "/_sim/instances", `{"id":"i-1"}`},
	} {
		for _, site := range []string{"cross-site", "same-origin"} {
			r := httptest.NewRequest(tt.method, tt.path, strings.NewReader(tt.body))
			r.Header.Set("Content-Type", "text/plain") // as a form of another site may send without asking first
			r.Header.Set("Sec-Fetch-Site", site)
			w := httptest.NewRecorder()
			admin.Handler(s).ServeHTTP(w, r)
			if want := map[string]int{"cross-site": 403, "same-origin": 200}[site]; w.Code != want {
				t.Errorf("%s %s from %s: %d %s, want %d", tt.method, tt.path, site, w.Code, w.Body, want)
			}
			if changed := len(s.Faults()) + 2 - len(s.Instances()); site == "cross-site" && tt.method == "POST" && tt.path == "/_sim/faults" && changed != 0 {
				t.Errorf("%s %s from %s changed something", tt.method, tt.path, site)
			}
		}
	}
	r := httptest.NewRequest("GET", "/_sim/state", nil)
	r.Header.Set("Sec-Fetch-Site", "cross-site") // a link from another page
	w := httptest.NewRecorder()
	admin.Handler(s).ServeHTTP(w, r)
	if w.Code != http.StatusOK || w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a read: %d, allowed to %q", w.Code, w.Header().Get("Access-Control-Allow-Origin"))
	}
}

const script = `<script>alert("1")</script>&'`

func TestPageEscapesWhatItShows(t *testing.T) {
	s := newServer(t, nil)
	request := essd(zoneH)
	request["Tag.1.Key"], request["Tag.1.Value"] = script, script
	id := must(t, s, "CreateDisk", request)["DiskId"].(string)
	post(t, s, "denials", `{"who":"`+strings.ReplaceAll(script, `"`, `\"`)+`","action":"DescribeZones"}`)
	ask(t, s, "DeleteDisk", params{"DiskId": script})
	query := "?find=" + url.QueryEscape(id) + "&code=notfound&disk=" + url.QueryEscape(script)
	for _, path := range []string{"/_sim/" + query, "/_sim/update" + query} {
		_, text := call(t, s, "GET", path, "")
		if path == "/_sim/"+query {
			parse(t, text)
		}
		if strings.Contains(text, "<script>") || strings.Contains(text, `alert("1")`) {
			t.Errorf("%s shows %s as it is", path, script)
		}
		if n := strings.Count(text, `alert(`); n < 4 {
			t.Errorf("%s shows the text %d times, want it as a tag's key and value, of a denial and of a call", path, n)
		}
	}
	w := submit(s, url.Values{"method": {"POST"}, "route": {script}, "body": {"{}"}}, http.Header{})
	if strings.Contains(w.Body.String(), "<script>") || w.Code != http.StatusNotFound {
		t.Errorf("the error of an action: %d %s", w.Code, w.Body)
	}
}

func TestPageMayLoadItsOwnFilesOnly(t *testing.T) {
	s := newServer(t, nil)
	w := httptest.NewRecorder()
	admin.Handler(s).ServeHTTP(w, httptest.NewRequest("GET", "/_sim/", nil))
	policy := w.Header().Get("Content-Security-Policy")
	if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q", policy)
	}
	p := parse(t, w.Body.String())
	for _, e := range append(p.all("script"), p.all("link")...) {
		path := e.attr["src"] + e.attr["href"]
		if path == "data:," {
			continue
		}
		code, text := call(t, s, "GET", path, "")
		if code != http.StatusOK || len(text) < 1000 || strings.Contains(text, "://") {
			t.Errorf("%s: %d with %d bytes", path, code, len(text))
		}
	}
	if n := len(p.all("style")); n > 0 || strings.Contains(w.Body.String(), " style=") || strings.Contains(w.Body.String(), " onclick=") {
		t.Errorf("the page has styles or handlers that its policy forbids")
	}
}

// updates asks for what has changed since some versions.
func updates(t *testing.T, s *ecssim.Server, query string, have map[string]string) map[string]string {
	t.Helper()
	var list []string
	for name, version := range have {
		list = append(list, name+"."+version)
	}
	code, text := call(t, s, "GET", "/_sim/update?have="+strings.Join(list, ",")+query, "")
	var answer struct {
		Now   time.Time
		Parts map[string]struct{ Version, HTML string }
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || code != http.StatusOK || answer.Now.IsZero() {
		t.Fatalf("update: %d %v %s", code, err, text)
	}
	changed := map[string]string{}
	for name, p := range answer.Parts {
		parse(t, p.HTML)
		have[name] = p.Version
		changed[name] = p.HTML
	}
	return changed
}

func TestUpdateGivesTheChangedPartsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(c *ecssim.Config) { c.Latency.Attach = 3 * time.Second })
		have := map[string]string{}
		for _, e := range parse(t, page(t, s, "")).all("div") {
			if name := e.attr["data-part"]; name != "" {
				have[name] = e.attr["data-version"]
			}
		}
		if len(have) != 11 {
			t.Errorf("the page has the parts %v, want 11", have)
		}
		changed := func() string {
			var names []string
			for name := range updates(t, s, "", have) {
				names = append(names, name)
			}
			slices.Sort(names)
			return strings.Join(names, " ")
		}
		if got := changed(); got != "" {
			t.Errorf("at once %q have changed", got)
		}
		id := createDisk(t, s, zoneH)
		if got := changed(); got != "calls counts disks summary" {
			t.Errorf("after CreateDisk %q have changed", got)
		}
		time.Sleep(time.Hour)
		if got := changed(); got != "" {
			t.Errorf("an hour later %q have changed: ages are the browser's", got)
		}
		post(t, s, "stock", `{"zone":"cn-hangzhou-i","category":"cloud_ssd","units":3}`)
		if got := changed(); got != "zones" {
			t.Errorf("after a change of stock %q have changed", got)
		}
		must(t, s, "AttachDisk", params{"InstanceId": "i-1", "DiskId": id})
		if got := changed(); got != "calls changes counts disks instances summary" {
			t.Errorf("after AttachDisk %q have changed", got)
		}
		time.Sleep(3 * time.Second)
		if got := changed(); got != "changes disks instances summary" {
			t.Errorf("when it is attached %q have changed", got)
		}
	})
}

func TestFiltersOfTheUpdate(t *testing.T) {
	s := newServer(t, nil)
	id, other := createDisk(t, s, zoneH), createDisk(t, s, zoneI)
	ask(t, s, "DeleteDisk", params{"DiskId": "d-none"})
	got := updates(t, s, "&find="+id+"&action=create&code=ok&disk="+other, map[string]string{})
	if rows := parse(t, got["disks"]).all("tr"); len(rows) != 2 || !strings.Contains(rows[1].text, id) {
		t.Errorf("disks %s", got["disks"])
	}
	if rows := parse(t, got["calls"]).all("tr"); len(rows) != 2 || !strings.Contains(rows[1].text, other) {
		t.Errorf("calls %s", got["calls"])
	}
	text := page(t, s, "?find="+id+"&action=create&code=ok")
	values := map[string][]string{}
	for _, input := range parse(t, text).all("input") {
		values[input.attr["name"]] = append(values[input.attr["name"]], input.attr["value"])
	}
	// One field is shown, the other is kept by the form of the other list.
	if want := []string{id, id}; !slices.Equal(values["find"], want) || !slices.Equal(values["code"], []string{"ok", "ok"}) {
		t.Errorf("the forms have %v", values)
	}
}

// lively returns a simulator that has something of everything.
func lively(t *testing.T) (s *ecssim.Server, texts []string) {
	t.Helper()
	s = newServer(t, func(c *ecssim.Config) {
		c.Latency = ecssim.Latency{Attach: 3 * time.Second, Detach: 5 * time.Second, SnapshotCut: 2 * time.Second, SnapshotUsable: 5 * time.Second, SnapshotDone: 100 * time.Second, Modify: time.Minute}
		c.Queues = ecssim.Queues{Attach: 7, Detach: 6}
		c.Throttle = ecssim.Throttle{Limits: map[string]int{"DescribeZones": 1}, Code: "Throttling.User"}
	})
	attaching, detaching, locked := createDisk(t, s, zoneH), createDisk(t, s, zoneH), createDisk(t, s, zoneI)
	must(t, s, "AttachDisk", params{"InstanceId": "i-1", "DiskId": detaching})
	time.Sleep(3 * time.Second)
	snapshot := must(t, s, "CreateSnapshot", params{"DiskId": detaching})["SnapshotId"].(string)
	must(t, s, "DetachDisk", params{"InstanceId": "i-1", "DiskId": detaching})
	must(t, s, "AttachDisk", params{"InstanceId": "i-1", "DiskId": attaching})
	task := must(t, s, "ModifyDiskSpec", params{"DiskId": createDisk(t, s, zoneH), "DiskCategory": "cloud_auto"})["TaskId"].(string)
	post(t, s, "faults", `{"action":"DetachDisk","do":"stuck","count":1}`)
	post(t, s, "locks", `{"disk":"`+locked+`","reasons":["financial"]}`)
	post(t, s, "instances", `{"id":"i-2","status":"Stopped","locked":true}`)
	post(t, s, "denials", `{"who":"somebody","action":"DeleteDisk"}`)
	post(t, s, "stock", `{"zone":"cn-hangzhou-i","category":"cloud_ssd","units":0}`)
	for range 3 {
		ask(t, s, "DescribeZones", nil)
	}
	return s, []string{
		attaching, detaching, "Attaching to i-1", "Detaching from i-1", "/dev/xvdb", "/dev/xvdc", snapshot, "progressing", task, "cloud_essd PL1", "Modifying to cloud_auto",
		"Stopped", "locked: financial", "Each attaches 7 and detaches 6 disks at a time.", "Throttling.User", "1 of 1", "stuck", "0 of 1", "somebody", "sold out", "no limit",
		"CreateDisk answers InvalidDataDiskCategory.NotSupported", "POST /_sim/faults", "hold",
	}
}

func TestPageShowsWhatThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, texts := lively(t)
		shown := page(t, s, "")
		texts = append(texts, s.Instances()[0].System, "3 of 17")
		for _, text := range texts {
			if !strings.Contains(shown, text) {
				t.Errorf("the page does not show %q", text)
			}
		}
		if page(t, s, "?done") == shown || !strings.Contains(page(t, s, "?done"), "The change was made.") {
			t.Error("without JavaScript nothing says that a change was made")
		}
	})
}

// blocked is a ResponseWriter whose reader takes its time.
type blocked struct {
	http.ResponseWriter
	meanwhile func()
}

func (b blocked) Write(p []byte) (int, error) {
	b.meanwhile()
	return b.ResponseWriter.Write(p)
}

func TestLargeStateStaysSmallAndFree(t *testing.T) {
	s := newServer(t, func(c *ecssim.Config) { c.LedgerSize = 10000 })
	for n := range 2000 {
		createDisk(t, s, []string{zoneH, zoneI}[n%2])
	}
	for n := range 60 {
		post(t, s, "instances", fmt.Sprintf(`{"id":"i-more%d","zone":"cn-hangzhou-h","type":"ecs.g7.large"}`, n))
	}
	for range 8000 {
		ask(t, s, "DeleteDisk", params{"DiskId": "d-none"})
	}
	start := time.Now()
	for _, path := range []string{"/_sim/", "/_sim/update"} {
		writes := 0
		w := httptest.NewRecorder()
		admin.Handler(s).ServeHTTP(blocked{w, func() { writes++; _ = s.Check() }}, httptest.NewRequest("GET", path, nil))
		text := w.Body.String()
		if len(text) > 150_000 || writes == 0 {
			t.Errorf("%s has %d bytes", path, len(text))
		}
		for _, more := range []string{"1975 more not shown.", "9975 more not shown.", "37 more not shown."} {
			if !strings.Contains(text, more) {
				t.Errorf("%s does not say %q", path, more)
			}
		}
	}
	t.Logf("page and update with 2000 disks and 10000 calls: %v", time.Since(start))
}
