package ecssim_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"runtime"
	"testing"

	"github.com/topodisk/topodisk/ecssim"
)

// keptMiB is what 100 000 lifecycles may leave in memory, and tokenBytes the
// part of that which grows with their number: a ClientToken's entry.
const (
	keptMiB    = 20
	tokenBytes = 120
)

// lifecycles makes n disks, one after the other; each is attached, read,
// detached and deleted.
func lifecycles(t testing.TB, s *ecssim.Server, n int) {
	t.Helper()
	made := regexp.MustCompile(`"DiskId":"([^"]+)"`)
	call := func(action string, pairs ...string) []byte {
		v := url.Values{"Action": {action}, "Version": {"2014-05-26"}, "Format": {"JSON"}, "RegionId": {region}}
		for i := 0; i < len(pairs); i += 2 {
			v.Set(pairs[i], pairs[i+1])
		}
		r, err := http.NewRequest("POST", "http://ecs/?"+v.Encode(), nil)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := s.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reply.Body)
		if err != nil || reply.StatusCode != 200 {
			t.Fatalf("%s: %d %s %v", action, reply.StatusCode, text, err)
		}
		return text
	}
	for i := range n {
		name := fmt.Sprintf("pvc-%08d-0000-0000-0000-000000000000", i)
		id := string(made.FindSubmatch(call("CreateDisk", "ZoneId", zoneH, "DiskCategory", "cloud_essd", "Size", "20", "ClientToken", "n:"+name,
			"Tag.1.Key", "csi.alibabacloud.com/volume-name", "Tag.1.Value", name, "Tag.2.Key", "k8s.aliyun.com", "Tag.2.Value", "true"))[1])
		call("AttachDisk", "DiskId", id, "InstanceId", "i-1")
		call("DescribeDisks", "DiskIds", `["`+id+`"]`)
		call("DetachDisk", "DiskId", id, "InstanceId", "i-1")
		call("DeleteDisk", "DiskId", id)
	}
}

// heap is what is in use after a collection, in bytes.
func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what the first one finalized
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestLifecyclesLeaveLittleMemory(t *testing.T) {
	s := newServer(t, unsigned)
	before := heap()
	const n = 20_000
	lifecycles(t, s, n)
	kept := heap() - before
	// The call log and the like are as large as after 100 000.
	if limit := keptMiB<<20 - (100_000-n)*tokenBytes; kept > limit {
		t.Errorf("%d lifecycles leave %.1f MiB, want at most %.1f", n, float64(kept)/(1<<20), float64(limit)/(1<<20))
	}
	t.Logf("%d lifecycles leave %.1f MiB", n, float64(kept)/(1<<20))
	runtime.KeepAlive(s)
}

// BenchmarkLifecycleMemory reports what 100 000 lifecycles leave.
func BenchmarkLifecycleMemory(b *testing.B) {
	for range b.N {
		s, err := ecssim.New(ecssim.Config{Region: region, Zones: []string{zoneH}, Instances: []ecssim.Instance{{ID: "i-1", Zone: zoneH, Type: "ecs.g7.large"}}})
		if err != nil {
			b.Fatal(err)
		}
		before := heap()
		lifecycles(b, s, 100_000)
		b.ReportMetric(float64(heap()-before)/(1<<20), "MiB-left")
		runtime.KeepAlive(s)
	}
}
