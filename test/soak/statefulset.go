package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/test/lab"
)

// makeSet makes what is there throughout: the load's namespace, the class of snapshots and the StatefulSet.
func (e *environment) makeSet(ctx context.Context) error {
	t := &turn{environment: e, Turn: Turn{Name: "set", Waits: map[string]time.Duration{}}}
	if err := e.lab.MakeNamespace(ctx, loadSpace); err != nil {
		return err
	}
	class := snapshotObject("VolumeSnapshotClass", snapshotKind, map[string]any{"driver": lab.DriverName, "deletionPolicy": "Delete"})
	if _, err := e.objects.Resource(snapshotClasses).Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return err
	}
	set, history, grace := lab.StatefulSet(loadSpace, setName, className, claimSize, replicas), int32(1), gracePeriod
	set.Spec.RevisionHistoryLimit = &history
	set.Spec.Template.Spec.TerminationGracePeriodSeconds = &grace
	set.Spec.Template.Spec.Containers = []corev1.Container{shell(setName)}
	if _, err := e.lab.Client.AppsV1().StatefulSets(loadSpace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return err
	}
	return t.awaitSet(ctx)
}

// awaitSet waits until every Pod of the StatefulSet is of its last revision, and ready.
func (t *turn) awaitSet(ctx context.Context) error {
	return t.wait(ctx, setUpdated, setName, func(ctx context.Context) (bool, error) {
		set, err := t.lab.Client.AppsV1().StatefulSets(loadSpace).Get(ctx, setName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return isUpdated(set), nil
	})
}

func isUpdated(set *appsv1.StatefulSet) bool {
	s := set.Status
	return s.ObservedGeneration >= set.Generation && s.ReadyReplicas == replicas && s.UpdatedReplicas == replicas && s.CurrentRevision == s.UpdateRevision
}

// rollingUpdate replaces the StatefulSet's Pods one by one, and checks that each has the disk that it had before.
func (t *turn) rollingUpdate(ctx context.Context) error {
	before, err := t.starts(ctx)
	if err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"soak":%q}}}}}`, t.Name)
	err = t.try(ctx, "update StatefulSet", func(ctx context.Context) error {
		_, err := t.lab.Client.AppsV1().StatefulSets(loadSpace).Patch(ctx, setName, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return err
	}
	if err := t.awaitSet(ctx); err != nil {
		return err
	}
	after, err := t.starts(ctx)
	if err != nil {
		return err
	}
	for i := range after {
		if after[i] <= before[i] {
			return fmt.Errorf("the Pod %s-%d has started %d times by what its disk holds, and %d times before its update", setName, i, after[i], before[i])
		}
	}
	return nil
}

// starts are how often each Pod of the StatefulSet has started, by what its disk holds.
func (t *turn) starts(ctx context.Context) (counts [replicas]int, err error) {
	for i := range counts {
		pod := fmt.Sprintf("%s-%d", setName, i)
		err := poll(ctx, "read the starts of "+pod, time.Minute, func(ctx context.Context) (bool, error) {
			text, err := t.read(ctx, pod, startsFile)
			if err == nil {
				_, err = fmt.Sscan(text, &counts[i])
			}
			return err == nil, err
		})
		if err != nil {
			return counts, err
		}
	}
	return counts, nil
}

// dropSet deletes the load's namespace with all that is in it.
func (e *environment) dropSet(ctx context.Context) error {
	t := &turn{environment: e, Turn: Turn{Name: "set", Waits: map[string]time.Duration{}}}
	if err := t.try(ctx, "delete the class of snapshots", func(ctx context.Context) error {
		return e.objects.Resource(snapshotClasses).Delete(ctx, snapshotKind, metav1.DeleteOptions{})
	}); err != nil {
		return err
	}
	spaces := e.lab.Client.CoreV1().Namespaces()
	remove := func(ctx context.Context) error { return spaces.Delete(ctx, loadSpace, metav1.DeleteOptions{}) }
	if err := t.try(ctx, "delete namespace "+loadSpace, remove); err != nil {
		return err
	}
	return t.wait(ctx, allGone, loadSpace, func(ctx context.Context) (bool, error) {
		_, err := spaces.Get(ctx, loadSpace, metav1.GetOptions{})
		return gone(err)
	})
}
