//go:build e2e

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/programs"
	"github.com/topodisk/topodisk/test/labtest"
)

// leader is a disk-provisioner that leads on a control plane without real nodes.
type leader struct {
	labtest.T
	*lab.Lab
}

func startLeader(t *testing.T) leader {
	t.Helper()
	root, err := programs.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := programs.Default.Build(t.Context(), root, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	started, err := lab.Start(t.Context(), lab.Options{Root: root, Programs: dirs, Nodes: lab.SixNodes(), ProvisionerArgs: []string{"--enable-pprof"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := started.Stop(); err != nil {
			t.Error(err)
		}
	})
	return leader{labtest.T{T: t}, started}
}

// turnOver makes that many claims, waits for their volumes, and deletes them.
func (l leader) turnOver(class string, claims int) {
	l.Helper()
	for n := range claims {
		l.Must(l.MakeClaim(l.Context(), lab.Claim(metav1.NamespaceDefault, fmt.Sprintf("claim-%d", n), class, "20Gi")))
	}
	l.awaitVolumes(claims)
	l.Must(l.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).DeleteCollection(l.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	l.awaitVolumes(0)
}

func (l leader) awaitVolumes(want int) {
	l.Helper()
	l.Must(l.Await(l.Context(), fmt.Sprintf("there are %d PersistentVolumes", want), 2*time.Minute, func(ctx context.Context) (bool, error) {
		list, err := l.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		return err == nil && len(list.Items) == want, err
	}))
}

var heapAlloc = regexp.MustCompile(`(?m)^# HeapAlloc = ([0-9]+)$`)

// heap is what the leader's heap has after a garbage collection, in MiB.
func (l leader) heap() float64 {
	l.Helper()
	answer, err := http.Get(l.URL(lab.ProvisionerName, "/debug/pprof/heap?debug=1&gc=1"))
	l.Must(err)
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	l.Must(err)
	found := heapAlloc.FindSubmatch(page)
	if found == nil {
		l.Fatalf("HTTP %d, the profile has no HeapAlloc: %.200s", answer.StatusCode, page)
	}
	bytes, err := strconv.ParseFloat(string(found[1]), 64)
	l.Must(err)
	return scale("MiB", bytes)
}

// The rule allows disk-provisioner's heap what its recent events take. Once it has those, it is flat.
func TestHeapIsFlatOnceRecentEventsAreRemembered(t *testing.T) {
	const crowd, after = 256, 8
	l := startLeader(t)
	class := lab.Class("at-once", storagev1.VolumeBindingImmediate, map[string]string{"type": "cloud_essd"})
	l.Must(l.MakeClass(t.Context(), class))
	var heaps []float64
	for n := range recentEvents/crowd + after {
		begin := time.Now()
		l.turnOver(class.Name, crowd)
		heaps = append(heaps, l.heap())
		t.Logf("%d claims: %.1f MiB, %s", (n+1)*crowd, heaps[n], time.Since(begin).Round(time.Millisecond))
	}
	flat := heaps[len(heaps)-after:]
	if early, late := slices.Max(flat[:after/2]), slices.Min(flat[after/2:]); late > early+0.5 {
		t.Errorf("after %d claims the heap rises from %.1f MiB to %.1f MiB, want at most 0.5 MiB", recentEvents, early, late)
	}
	if grown := flat[0] - heaps[0]; grown > recentEventsMemory {
		t.Errorf("recent events take %.1f MiB, the rule allows %.0f MiB", grown, recentEventsMemory)
	}
}
