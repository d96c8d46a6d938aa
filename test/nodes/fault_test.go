//go:build e2enodes

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/labtest"
)

// instanceOf returns the ECS instance of a node.
func (s *scene) instanceOf(node string) string { return s.RealNode(node).Instance }

// taint sets a node's taints.
func (s *scene) taint(node, taints string) {
	s.Helper()
	patch := fmt.Sprintf(`{"spec":{"taints":%s}}`, taints)
	_, err := s.Client.CoreV1().Nodes().Patch(context.Background(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	s.Must(err)
}

func TestADeadNodeKeepsItsDiskUntilItIsOutOfService(t *testing.T) {
	s := newScene(t)
	s.claim("data", s.essd("ext4"))
	s.runs("app", "data", labtest.OnNode(there))
	sum, id := s.write("app", "/data/file", 20), s.bound("data")
	node := s.RealNode(there)
	node.Kill()
	s.Cleanup(func() {
		s.taint(there, "[]")
		if node.Off() {
			if err := node.Start(context.Background()); err != nil {
				t.Errorf("start the node again: %v", err)
			}
		}
	})
	killed := time.Now()
	s.WaitFor("the node is found dead", late, func(ctx context.Context) (bool, error) {
		n, err := s.Client.CoreV1().Nodes().Get(ctx, there, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
		return n.Status.Conditions[i].Status == corev1.ConditionUnknown, nil
	})
	t.Logf("NotReady %.0f s after its death", time.Since(killed).Seconds())

	// A Pod that wants the disk on the other node waits, for nobody knows what the dead one still writes.
	s.Must(s.Client.CoreV1().Pods(s.Namespace).Delete(s.Context(), "app", metav1.DeleteOptions{}))
	s.Pod("next", "data", labtest.OnNode(here))
	s.WaitFor("the next Pod is told why it waits", soon, func(context.Context) (bool, error) {
		return s.says("next", "Volume is already used by pod(s) app")
	})
	if got := s.attachedTo(id); !slices.Equal(got, []string{node.Instance}) {
		t.Errorf("the disk is attached to %v, want the dead node's instance alone", got)
	}

	s.taint(there, `[{"key":"node.kubernetes.io/out-of-service","value":"nodeshutdown","effect":"NoExecute"}]`)
	tainted := time.Now()
	s.running("next", late)
	t.Logf("the next Pod runs %.0f s after the out-of-service taint", time.Since(tainted).Seconds())
	s.holds("next", "/data/file", sum)
	if got := s.attachedTo(id); !slices.Equal(got, []string{s.instanceOf(here)}) {
		t.Errorf("the disk is attached to %v, want the instance of %s", got, here)
	}
	s.taint(there, "[]")
	s.Must(node.Start(s.Context()))
	s.remove("next")
	s.runs("back", "data", labtest.OnNode(there))
	s.holds("back", "/data/file", sum)
}

// writer appends a number to a file every tenth of a second, and has it on the disk before the next.
const writer = `i=0; while :; do i=$((i+1)); echo $i >> /data/log; sync /data/log; sleep 0.1; done`

func TestNothingIsLostWhenProgramsOfANodeAreKilled(t *testing.T) {
	s := newScene(t)
	class := s.essd("ext4")
	for _, name := range []string{"app", "other"} {
		s.claim(name, class)
	}
	s.runs("app", "app", labtest.OnNode(here), func(p *corev1.Pod) {
		p.Spec.Containers[0].Command = []string{"sh", "-c", writer}
	})
	node := s.RealNode(here)
	for i, program := range []string{lab.Kubelet, lab.NodePlugin, lab.Containerd} {
		before := s.lines("app")
		// A Pod comes while the program is dead, and has to run once it is back.
		node.StopProgram(program, true)
		other := fmt.Sprintf("other-%d", i)
		s.Pod(other, "other", labtest.OnNode(here))
		s.WaitFor("the Pod is sent to the node", soon, func(ctx context.Context) (bool, error) {
			p, err := s.Client.CoreV1().Pods(s.Namespace).Get(ctx, other, metav1.GetOptions{})
			return err == nil && p.Spec.NodeName != "", err
		})
		s.Must(node.StartProgram(s.Context(), program))
		s.running(other, late)
		s.sh(other, fmt.Sprintf("echo %d >> /data/log && sync", i+1))
		s.remove(other)
		if after := s.lines("app"); after <= before {
			t.Errorf("after %s was killed the writer has %d lines, it had %d before", program, after, before)
		}
	}
	s.remove("app")
	s.runs("app", "app", labtest.OnNode(there))
	if gap := s.sh("app", `awk '$1 != NR {print NR": "$0; exit}' /data/log`); gap != "" {
		t.Errorf("the log of the writer breaks off at line %s", gap)
	}
	s.runs("other", "other", labtest.OnNode(there))
	if got := s.sh("other", "cat /data/log | tr '\\n' ' '"); got != "1 2 3 " && got != "1 2 3" {
		t.Errorf("what was written between the kills is %q", got)
	}
}

// lines counts what the writer has written.
func (s *scene) lines(pod string) int {
	s.Helper()
	n, err := strconv.Atoi(s.sh(pod, "wc -l < /data/log"))
	s.Must(err)
	return n
}

func TestDrainWaitsForTheVolumes(t *testing.T) {
	s := newScene(t)
	class := s.essd("ext4")
	for i := range 3 {
		name := fmt.Sprintf("app-%d", i)
		s.claim(name, class)
		s.Pod(name, name, labtest.OnNode(there), func(p *corev1.Pod) { // it ends late, so that the plugin has to wait for it
			grace := int64(8)
			p.Spec.TerminationGracePeriodSeconds = &grace
			p.Spec.Containers[0].Command = []string{"sh", "-c", "trap '' TERM; while :; do sleep 1; done"}
		})
	}
	for i := range 3 {
		s.running(fmt.Sprintf("app-%d", i), late)
	}
	node := s.RealNode(there)
	s.Cleanup(func() {
		if _, err := s.kubectl(context.Background(), "", "uncordon", there); err != nil {
			t.Error(err)
		}
	})
	_, err := s.kubectl(s.Context(), "", "cordon", there)
	s.Must(err)
	for i := range 3 {
		s.Must(s.Client.CoreV1().Pods(s.Namespace).Delete(s.Context(), fmt.Sprintf("app-%d", i), metav1.DeleteOptions{}))
	}
	ended, err := node.Terminate(lab.NodePlugin)
	s.Must(err)
	ctx, cancel := context.WithTimeout(s.Context(), late)
	defer cancel()
	took, err := ended(ctx)
	if err != nil {
		t.Errorf("the node plugin ends with %v", err)
	}
	t.Logf("the node plugin has ended %.1f s after SIGTERM", took.Seconds())
	for i := range 3 {
		id := s.bound(fmt.Sprintf("app-%d", i))
		if left, err := node.Mounts(id); err != nil || len(left) > 0 {
			t.Errorf("it ended before %s was unmounted: %v, %v", id, left, err)
		}
		s.WaitFor("the disk is detached", soon, func(context.Context) (bool, error) { return len(s.attachedTo(id)) == 0, nil })
	}
	if took < 7*time.Second {
		t.Errorf("it ended after %s, when the Pods still ran", took)
	}
	s.Must(node.StartProgram(s.Context(), lab.NodePlugin))
}
