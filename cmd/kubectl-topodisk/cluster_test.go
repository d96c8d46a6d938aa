package main

import (
	"encoding/json"
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// listServer serves lists of objects by their path, and 403 for those that the user may not read. Whatever else is asked for isn't there.
type listServer struct {
	mu        sync.Mutex
	lists     map[string]any
	forbidden map[string]bool
	requests  []string
}

func (s *listServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	w.Header().Set("Content-Type", "application/json")
	answer := s.lists[r.URL.Path]
	switch {
	case s.forbidden[r.URL.Path]:
		w.WriteHeader(http.StatusForbidden)
		answer = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403, Message: "you may not"}
	case answer == nil:
		w.WriteHeader(http.StatusNotFound)
		answer = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: 404, Message: "not found"}
	}
	_ = json.NewEncoder(w).Encode(answer) // the client is gone if that fails
}
