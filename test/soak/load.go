package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/images"
)

// waitLimit is how long the load waits for anything before it counts as stuck. What was slower than bounds, but not stuck, the
// report refuses.
const waitLimit = 8 * time.Minute

// lines are the lines of the load: of each, so many turns a full round begin at equal distances.
var lines = []struct {
	kind  string // the first part of the names of its objects
	does  string
	turns int
	play  func(*turn, context.Context) error
}{
	{"pod", "a Pod with a claim that waits for it comes and goes", 16, (*turn).podWithDisk},
	{"immediate", "a claim without a Pod comes and goes", 24, (*turn).immediateClaim},
	{"block", "a Pod with a raw block device comes and goes", 4, (*turn).rawBlock},
	{"grown", "a volume grows while a Pod uses it", 4, (*turn).expansion},
	{"copied", "a volume is restored from a snapshot, and cloned, and the copies are read", 3, (*turn).copies},
	{"namespace", "a namespace with a Pod and two claims is deleted", 3, (*turn).namespaceDeleted},
	{"updated", "a StatefulSet of three replicas is updated, and what their disks hold is checked", 1, (*turn).rollingUpdate},
}

// Names of what is waited for.
const (
	claimBound   = "claim bound"
	podRunning   = "Pod running"
	claimGrown   = "claim grown"
	snapshotCut  = "snapshot ready"
	volumeGone   = "volume gone"
	allGone      = "namespace gone"
	setUpdated   = "StatefulSet updated"
	loadSpace    = "soak-load"
	setName      = "ledger"
	claimSize    = "20Gi"
	grownSize    = "30Gi"
	dataFile     = "who"
	startsFile   = "starts"
	gracePeriod  = int64(1)
	snapshotKind = "soak"

	restoredSuffix = "-restored"
	cloneSuffix    = "-clone"
)

// load runs until the context ends, and returns when every turn that has begun has ended.
func (e *environment) load(ctx context.Context) {
	var turns sync.WaitGroup
	for n, line := range lines {
		turns.Go(func() {
			every := e.plan.Round / time.Duration(e.plan.turns(line.turns))
			offset := every * time.Duration(n+1) / time.Duration(len(lines)+1)
			for k := 0; ; k++ {
				select {
				case <-time.After(time.Until(e.begin.Add(offset + time.Duration(k)*every))):
				case <-ctx.Done():
					return
				}
				if offset+time.Duration(k)*every >= e.plan.Length() {
					return
				}
				t := &turn{environment: e, Turn: Turn{Kind: line.kind, Name: fmt.Sprintf("%s-%d", line.kind, k), Waits: map[string]time.Duration{}}}
				turns.Go(func() { t.run(context.WithoutCancel(ctx), line.play) })
			}
		})
	}
	turns.Wait()
}

// turn is one turn of a line.
type turn struct {
	*environment
	Turn
}

func (t *turn) run(ctx context.Context, play func(*turn, context.Context) error) {
	t.At = t.at()
	if err := play(t, ctx); err != nil {
		t.Failed = err.Error()
		say("turn %s FAILED: %v", t.Name, err)
		t.cleanUp(ctx)
	}
	if err := t.out.add(turnsFile, t.Turn); err != nil {
		say("turns: %v", err)
	}
}

// cleanUp deletes what a turn that has failed has left, which would count as growth. Only the verdict speaks of errors: what stays
// is left over in the end.
func (t *turn) cleanUp(ctx context.Context) {
	for _, suffix := range []string{"", restoredSuffix, cloneSuffix} {
		name := t.Name + suffix
		_ = t.lab.Client.CoreV1().Pods(loadSpace).Delete(ctx, name, metav1.DeleteOptions{})
		_ = t.lab.Client.CoreV1().PersistentVolumeClaims(loadSpace).Delete(ctx, name, metav1.DeleteOptions{})
		_ = t.objects.Resource(snapshots).Namespace(loadSpace).Delete(ctx, name, metav1.DeleteOptions{})
	}
	_ = t.lab.Client.CoreV1().Namespaces().Delete(ctx, t.namespace(), metav1.DeleteOptions{})
}

// namespace is the one that the turn has for itself, if it has one.
func (t *turn) namespace() string { return "soak-" + t.Name }

// wait waits until something is so, and notes how long that has taken; the longest counts if it is done more than once.
func (t *turn) wait(ctx context.Context, what, of string, look func(context.Context) (bool, error)) error {
	begin := time.Now()
	err := poll(ctx, of+": "+what, waitLimit, look)
	t.Waits[what] = max(t.Waits[what], time.Since(begin))
	return err
}

// try does something until it succeeds, for the API server is away at times. What is there already, or gone already, by an
// earlier try is success.
func (t *turn) try(ctx context.Context, what string, do func(context.Context) error) error {
	return poll(ctx, what, waitLimit, func(ctx context.Context) (bool, error) {
		err := do(ctx)
		if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
			err = nil
		}
		return err == nil, err
	})
}

func (t *turn) makeClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	return t.try(ctx, "make claim "+claim.Name, func(ctx context.Context) error {
		_, err := t.lab.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{})
		return err
	})
}

func (t *turn) makePod(ctx context.Context, pod *corev1.Pod) error {
	return t.try(ctx, "make Pod "+pod.Name, func(ctx context.Context) error {
		_, err := t.lab.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
}

// shell is a container that writes its Pod's name to the disk unless one is there, counts its starts, and waits.
func shell(name string) corev1.Container {
	script := fmt.Sprintf(`cd /data; [ -e %[1]s ] || echo %[2]s >%[1]s; n=$(cat %[3]s 2>/dev/null || echo 0); echo $((n+1)) >%[3]s; sync
trap exit TERM; while :; do sleep 3600 & wait; done`, dataFile, name, startsFile)
	return corev1.Container{
		Name: "shell", Image: images.ShellName, ImagePullPolicy: corev1.PullNever, Command: []string{"sh", "-c", script},
		VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
	}
}

func shellPod(namespace, name, claim string) *corev1.Pod {
	pod, grace := lab.Pod(namespace, name, claim), gracePeriod
	pod.Spec.TerminationGracePeriodSeconds = &grace
	pod.Spec.Containers = []corev1.Container{shell(name)}
	return pod
}

// runPod makes a Pod with a claim and waits until the claim is bound and the Pod runs.
func (t *turn) runPod(ctx context.Context, claim *corev1.PersistentVolumeClaim, pod *corev1.Pod) error {
	if err := t.makeClaim(ctx, claim); err != nil {
		return err
	}
	if err := t.makePod(ctx, pod); err != nil {
		return err
	}
	if err := t.awaitBound(ctx, claim.Namespace, claim.Name); err != nil {
		return err
	}
	return t.awaitRunning(ctx, pod.Namespace, pod.Name)
}

func (t *turn) awaitBound(ctx context.Context, namespace, name string) error {
	return t.wait(ctx, claimBound, name, func(ctx context.Context) (bool, error) {
		c, err := t.lab.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return c.Status.Phase == corev1.ClaimBound, nil
	})
}

func (t *turn) awaitRunning(ctx context.Context, namespace, name string) error {
	return t.wait(ctx, podRunning, name, func(ctx context.Context) (bool, error) {
		p, err := t.lab.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		return err == nil && p.Status.Phase == corev1.PodRunning && lab.IsReady(p), err
	})
}

// dropPod deletes a Pod and waits until it is gone.
func (t *turn) dropPod(ctx context.Context, name string) error {
	pods := t.lab.Client.CoreV1().Pods(loadSpace)
	if err := t.try(ctx, "delete Pod "+name, func(ctx context.Context) error { return pods.Delete(ctx, name, metav1.DeleteOptions{}) }); err != nil {
		return err
	}
	return poll(ctx, "Pod "+name+" is gone", waitLimit, func(ctx context.Context) (bool, error) {
		_, err := pods.Get(ctx, name, metav1.GetOptions{})
		return gone(err)
	})
}

// dropClaim deletes a claim and waits until its volume is gone.
func (t *turn) dropClaim(ctx context.Context, name string) error {
	claims := t.lab.Client.CoreV1().PersistentVolumeClaims(loadSpace)
	var volume string
	err := poll(ctx, "read claim "+name, waitLimit, func(ctx context.Context) (bool, error) {
		c, err := claims.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			volume = c.Spec.VolumeName
		}
		return err == nil, err
	})
	if err != nil {
		return err
	}
	if err := t.try(ctx, "delete claim "+name, func(ctx context.Context) error { return claims.Delete(ctx, name, metav1.DeleteOptions{}) }); err != nil {
		return err
	}
	return t.wait(ctx, volumeGone, name, func(ctx context.Context) (bool, error) {
		_, err := t.lab.Client.CoreV1().PersistentVolumes().Get(ctx, volume, metav1.GetOptions{})
		return gone(err)
	})
}

// gone says whether an object that was asked for is not there.
func gone(err error) (bool, error) {
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

// drop deletes a Pod and then its claim.
func (t *turn) drop(ctx context.Context, name string) error {
	if err := t.dropPod(ctx, name); err != nil {
		return err
	}
	return t.dropClaim(ctx, name)
}
