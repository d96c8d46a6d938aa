package admin

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
	"slices"

	"github.com/topodisk/topodisk/ecssim"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"instanceButton": instanceButton}).Parse(pageText))

// shownRows is how many disks, snapshots, tasks and calls the page shows.
const shownRows = 50

// pageView is what the page shows.
type pageView struct {
	State       ecssim.State
	Stats       ecssim.Stats
	Disks       []ecssim.DiskState
	Calls       []ecssim.Call
	Snapshots   []ecssim.SnapshotState
	Tasks       []ecssim.TaskState
	Stock       []stockRow
	ZoneButtons [][]action
	Throttle    []action
	Lose        []action
	Faults      []action
	Clock       action
	Unstick     action
	Routes      []string
}

// servePage shows the state to a person.
func (h handler) servePage(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		answerJSON(w, http.StatusMethodNotAllowed, map[string]any{"error": "GET shows the page", "routes": routeNames()})
		return
	}
	var page bytes.Buffer
	if err := pageTemplate.Execute(&page, view(h.sim)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(page.Bytes()) // a caller that has gone is told nothing
}

func view(s *ecssim.Server) pageView {
	state := s.State()
	return pageView{
		State: state, Stats: s.Stats(),
		Disks: latest(state.Disks), Calls: latest(s.Calls()), Snapshots: latest(state.Snapshots), Tasks: latest(state.Tasks),
		Stock: stockRows(state), ZoneButtons: zoneButtons(state), Throttle: throttleButtons(state.Throttle), Lose: loseButtons(), Faults: faultButtons(),
		Clock:   button("one minute forward", "POST", "clock", "", map[string]any{"advance": "60s"}),
		Unstick: button("let them come", "POST", "unstick", "disks", map[string]any{"disk": ""}),
		Routes:  routeNames(),
	}
}

// latest returns the last rows, the newest first.
func latest[T any](rows []T) []T {
	rows = slices.Clone(rows[max(0, len(rows)-shownRows):])
	slices.Reverse(rows)
	return rows
}
