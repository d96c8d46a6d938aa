package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab/audit"
)

var testBegin = time.Date(2026, 11, 24, 20, 30, 47, 0, time.UTC)

// after is so many seconds after testBegin.
func after(seconds float64) time.Time {
	return testBegin.Add(time.Duration(seconds * float64(time.Second)))
}

// requestAt is a successful request that was answered at that second, and received a tenth of one before.
func requestAt(program, verb, resource, subresource, name string, seconds float64) (r audit.Request) {
	r.Verb, r.UserAgent, r.Received, r.Answered, r.Response.Code = verb, program+"/v1", after(seconds-0.1), after(seconds), 200
	r.Object.Resource, r.Object.Subresource, r.Object.Name = resource, subresource, name
	return r
}

// startedTestPod is the Pod web-0 with the claim data-web-0 on the node node-h1.
func startedTestPod(seconds float64) startedPod {
	return startedPod{running: after(seconds), Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: benchNamespace, UID: "web-0-1"},
		Spec: corev1.PodSpec{NodeName: "node-h1", Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-web-0"}}}}},
	}}
}

// testRecords are those of the Pod, whose volume is attached by then.
func testRecords(requests ...audit.Request) *podsRecords {
	r := &podsRecords{
		begin: testBegin, requests: map[string][]audit.Request{}, claims: map[string]string{"data-web-0": "d-1"}, disks: map[string]string{"d-1": "d-1"},
		attachments: map[string]string{"d-1 node-h1": "csi-1"}, ecs: map[string]*ecsTimes{}, devices: map[string]time.Time{},
		mounts: map[types.UID]time.Time{"web-0-1": after(7)},
	}
	r.addRequests(requests)
	return r
}

func TestStepsOfAStart(t *testing.T) {
	r := testRecords(
		requestAt("bench", "create", "pods", "", "web-0", 0.6),
		requestAt("kube-controller-manager", "update", "persistentvolumeclaims", "", "data-web-0", 0.7), // not the scheduler's
		requestAt("kube-scheduler", "patch", "persistentvolumeclaims", "", "data-web-0", 1),
		requestAt("disk-provisioner", "create", "persistentvolumes", "", "d-1", 2),
		requestAt("kube-scheduler", "create", "pods", "binding", "web-0", 3),
		requestAt("csi-attacher", "patch", "volumeattachments", "status", "csi-1", 5.5), // says that it has failed
		requestAt("csi-attacher", "patch", "volumeattachments", "status", "csi-1", 6),
		requestAt("csi-attacher", "patch", "volumeattachments", "status", "csi-1", 9), // after the Pod has run
	)
	r.addCalls([]ecssim.Call{
		{Action: "CreateDisk", Disk: "d-1", Time: after(1.2), Took: 500 * time.Millisecond, Settles: 2 * time.Second},
		{Action: "AttachDisk", Disk: "d-1", Time: after(3.1), Took: 100 * time.Millisecond, Code: "IncorrectDiskStatus.Initializing"},
		{Action: "AttachDisk", Disk: "d-1", Time: after(4), Took: 500 * time.Millisecond, Settles: 1500 * time.Millisecond},
	})
	r.devices["d-1"] = after(6.25)
	got := r.startOf(startedTestPod(8), false)
	want := []float64{0.5, 1, 1, 3, 1, 1}
	for i, seconds := range got.steps() {
		if math.Abs(seconds-want[i]) > 1e-6 {
			t.Errorf("%s: %.3f s, want %.3f", stepNames[i], seconds, want[i])
		}
	}
	if ecs := got.ofECS(); ecs != 2950*time.Millisecond {
		t.Errorf("ECS's own time is %v, want 0.5 s for the disk, 0.2 s until it can be attached, 1.5 s until it is, and 0.75 s until the node sees it", ecs)
	}
}

func TestStepsOfAStartWithAVolumeThatIsThere(t *testing.T) {
	r := testRecords(
		requestAt("kube-controller-manager", "create", "pods", "", "web-0", 0.6),
		requestAt("kube-scheduler", "create", "pods", "binding", "web-0", 2),
	)
	got := r.startOf(startedTestPod(8), false)
	want := []float64{1.5, 0, 0, 0, 5, 1}
	for i, seconds := range got.steps() {
		if math.Abs(seconds-want[i]) > 1e-6 {
			t.Errorf("%s: %.3f s, want %.3f", stepNames[i], seconds, want[i])
		}
	}
	if ecs := got.ofECS(); ecs != 0 {
		t.Errorf("ECS's own time is %v, want none", ecs)
	}
}

// ECS's own time is what a detach takes once the Pod is bound.
func TestStepsOfAStartAfterADetach(t *testing.T) {
	r := testRecords(
		requestAt("kube-controller-manager", "create", "pods", "", "web-0", 0.6),
		requestAt("kube-scheduler", "create", "pods", "binding", "web-0", 1),
		requestAt("csi-attacher", "patch", "volumeattachments", "status", "csi-1", 6),
	)
	r.addCalls([]ecssim.Call{
		{Action: "DetachDisk", Disk: "d-1", Time: after(0.5), Took: 400 * time.Millisecond, Settles: 2 * time.Second},
		{Action: "AttachDisk", Disk: "d-1", Time: after(3), Took: 500 * time.Millisecond, Settles: time.Second},
	})
	if ecs := r.startOf(startedTestPod(8), false).ofECS(); ecs != 2500*time.Millisecond {
		t.Errorf("ECS's own time is %v, want 1.5 s until the disk is detached and 1 s until it is attached", ecs)
	}
}

func TestMountLine(t *testing.T) {
	const line = `I1124 20:30:48.176030      31 operation_generator.go:617] "MountVolume.SetUp succeeded for volume \"d-1\" (UniqueName: \"x\") pod \"web-0\" (UID: \"9654\") " pod="bench/web-0"`
	pod, at, ok := parseMount(line, testBegin)
	if want := time.Date(2026, 11, 24, 20, 30, 48, 176030000, time.Local); !ok || pod != "9654" || !at.Equal(want) {
		t.Errorf("got %q at %v (%v), want 9654 at %v", pod, at, ok, want)
	}
	if pod, _, ok := parseMount(strings.Replace(line, "SetUp", "WaitForAttach", 1), testBegin); ok {
		t.Errorf("another line is taken for the mount of %q", pod)
	}
}

// testRow has runs in which topodisk takes so long beyond ECS's own three seconds.
func testRow(beyond float64) podsRow {
	of := func(source string, total, ecs float64) podsRun {
		steps := []float64{0, 0, 0, total, 0, 0}
		run := podsRun{Source: source, Pods: 100, Total: quantiles{total, 2 * total}, ECS: quantiles{ecs, ecs}, Beyond: quantiles{total - ecs, 2*total - ecs},
			Middle: steps, Last: steps}
		run.Steps, run.Shares = make([]quantiles, len(steps)), make([]quantiles, len(steps))
		return run
	}
	row := podsRow{Key: "alone", Name: "one Pod & no other", Runs: []podsRun{of(sourceNone, 1, 0), of(sourceOurs, 3+beyond, 3), of(sourceInstant, 2, 0), of(sourcePaced, 5, 3)}}
	row.Figures = judgeAlone(row)
	return row
}

func TestPodsPageTellsWhatIsMissed(t *testing.T) {
	for _, c := range []struct {
		beyond  float64
		verdict string
	}{{2.3, "| one Pod, more than with a driver that only waits as long as ECS took, p50 | 0.30 s | <= 0.30 s | ok |"}, {2.5, "| beyond ECS's own time, one Pod, more than with a driver that answers at once, p50 | 0.50 s | <= 0.30 s | MISSED |"}} {
		page := podsPage([]podsRow{testRow(c.beyond)}, []string{"alone at abc"})
		if !strings.Contains(page, c.verdict) {
			t.Errorf("the page lacks %q:\n%s", c.verdict, page)
		}
		if want := fmt.Sprintf("**Stateful Pod start p99 = %.1f s at one Pod & no other**", 2*(3+c.beyond)); !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

// The picture is XML, and the segments of the longest bar fill the width that bars have.
func TestPodsPicture(t *testing.T) {
	decoder, widest := xml.NewDecoder(strings.NewReader(drawPods([]podsRow{testRow(1)}))), 0.0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		element, ok := token.(xml.StartElement)
		if !ok || element.Name.Local != "rect" {
			continue
		}
		for _, a := range element.Attr {
			if width, err := strconv.ParseFloat(a.Value, 64); a.Name.Local == "width" && err == nil && width < pictureWidth {
				widest = max(widest, width)
			}
		}
	}
	if math.Abs(widest-barsWidth) > 1 {
		t.Errorf("the longest bar has %.1f pixels, want %d", widest, barsWidth)
	}
}
