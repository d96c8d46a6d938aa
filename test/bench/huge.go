package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/test/lab/audit"
	"github.com/topodisk/topodisk/test/lab/process"
)

// savesAtATime is how many PersistentVolumes disk-provisioner saves at the same time: four for each of --worker-threads, with the flags of unlimited.
const savesAtATime = 400

// huge is a cluster in which nothing may cost more per event than in a small one. csi-provisioner is not run there.
func (e *environment) huge(ctx context.Context, s scale, t *table) error {
	var small, rates, apiRates, cold, peaks, rested, cpu []float64
	for range s.hugeRuns {
		got, err := e.burst(ctx, e.ours, s.claims, waitForConsumer, false, unlimited...)
		if err != nil {
			return err
		}
		small = append(small, got.rate)
	}
	begin := time.Now()
	if err := errors.Join(e.addNodes(ctx, 3, s.hugeNodes), e.addBound(ctx, s.hugeVolumes), e.audit.Skip()); err != nil {
		return err
	}
	fmt.Printf("  (%d nodes and %d PVs with their claims took %s to write)\n", s.hugeNodes, s.hugeVolumes, time.Since(begin).Round(time.Second))
	for range s.hugeRuns {
		got, err := e.hugeRound(ctx, s)
		if err != nil {
			return err
		}
		fmt.Printf("  (%+v)\n", got)
		cold, peaks, rested, cpu = append(cold, got.first.Seconds()), append(peaks, mib(got.peak)), append(rested, mib(got.rss)), append(cpu, got.cpu.Seconds())
		rates, apiRates = append(rates, got.rate), append(apiRates, got.apiRate)
	}
	where := fmt.Sprintf("%d nodes and %d PVs", s.hugeNodes, s.hugeVolumes)
	t.limit("cold start to the first PV saved, "+where, median(cold), " s", 60)
	t.limit(fmt.Sprintf("RSS at its peak, %s, having made %d more", where, s.claims), median(peaks), " MiB", 500)
	t.limit(fmt.Sprintf("RSS at rest, %s, having made %d more", where, s.claims), median(rested), " MiB", 500)
	t.limit("CPU time of an idle minute, "+where, median(cpu), " s", 1)
	ofSmall, ofAPI := median(rates)/median(small), median(quotients(rates, apiRates))
	either := target{">= 0.6, or 0.8 in the next row", func(float64) bool { return ofSmall >= 0.6 || ofAPI >= 0.8 }}
	what := fmt.Sprintf("claims a second, %d at once, %s, ", s.claims, where)
	t.ratio(what+"beside those with 3 nodes", median(rates), median(small), "/s", either)
	either.text = ">= 0.8, or 0.6 in the row before"
	t.rounds(what+"beside the PVs that the API server takes", [2][]float64{rates, apiRates}, "/s", either)
	return nil
}

// hugeCourse is what a round has shown.
type hugeCourse struct {
	burstResult
	first   time.Duration // from the process's start to the first volume saved
	peak    int64         // bytes
	cpu     time.Duration // used in a minute at rest
	apiRate float64       // volumes a second that the API server takes
}

// hugeRound has disk-provisioner begin with claims that are there already, leaves it alone, and then has the API server
// take the same PersistentVolumes from a client that does nothing else.
func (e *environment) hugeRound(ctx context.Context, s scale) (got hugeCourse, err error) {
	class, err := e.addReady(ctx, s.claims, waitForConsumer)
	if err != nil {
		return got, err
	}
	begin := time.Now()
	proc, err := e.start(e.ours, unlimited...)
	if err != nil {
		return got, err
	}
	defer func() { e.StopProgram(proc, false) }()
	all, burstResult, err := e.watch(ctx, e.ours, proc, s.claims, false)
	if err != nil {
		return got, fmt.Errorf("%d of %d claims have a volume: %w", len(saves(all, e.ours)), s.claims, err)
	}
	times := saves(all, e.ours)
	got.burstResult, got.rate, got.first = burstResult, perSecond(times), times[0].Sub(begin)
	if err := e.idle(ctx, proc, &got); err != nil {
		return got, err
	}
	e.StopProgram(proc, false)
	volumes, err := e.volumesOf(ctx, class)
	if err != nil {
		return got, err
	}
	if err := errors.Join(e.clear(ctx, class), e.audit.Skip()); err != nil {
		return got, err
	}
	got.apiRate, err = e.saveAlone(ctx, volumes)
	return got, err
}

// idle measures a provisioner that has nothing to do: its memory half a minute later, and its CPU time of the next minute.
func (e *environment) idle(ctx context.Context, proc *process.Process, got *hugeCourse) error {
	err := sleepFor(ctx, 30*time.Second)
	if err != nil {
		return err
	}
	if got.rss, err = memoryOf(proc, "VmRSS"); err != nil {
		return err
	}
	before, err := cpuTime(proc)
	if err != nil {
		return err
	}
	if err := sleepFor(ctx, time.Minute); err != nil {
		return err
	}
	after, err := cpuTime(proc)
	if err != nil {
		return err
	}
	got.cpu = after - before
	got.peak, err = memoryOf(proc, "VmHWM")
	return err
}

// cpuTime is the CPU time that a program has used, utime and stime of /proc/PID/stat.
func cpuTime(p *process.Process) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])) // from the third on
	user, err := strconv.Atoi(fields[11])
	system, systemErr := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(err, systemErr) // Linux counts hundredths of a second
}

// saveAlone saves volumes anew, with as many requests under way as disk-provisioner has, and returns the rate.
func (e *environment) saveAlone(ctx context.Context, volumes []corev1.PersistentVolume) (float64, error) {
	err := eachOf(savesAtATime, len(volumes), func(i int) error {
		old := volumes[i]
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: old.Name, Annotations: old.Annotations, Finalizers: old.Finalizers}, Spec: old.Spec}
		_, err := e.Client.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return 0, err
	}
	bench := provisioner{name: filepath.Base(os.Args[0])}
	all, err := e.collect(ctx, func(all []audit.Request) bool { return len(saves(all, bench)) >= len(volumes) })
	if err != nil {
		return 0, err
	}
	return perSecond(saves(all, bench)), e.dropVolumes(ctx, volumes)
}
