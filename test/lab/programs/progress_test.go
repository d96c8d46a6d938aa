package programs

import (
	"testing"
	"time"
)

func TestProgressTellsDownloadsPackagesAndLinksApart(t *testing.T) {
	p := newProgress("Kubernetes", []string{"go.etcd.io/etcd/server/v3", "k8s.io/kubernetes/cmd/kubectl"})
	for _, step := range []struct {
		line string // of the go command
		then func()
		want string
	}{
		{"warning: nothing of interest", nil, "[ 1:05] Kubernetes: finding out what there is to build"},
		{"go: downloading k8s.io/api v0.36.3", nil, "[ 1:05] Kubernetes: 1 modules downloaded, downloading k8s.io/api"},
		{"fmt", func() { p.packages = 40 }, "[ 1:05] Kubernetes: 0 of 2 programs, 1 of at most 40 packages, compiling fmt"},
		{"# k8s.io/api", nil, "[ 1:05] Kubernetes: 0 of 2 programs, 1 of at most 40 packages, compiling fmt"},
		{"/src/a.go:1:2: undefined: x", nil, "[ 1:05] Kubernetes: 0 of 2 programs, 1 of at most 40 packages, compiling fmt"},
		{"k8s.io/api/core/v1", nil, "[ 1:05] Kubernetes: 0 of 2 programs, 2 of at most 40 packages, compiling k8s.io/api/core/v1"},
		{"go.etcd.io/etcd/server/v3", nil, "[ 1:05] Kubernetes: 0 of 2 programs, 3 of at most 40 packages, linking etcd"},
		{"k8s.io/kubernetes/cmd/kubectl", func() { p.programs = 1 }, "[ 1:05] Kubernetes: 1 of 2 programs, 4 of at most 40 packages, linking kubectl"},
	} {
		p.feed(step.line)
		if step.then != nil {
			step.then()
		}
		if got := p.line(65 * time.Second); got != step.want {
			t.Errorf("after %q:\n got %s\nwant %s", step.line, got, step.want)
		}
	}
}

func TestLineWriterHandsOverWholeLinesOnly(t *testing.T) {
	var got []string
	w := lineWriter{each: func(line string) { got = append(got, line) }}
	for _, part := range []string{"a", "b\nc", "", "\n\nd"} {
		if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("Write(%q) = %d, %v", part, n, err)
		}
	}
	if len(got) != 3 || got[0] != "ab" || got[1] != "c" || got[2] != "" {
		t.Errorf("lines are %q, want ab, c and an empty one; d is not ended yet", got)
	}
}
