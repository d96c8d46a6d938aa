package main

import (
	"context"
	"fmt"
	"path"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/test/lab"
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
		Name: "shell", Image: lab.ShellImage, ImagePullPolicy: corev1.PullNever, Command: []string{"sh", "-c", script},
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
		return err == nil && p.Status.Phase == corev1.PodRunning && isReady(p), err
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

func (t *turn) podWithDisk(ctx context.Context) error {
	if err := t.runPod(ctx, lab.Claim(loadSpace, t.Name, className, claimSize), shellPod(loadSpace, t.Name, t.Name)); err != nil {
		return err
	}
	return t.drop(ctx, t.Name)
}

func (t *turn) immediateClaim(ctx context.Context) error {
	if err := t.makeClaim(ctx, lab.Claim(loadSpace, t.Name, immediateClass, claimSize)); err != nil {
		return err
	}
	if err := t.awaitBound(ctx, loadSpace, t.Name); err != nil {
		return err
	}
	return t.dropClaim(ctx, t.Name)
}

func (t *turn) rawBlock(ctx context.Context) error {
	claim, mode := lab.Claim(loadSpace, t.Name, className, claimSize), corev1.PersistentVolumeBlock
	claim.Spec.VolumeMode = &mode
	pod := shellPod(loadSpace, t.Name, t.Name)
	c := &pod.Spec.Containers[0]
	c.VolumeMounts, c.VolumeDevices = nil, []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/raw"}}
	c.Command[2] = "head -c 4096 /dev/raw >/dev/null || exit 1; trap exit TERM; while :; do sleep 3600 & wait; done"
	if err := t.runPod(ctx, claim, pod); err != nil {
		return err
	}
	return t.drop(ctx, t.Name)
}

// expansion has a volume grow while a Pod uses it.
func (t *turn) expansion(ctx context.Context) error {
	if err := t.runPod(ctx, lab.Claim(loadSpace, t.Name, className, claimSize), shellPod(loadSpace, t.Name, t.Name)); err != nil {
		return err
	}
	claims := t.lab.Client.CoreV1().PersistentVolumeClaims(loadSpace)
	patch := fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, grownSize)
	err := t.try(ctx, "grow claim "+t.Name, func(ctx context.Context) error {
		_, err := claims.Patch(ctx, t.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return err
	}
	want := resource.MustParse(grownSize)
	err = t.wait(ctx, claimGrown, t.Name, func(ctx context.Context) (bool, error) {
		c, err := claims.Get(ctx, t.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		got := c.Status.Capacity[corev1.ResourceStorage]
		return got.Cmp(want) >= 0, nil
	})
	if err != nil {
		return err
	}
	return t.drop(ctx, t.Name)
}

var (
	snapshots       = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}
	snapshotClasses = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotclasses"}
)

func snapshotObject(kind, name string, fields map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: fields}
	o.SetAPIVersion("snapshot.storage.k8s.io/v1")
	o.SetKind(kind)
	o.SetName(name)
	return o
}

// copies has a volume copied by way of a snapshot, and as a claim, and reads what the copies hold.
func (t *turn) copies(ctx context.Context) error {
	if err := t.runPod(ctx, lab.Claim(loadSpace, t.Name, className, claimSize), shellPod(loadSpace, t.Name, t.Name)); err != nil {
		return err
	}
	if err := t.holds(ctx, t.Name, t.Name); err != nil {
		return err
	}
	// A snapshot has what is on the disk, and a read shows what is in memory.
	err := t.try(ctx, "sync the disk of "+t.Name, func(ctx context.Context) error {
		_, err := t.onDisk(ctx, t.Name, dataFile, "sync", "-f")
		return err
	})
	if err != nil {
		return err
	}
	if err := t.cutSnapshot(ctx); err != nil {
		return err
	}
	group := snapshots.Group
	for name, source := range map[string]corev1.TypedLocalObjectReference{
		t.Name + restoredSuffix: {APIGroup: &group, Kind: "VolumeSnapshot", Name: t.Name},
		t.Name + cloneSuffix:    {Kind: "PersistentVolumeClaim", Name: t.Name},
	} {
		claim := lab.Claim(loadSpace, name, className, claimSize)
		claim.Spec.DataSource = &source
		if err := t.runPod(ctx, claim, shellPod(loadSpace, name, name)); err != nil {
			return err
		}
		if err := t.holds(ctx, name, t.Name); err != nil {
			return err
		}
		if err := t.drop(ctx, name); err != nil {
			return err
		}
	}
	if err := t.dropSnapshot(ctx); err != nil {
		return err
	}
	return t.drop(ctx, t.Name)
}

func (t *turn) cutSnapshot(ctx context.Context) error {
	s := snapshotObject("VolumeSnapshot", t.Name, map[string]any{"spec": map[string]any{
		"volumeSnapshotClassName": snapshotKind, "source": map[string]any{"persistentVolumeClaimName": t.Name},
	}})
	err := t.try(ctx, "make snapshot "+t.Name, func(ctx context.Context) error {
		_, err := t.objects.Resource(snapshots).Namespace(loadSpace).Create(ctx, s, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return t.wait(ctx, snapshotCut, t.Name, func(ctx context.Context) (bool, error) {
		got, err := t.objects.Resource(snapshots).Namespace(loadSpace).Get(ctx, t.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		ready, _, err := unstructured.NestedBool(got.Object, "status", "readyToUse")
		return ready, err
	})
}

func (t *turn) dropSnapshot(ctx context.Context) error {
	of := t.objects.Resource(snapshots).Namespace(loadSpace)
	if err := t.try(ctx, "delete snapshot "+t.Name, func(ctx context.Context) error { return of.Delete(ctx, t.Name, metav1.DeleteOptions{}) }); err != nil {
		return err
	}
	return poll(ctx, "snapshot "+t.Name+" is gone", waitLimit, func(ctx context.Context) (bool, error) {
		_, err := of.Get(ctx, t.Name, metav1.GetOptions{})
		return gone(err)
	})
}

// holds checks that a Pod's disk holds the name of the Pod that wrote to it first.
func (t *turn) holds(ctx context.Context, pod, want string) error {
	return poll(ctx, fmt.Sprintf("the disk of %s holds %s", pod, want), time.Minute, func(ctx context.Context) (bool, error) {
		got, err := t.read(ctx, pod, dataFile)
		if err == nil && got != want {
			err = fmt.Errorf("it holds %q", got)
		}
		return err == nil, err
	})
}

// read reads a file of a Pod's disk.
func (t *turn) read(ctx context.Context, pod, file string) (string, error) {
	return t.onDisk(ctx, pod, file, "cat")
}

// onDisk runs a command with a file of a Pod's disk as its argument, on the Pod's node.
func (t *turn) onDisk(ctx context.Context, pod, file string, command ...string) (string, error) {
	p, err := t.lab.Client.CoreV1().Pods(loadSpace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	var claim string
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			claim = v.PersistentVolumeClaim.ClaimName
		}
	}
	c, err := t.lab.Client.CoreV1().PersistentVolumeClaims(loadSpace).Get(ctx, claim, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	node := t.lab.RealNode(p.Spec.NodeName)
	if node == nil {
		return "", fmt.Errorf("%s is on no node", pod)
	}
	at := path.Join("/var/lib/kubelet/pods", string(p.UID), "volumes/kubernetes.io~csi", c.Spec.VolumeName, "mount", file)
	return node.Exec(ctx, append(command, at)...)
}

// namespaceDeleted deletes a namespace with all that is in it.
func (t *turn) namespaceDeleted(ctx context.Context) error {
	namespace := t.namespace()
	spaces := t.lab.Client.CoreV1().Namespaces()
	err := t.try(ctx, "make namespace "+namespace, func(ctx context.Context) error {
		_, err := spaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	err = poll(ctx, namespace+" has its ServiceAccount", waitLimit, func(ctx context.Context) (bool, error) {
		_, err := t.lab.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, err
	})
	if err != nil {
		return err
	}
	if err := t.makeClaim(ctx, lab.Claim(namespace, "alone", immediateClass, claimSize)); err != nil {
		return err
	}
	if err := t.runPod(ctx, lab.Claim(namespace, "data", className, claimSize), shellPod(namespace, "data", "data")); err != nil {
		return err
	}
	if err := t.try(ctx, "delete namespace "+namespace, func(ctx context.Context) error { return spaces.Delete(ctx, namespace, metav1.DeleteOptions{}) }); err != nil {
		return err
	}
	return t.wait(ctx, allGone, namespace, func(ctx context.Context) (bool, error) {
		_, err := spaces.Get(ctx, namespace, metav1.GetOptions{})
		return gone(err)
	})
}

// replicas are those of the StatefulSet that is there from the beginning to the end.
const replicas = 3

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
	if err := t.try(ctx, "delete namespace "+loadSpace, func(ctx context.Context) error { return spaces.Delete(ctx, loadSpace, metav1.DeleteOptions{}) }); err != nil {
		return err
	}
	return t.wait(ctx, allGone, loadSpace, func(ctx context.Context) (bool, error) {
		_, err := spaces.Get(ctx, loadSpace, metav1.GetOptions{})
		return gone(err)
	})
}
