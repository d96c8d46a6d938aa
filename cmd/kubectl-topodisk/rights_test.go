package main

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/topodisk/topodisk/test/golden"
)

// rightsServer is an API server of an empty cluster that answers what the rights allow, and 403 to all else.
type rightsServer struct {
	granted golden.Rights

	mu            sync.Mutex
	used, refused golden.Rights
}

var apiPath = regexp.MustCompile(`^/apis?/(?:([^/]+)/)?(v[^/]+)(?:/namespaces/([^/]+))?/([^/]+)(?:/([^/]+))?$`)

func (s *rightsServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/version" { // which everybody may read
		_ = json.NewEncoder(w).Encode(map[string]string{"gitVersion": "v1.36.0"}) // the client is gone if that fails
		return
	}
	if s.isAllowed(rightOf(r)) {
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": listKinds[filepath.Base(r.URL.Path)], "items": []any{}})
		return
	}
	w.WriteHeader(http.StatusForbidden)
}

// listKinds are those that have no Go type, so that the answer must name its kind.
var listKinds = map[string]string{
	"volumesnapshotclasses": "VolumeSnapshotClassList", "volumesnapshotcontents": "VolumeSnapshotContentList",
	"volumegroupsnapshotclasses": "VolumeGroupSnapshotClassList", "volumegroupsnapshotcontents": "VolumeGroupSnapshotContentList",
}

func rightOf(r *http.Request) golden.Right {
	match := apiPath.FindStringSubmatch(r.URL.Path)
	if match == nil || r.Method != http.MethodGet {
		return golden.Right{Verb: r.Method + " " + r.URL.Path}
	}
	right := golden.Right{Verb: "list", Group: match[1], Namespace: match[3], Resource: match[4]}
	if match[5] != "" {
		right.Verb, right.Name = "get", match[5]
	}
	return right
}

// isAllowed notes what was asked for.
func (s *rightsServer) isAllowed(right golden.Right) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.granted.Allow(right) {
		s.used = append(s.used, right)
		return true
	}
	s.refused = append(s.refused, right)
	return false
}

func (s *rightsServer) takeRefused() golden.Rights {
	s.mu.Lock()
	defer s.mu.Unlock()
	refused := s.refused
	s.refused = nil
	return refused
}

// The ClusterRole that docs/kubectl-topodisk.md has to be copied for lists suffices, and grants nothing that isn't needed.
func TestTheRolesOfThePageSuffice(t *testing.T) {
	const page = "../../docs/kubectl-topodisk.md"
	lists := golden.RightsOf(t, page, "kubectl-topodisk-lists")
	s := &rightsServer{granted: append(golden.RightsOf(t, page, "kubectl-topodisk-journal"), lists...)}
	file := kubeconfigOf(t, s)
	for _, line := range []string{"volumes --all-namespaces", "audit", "audit --topodisk-namespace=kube-system", "plan install", "plan takeover", "plan drain z", "plan soldout z cloud_essd"} {
		_, out, diagnostics := ran(t, append(strings.Fields(line), "--kubeconfig="+file)...)
		if refused := s.takeRefused(); len(refused) > 0 {
			t.Errorf("%s: refused are %v; printed %s%s", line, refused, out, diagnostics)
		}
	}
	for _, right := range lists {
		if !slices.ContainsFunc(s.used, func(u golden.Right) bool { return golden.Rights{right}.Allow(u) }) {
			t.Errorf("%v is granted and never needed", right)
		}
	}
}
