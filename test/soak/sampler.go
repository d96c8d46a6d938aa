package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// sampleEvery is the time between two samples of everything.
const sampleEvery = 20 * time.Second

const provisionerProgram = "disk-provisioner"

// programNames are those of topodisk's programs, by the names of their ports.
var programNames = map[string]string{"driver": "disk-driver", "provisioner": provisionerProgram, "node": "node plugin"}

// quantities are what is sampled of each process: by name the metrics that are summed up.
var quantities = []struct{ name, metric string }{
	{residentMemory, "process_resident_memory_bytes"},
	{heap, "go_memstats_heap_alloc_bytes"},
	{goroutines, "go_goroutines"},
	{openFiles, "process_open_fds"},
	{apiRequests, "rest_client_requests_total"},
}

// Names of what is sampled of a process.
const (
	residentMemory = "resident memory"
	heap           = "Go heap"
	goroutines     = "goroutines"
	openFiles      = "open files"
	apiRequests    = "API requests"
)

// sample samples everything again and again until the context ends. What can't be reached for a while, as during a fault, has
// no sample then; the rule refuses a series that lacks one in a whole window.
func (e *environment) sample(ctx context.Context) {
	for tick := time.NewTicker(sampleEvery); ; {
		each, done := context.WithTimeout(ctx, sampleEvery)
		list := slices.Concat(e.ofProcesses(each), e.ofObjects(each), e.ofCloud(each), e.ofNodes())
		done()
		if err := e.out.samples(list); err != nil {
			say("samples: %v", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return
		}
	}
}

func (e *environment) at() time.Duration { return time.Since(e.begin) }

// ofProcesses are samples of every process of topodisk, from the page of its metrics. A process is a life.
func (e *environment) ofProcesses(ctx context.Context) (list []Sample) {
	pods, err := e.pods(ctx, "")
	if err != nil {
		return nil
	}
	for _, p := range pods {
		for _, c := range p.Spec.Containers {
			for _, port := range c.Ports {
				program, ours := programNames[port.Name]
				if !ours || p.Status.PodIP == "" {
					continue
				}
				at := e.at()
				sums, err := scrape(ctx, fmt.Sprintf("http://%s:%d/metrics", p.Status.PodIP, port.ContainerPort))
				if err != nil {
					continue // it is being restarted
				}
				life := fmt.Sprintf("%s since %.2f", p.Name, sums["process_start_time_seconds"])
				for _, q := range quantities {
					if value, ok := sums[q.metric]; ok {
						list = append(list, Sample{At: at, Series: program + ": " + q.name, Life: life, Value: value})
					}
				}
			}
		}
	}
	return list
}

// scrape reads a page of metrics: the sum over all labels, by the metric's name.
func scrape(ctx context.Context, url string) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := scraper.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, answer.Status)
	}
	return sums(answer.Body)
}

// scraper keeps no connection, which would be an open file of what is measured.
var scraper = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// sums adds up the values of each metric in Prometheus' text format.
func sums(page io.Reader) (map[string]float64, error) {
	sums := map[string]float64{}
	lines := bufio.NewScanner(page)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		name := line[:strings.IndexAny(line+" ", "{ ")]
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metrics: %q: %w", line, err)
		}
		sums[name] += value
	}
	return sums, lines.Err()
}

// capacities are made by the installation itself, and stay.
const capacities = "CSIStorageCapacities"

// kinds are the kinds of objects that are counted.
var kinds = []struct {
	name string
	kind schema.GroupVersionResource
}{
	{"PersistentVolumes", corev1.SchemeGroupVersion.WithResource("persistentvolumes")},
	{"PersistentVolumeClaims", corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")},
	{"VolumeAttachments", schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "volumeattachments"}},
	{capacities, schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "csistoragecapacities"}},
	{"VolumeSnapshotContents", schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotcontents"}},
}

// ofObjects are samples of objects in the API server, and of the journal.
func (e *environment) ofObjects(ctx context.Context) (list []Sample) {
	add := func(series, life string, value float64) {
		list = append(list, Sample{At: e.at(), Series: series, Life: life, Value: value})
	}
	for _, k := range kinds {
		if found, err := e.objects.Resource(k.kind).List(ctx, metav1.ListOptions{ResourceVersion: "0"}); err == nil {
			add(k.name, "", float64(len(found.Items)))
		}
	}
	if records, bytes, err := e.journal(ctx); err == nil {
		add("journal records", "", float64(len(records)))
		add("journal bytes", "", float64(bytes))
	}
	if page, err := e.lab.Client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx); err == nil {
		if number, err := storedObjects(string(page)); err == nil {
			add("objects in the API server", e.plan.PartAt(e.at()), number)
		}
	}
	return list
}

// storedObjects sums up what the API server says it stores of every kind, events aside.
func storedObjects(page string) (sum float64, err error) {
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "apiserver_resource_objects{") || strings.Contains(line, `resource="events`) {
			continue
		}
		line = strings.TrimSpace(line)
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return 0, err
		}
		sum += max(value, 0) // -1 is a kind that can't be counted
	}
	if sum == 0 {
		err = errors.New("the API server doesn't say how many objects it stores")
	}
	return sum, err
}

// journal is the keys of the records in the journal, and how many bytes they and their keys are.
func (e *environment) journal(ctx context.Context) (keys []string, bytes int, err error) {
	maps, err := e.lab.Client.CoreV1().ConfigMaps(home).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, 0, err
	}
	for _, m := range maps.Items {
		if !strings.HasPrefix(m.Name, "topodisk-journal-") {
			continue
		}
		for key, record := range m.Data {
			keys = append(keys, key)
			bytes += len(key) + len(record)
		}
	}
	return keys, bytes, nil
}

// ofCloud are samples of ECS: what there is, and calls since the part of the soak began.
func (e *environment) ofCloud(ctx context.Context) []Sample {
	state, err := e.lab.Simulator.State(ctx)
	if err != nil {
		return nil
	}
	at, calls := e.at(), 0
	for _, codes := range state.Calls {
		for _, n := range codes {
			calls += n
		}
	}
	return []Sample{
		{At: at, Series: "ECS calls", Life: e.plan.PartAt(at), Value: float64(calls)},
		{At: at, Series: "disks", Value: float64(len(state.Disks))},
		{At: at, Series: "ECS snapshots", Value: float64(len(state.Snapshots))},
	}
}

// ofNodes are samples of mounts of volumes and of loop devices.
func (e *environment) ofNodes() (list []Sample) {
	if mounts, err := e.mounts(); err == nil {
		list = append(list, Sample{At: e.at(), Series: "mounts of volumes", Value: float64(len(mounts))})
	}
	if loops, err := e.lab.LoopDevices(); err == nil {
		list = append(list, Sample{At: e.at(), Series: "loop devices", Value: float64(len(loops))})
	}
	return list
}

// mounts are the mounts of CSI volumes on all nodes.
func (e *environment) mounts() (all []string, err error) {
	for _, node := range e.lab.RealNodes {
		for _, part := range []string{"kubernetes.io~csi", "plugins/kubernetes.io/csi"} {
			mounts, err := node.Mounts(part)
			if err != nil {
				return nil, err
			}
			for _, m := range mounts {
				all = append(all, node.Name+" "+m)
			}
		}
	}
	return all, nil
}

// inventory is what there is that a load could leave behind.
func (e *environment) inventory(ctx context.Context) (Inventory, error) {
	in := Inventory{}
	for _, k := range kinds {
		found, err := e.objects.Resource(k.kind).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, o := range found.Items {
			name := o.GetName()
			if class, found := o.Object["storageClassName"]; found { // its name is random
				name = fmt.Sprint(class, " ", o.Object["nodeTopology"])
			}
			in[k.name] = append(in[k.name], name)
		}
	}
	state, err := e.lab.Simulator.State(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range state.Disks {
		in["disks"] = append(in["disks"], d.ID)
	}
	for _, s := range state.Snapshots {
		in["ECS snapshots"] = append(in["ECS snapshots"], s.ID)
	}
	if state.Broken != "" {
		in["what the simulator finds wrong"] = []string{state.Broken}
	}
	var errs [3]error
	in["journal records"], _, errs[0] = e.journal(ctx)
	in["mounts of volumes"], errs[1] = e.mounts()
	in["loop devices"], errs[2] = e.lab.LoopDevices()
	return in, errors.Join(errs[:]...)
}
