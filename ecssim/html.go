package ecssim

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
	"slices"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// shownRows is how many disks, snapshots, tasks and calls the page shows.
const shownRows = 50

// servePage shows the state to a person.
func (s *Server) servePage(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		answerJSON(w, http.StatusMethodNotAllowed, map[string]any{"error": "GET shows the page", "routes": routeNames(adminRoutes())})
		return
	}
	calls, state := s.Calls(), s.State()
	slices.Reverse(calls)
	disks := state.Disks
	slices.Reverse(disks)
	snapshots, tasks := state.Snapshots, state.Tasks
	slices.Reverse(snapshots)
	slices.Reverse(tasks)
	var page bytes.Buffer
	err := pageTemplate.Execute(&page, map[string]any{
		"State": state, "Disks": disks[:min(len(disks), shownRows)], "Calls": calls[:min(len(calls), shownRows)],
		"Snapshots": snapshots[:min(len(snapshots), shownRows)], "Tasks": tasks[:min(len(tasks), shownRows)],
		"Routes": routeNames(adminRoutes()),
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(page.Bytes()) // a caller that has gone is told nothing
}
