//go:build e2enodes

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/labtest"
)

func TestTwoHundredTimesThereAndBack(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	class := s.essd("ext4")
	side, rounds := 10, 20 // disks, and how often each moves
	if testing.Short() {
		rounds = 5
	}
	begin := time.Now()
	var crowd sync.WaitGroup
	failed := make([]error, side)
	for i := range side {
		name := fmt.Sprintf("disk-%d", i)
		s.claim(name, class)
		crowd.Go(func() {
			for round := range rounds {
				if failed[i] = s.thereAndBack(name, round); failed[i] != nil {
					return
				}
			}
		})
	}
	crowd.Wait()
	for _, err := range failed {
		if err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d times a disk was attached, written to and detached, %d at a time: %.0f s", side*rounds, side, time.Since(begin).Seconds())
}

// thereAndBack has a Pod on one of two nodes add a line to what earlier ones have left, and end.
func (s *scene) thereAndBack(claim string, round int) error {
	ctx, cancel := context.WithTimeout(s.Context(), 2*late)
	defer cancel()
	node, name := []string{here, there}[round%2], fmt.Sprintf("%s-%d", claim, round)
	pod := podThatEnds(s.Namespace, name, claim, node,
		fmt.Sprintf(`n=$(cat /data/log 2>/dev/null | wc -l); [ $n = %d ] || { echo "it holds $n lines, want %d"; exit 1; }; echo %d >> /data/log; sync`, round, round, round))
	if err := s.MakePod(ctx, pod); err != nil {
		return err
	}
	for {
		p, err := s.Client.CoreV1().Pods(s.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if p.Status.Phase == corev1.PodSucceeded {
			break
		}
		if p.Status.Phase == corev1.PodFailed {
			said, _ := s.kubectl(ctx, "", "logs", name)
			return fmt.Errorf("%s: %s", name, said)
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("%s is %s: %w", name, p.Status.Phase, err)
		}
	}
	if err := s.Client.CoreV1().Pods(s.Namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	b, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(ctx, claim, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for { // until ECS has detached it
		attachments, err := s.Client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		left := ""
		for _, a := range attachments.Items {
			if v := a.Spec.Source.PersistentVolumeName; v != nil && *v == b.Spec.VolumeName {
				left = a.Name
			}
		}
		if left == "" {
			return nil
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("%s stays: %w", left, err)
		}
	}
}

// podThatEnds runs a script once, with a claim at /data.
func podThatEnds(namespace, name, claim, node, script string) *corev1.Pod {
	pod := lab.Pod(namespace, name, claim)
	labtest.OnNode(node)(pod)
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Containers[0].Command = []string{"sh", "-c", script}
	return pod
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(250 * time.Millisecond):
		return nil
	}
}

// takes is how many data disks ecs.g6.xlarge takes as the simulator has it.
const takes = 16

// limit is how many disks of the driver a node takes, as Kubernetes knows it; 0 if it knows none.
func (s *scene) limit(node string) int {
	s.Helper()
	of, err := s.Client.StorageV1().CSINodes().Get(s.Context(), node, metav1.GetOptions{})
	s.Must(err)
	for _, d := range of.Spec.Drivers {
		if d.Name == lab.DriverName && d.Allocatable != nil && d.Allocatable.Count != nil {
			return int(*d.Allocatable.Count)
		}
	}
	return 0
}

// The kubelet asks anew every nodeAllocatableUpdatePeriodSeconds of the CSIDriver, 60 as it is installed.
func TestTheLimitFollowsDisksOfOthersWhileTheNodeRuns(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	const node = "node-i1"
	follows := func(want int) {
		s.WaitFor(fmt.Sprintf("the node says that it takes %d disks", want), late, func(context.Context) (bool, error) {
			if got := s.limit(node); got != want {
				return false, fmt.Errorf("it says %d", got)
			}
			return true, nil
		})
	}
	follows(takes)
	body := filepath.Join(t.TempDir(), "body")
	s.Must(os.WriteFile(body, make([]byte, 1<<20), 0o600))
	loop := s.tool("", "losetup", "--find", "--show", body)
	defer s.tool("", "losetup", "--detach", loop)
	link := filepath.Join(s.RealNode(node).Links(), "virtio-bp1somebodyelses")
	s.Must(os.Symlink(loop, link))
	follows(takes - 1)
	s.Must(os.Remove(link))
	follows(takes)
}

func TestANodeTakesAsManyDisksAsItSays(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	const full = "node-j1"
	limit := s.limit(full)
	if limit != takes {
		t.Fatalf("the node says that it takes %d disks, want %d", limit, takes)
	}
	class := s.essd("ext4")
	name := func(i int) string { return fmt.Sprintf("app-%d", i) }
	begin := time.Now()
	for i := range limit + 1 {
		s.claim(name(i), class)
		s.Pod(name(i), name(i), labtest.OnNode(full))
	}
	waiting := ""
	s.WaitFor("all Pods but one run", 2*late, func(ctx context.Context) (bool, error) {
		list, err := s.Client.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		running := 0
		for _, p := range list.Items {
			if p.Status.Phase == corev1.PodRunning {
				running++
			} else {
				waiting = p.Name
			}
		}
		if running != limit {
			return false, fmt.Errorf("%d Pods run", running)
		}
		return true, nil
	})
	t.Logf("%d disks on one node after %.0f s", limit, time.Since(begin).Seconds())
	s.WaitFor("the last Pod is told why it waits", soon, func(context.Context) (bool, error) {
		return s.says(waiting, "exceed max volume count")
	})
	for i := range limit + 1 {
		if name(i) != waiting {
			s.remove(name(i))
			break
		}
	}
	s.running(waiting, late)

	begin = time.Now()
	s.Must(s.Client.CoreV1().Pods(s.Namespace).DeleteCollection(s.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	s.WaitFor("every disk is off the node", 2*late, func(ctx context.Context) (bool, error) {
		disks, err := s.Simulator.Disks(ctx, s.Namespace)
		if err != nil {
			return false, err
		}
		attached := slices.DeleteFunc(disks, func(d ecssim.DiskState) bool { return len(d.Attachments) == 0 })
		if len(attached) > 0 {
			return false, fmt.Errorf("%d are attached still", len(attached))
		}
		return true, nil
	})
	t.Logf("all of them off the node after %.0f s", time.Since(begin).Seconds())
}
