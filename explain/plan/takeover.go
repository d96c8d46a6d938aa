package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/internal/shell"
	"github.com/topodisk/topodisk/provisioner/request"
)

// Takeover tells what serves volumes today, what topodisk would refuse, and how the cluster is switched to topodisk and back. None of its
// commands takes a workload away that serves another driver, too: such a one loses the driver's part alone.
func Takeover(f *Facts, o Options) *Plan {
	p := &Plan{Kind: KindTakeover, Driver: f.Driver}
	p.needs(f, "Deployment", "DaemonSet", "StatefulSet", "CSIDriver", "StorageClass", "VolumeAttributesClass", "VolumeSnapshotClass",
		"VolumeGroupSnapshotClass", "PersistentVolume", "VolumeAttachment", "Lease", "CSINode")
	others, own := servers(f)
	p.Serving = rowsOf(f, slices.Concat(others, own))
	own = slices.DeleteFunc(own, func(s server) bool { return !s.vague() && !slices.Contains(s.serves(), f.Driver) })
	read, refused := findRefused(f, p)
	t := &takeover{Facts: f, Plan: p, options: o, in: installationOf(f), own: own}
	t.in.takeover = true
	for _, s := range others {
		if s.vague() || slices.Contains(s.serves(), f.Driver) {
			t.leaving = append(t.leaving, s)
		}
	}
	findHidden(f, p, slices.Concat(others, own))
	t.settle()
	t.noteDeletions()
	p.unchecked("RAM actions", "only RAM knows what the credentials may do: compare their policy with deploy/ram-policy.json")
	p.unchecked("tags and serial numbers of disks", "only ECS knows them all; volumes that stand out by their objects are named above")
	switch {
	case unreadWorkloads(f):
		p.Summary = "Deployments, DaemonSets and StatefulSets could not all be read, so how to switch can't be told"
		return p
	case len(t.leaving) == 0 && len(own) > 0:
		p.Summary = fmt.Sprintf("topodisk serves %s already, and nothing else does", f.Driver)
		return p
	case len(t.leaving) == 0 && p.Count(Blocks) == 0:
		p.Summary = fmt.Sprintf("nothing serves %s: `kubectl topodisk plan install` tells how to install topodisk", f.Driver)
		return p
	}
	t.steps()
	p.Summary = fmt.Sprintf("of %d classes and volumes of %s, %d would be refused; disks are to be switched off in %s",
		read, f.Driver, refused, counted(len(t.leaving), "workload"))
	if n := p.Count(Blocks); n > 0 {
		p.Summary += fmt.Sprintf(", once %s against it %s dealt with", counted(n, "thing"), map[bool]string{true: "is", false: "are"}[n == 1])
	}
	return p
}

func unreadWorkloads(f *Facts) bool {
	return slices.ContainsFunc(f.Unread, func(u explain.Unread) bool {
		return slices.Contains([]string{"Deployment", "DaemonSet", "StatefulSet"}, u.Kind)
	})
}

// takeover is a Plan of its kind as it is made.
type takeover struct {
	*Facts
	*Plan

	options Options
	in      installation
	leaving []server // the workloads that serve the driver and aren't topodisk's
	own     []server // topodisk's, of the driver
	noKey   bool     // no Secret with an access key was found
}

// recent is how old a Lease's last renewal may be for its holder to live.
const recent = 5 * time.Minute

// findHidden finds what serves the driver and is in no workload that was read, and returns whether there is anything.
func findHidden(f *Facts, p *Plan, read []server) (found bool) {
	serving := func(kind ...string) bool {
		return slices.ContainsFunc(read, func(s server) bool {
			return slices.Contains(kind, s.Kind) && (s.vague() || slices.Contains(s.serves(), f.Driver))
		})
	}
	name := request.ObjectName(f.Driver)
	for i := range f.Leases {
		l := &f.Leases[i]
		if l.Name == name && l.Spec.RenewTime != nil && f.At.Sub(l.Spec.RenewTime.Time) < recent && !serving("Deployment", "StatefulSet") {
			found = true
			p.find(Blocks, explain.Ref{Kind: "Lease", Namespace: l.Namespace, Name: l.Name},
				"is renewed by %q, and no Deployment serves %s: its controller runs outside of the cluster, as a managed one of ACK does; "+
					"have it switched off there first", deref(l.Spec.HolderIdentity), f.Driver)
		}
	}
	nodes := 0
	for i := range f.CSINodes {
		for _, d := range f.CSINodes[i].Spec.Drivers {
			if d.Name == f.Driver {
				nodes++
			}
		}
	}
	if nodes > 0 && !serving("DaemonSet") {
		found = true
		p.find(Blocks, explain.Ref{Kind: "CSINode", Name: "*"},
			"%s registers %s, and no DaemonSet serves it: find out what runs its node plugin, and stop it first", counted(nodes, "node"), f.Driver)
	}
	return found
}

func deref(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// settle finds out, from the other driver's containers, how topodisk is to be installed.
func (t *takeover) settle() {
	t.noKey = true
	for _, s := range t.leaving {
		for i, service := range s.services {
			if service.role == driverRole {
				t.settleFrom(s, &s.Pod.Containers[i])
			}
		}
		if dir := kubeletDirOf(&s.Pod, t.Driver); dir != "" && dir != "/var/lib/kubelet" {
			t.in.kubeletDir = dir
		}
		if s.Kind != "DaemonSet" && t.in.clusterID == "" && !s.vague() {
			t.find(Note, s.ref(), "has no %s, so the disks that it made have no tag of the cluster: "+
				"topodisk knows them by the tag that a step below sets; switch while no claim is being provisioned", clusterIDEnv)
		}
	}
}

func (t *takeover) settleFrom(s server, c *corev1.Container) {
	refs := map[string]*corev1.SecretKeySelector{}
	for _, e := range c.Env {
		switch {
		case e.Name == clusterIDEnv && e.Value != "":
			t.in.clusterID = e.Value
		case e.Name == regionEnv && e.Value != "":
			t.in.region = e.Value
		case e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil:
			refs[strings.TrimPrefix(e.Name, "ALIBABA_CLOUD_")] = e.ValueFrom.SecretKeyRef
		}
	}
	id, secret := refs["ACCESS_KEY_ID"], refs["ACCESS_KEY_SECRET"]
	if s.Kind == "DaemonSet" || id == nil || secret == nil || id.Name != secret.Name {
		return
	}
	t.noKey, t.in.namespace, t.in.secret = false, s.Namespace, id.Name
	t.in.keys = nil
	if id.Key != "id" || secret.Key != "secret" { // which disk-driver knows
		t.in.keys = []string{id.Key, secret.Key}
	}
}

// kubeletDirOf returns the kubelet's directory, which the path of the driver's socket begins with; empty if none tells.
func kubeletDirOf(pod *corev1.PodSpec, driver string) string {
	var paths []string
	for i := range pod.Volumes {
		if at := pod.Volumes[i].HostPath; at != nil {
			paths = append(paths, at.Path)
		}
	}
	for i := range pod.Containers {
		for _, word := range pod.Containers[i].Args {
			_, at, _ := strings.Cut(word, "--kubelet-registration-path=")
			paths = append(paths, at)
		}
	}
	for _, path := range paths {
		for _, plugins := range []string{"/csi-plugins/", "/plugins/"} {
			if dir, _, found := strings.Cut(path, plugins+driver); found {
				return dir
			}
		}
	}
	return ""
}

// noteDeletions says which PersistentVolumes get a finalizer, and which of them were made by hand and go with their disks.
func (t *takeover) noteDeletions() {
	for i := range t.Volumes {
		v := &t.Volumes[i]
		if !request.IsOfDriver(v, t.Driver) || v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
			continue
		}
		if v.Status.Phase == corev1.VolumeBound && !request.HasFinalizer(v) {
			t.find(Note, volumeRef(v), "gets the finalizer %s, so that it can't go before its disk", request.Finalizer)
		}
		if !request.IsMadeBy(v, t.Driver) {
			when := "when its claim is gone"
			if v.Status.Phase == corev1.VolumeReleased {
				when = "at once, for its claim is gone"
			}
			t.find(Note, volumeRef(v), "made by hand, with policy Delete: topodisk deletes it with its disk %s, as csi-provisioner does since v5.1; "+
				"set the policy Retain first to keep the disk", when)
		}
	}
}

// steps writes the commands, and the way back. Where topodisk runs already the other driver has come back, and nothing is installed.
func (t *takeover) steps() {
	install := len(t.own) == 0
	var copies, keep, stop, back []Step
	releases := map[string]bool{} // of the incumbent's chart, by namespace/name
	for i := range t.leaving {
		s := &t.leaving[i]
		if len(servesBesides(s, t.Driver)) > 0 {
			t.find(Note, s.ref(), "goes on serving %s", others(s, t.Driver))
		}
		if m := s.manager(); s.isOfIncumbentChart() {
			if key := m.namespace + "/" + m.release; !releases[key] {
				releases[key] = true
				k, off, undo := t.releaseOff(m)
				keep, stop, back = append(keep, k...), append(stop, off...), append(back, undo)
			}
			continue
		}
		off, undo := t.workloadOff(s)
		stop, back = append(stop, off), append(back, undo...)
	}
	copies = append(copies, t.copies(install))
	var driver []Step
	if object := t.driverObject(); object != nil && install {
		driver = append(driver, Step{Title: "Delete the CSIDriver object, so that the chart makes topodisk's own; volumes don't mind",
			Commands: []shell.Command{shell.New("kubectl", "delete", "csidriver", t.Driver, "--ignore-not-found")}})
		if len(releases) == 0 {
			back = append(back, Step{Title: "Make the CSIDriver object anew",
				Commands: []shell.Command{shell.New("kubectl", "create", "--filename", copyOf(t.driverRef()))}})
		}
	}
	if !install {
		t.in.namespace = t.own[0].Namespace
		if len(releases) > 0 {
			driver = append(driver, t.remakeDriverObject())
		}
	}
	t.Steps = slices.Concat(copies, t.tagStep(), keep, t.snapshotStep(releases), stop, driver)
	if install {
		if t.noKey {
			t.Steps = slices.Insert(t.Steps, len(copies), credentialsStep(t.in))
		}
		t.Steps = append(t.Steps, t.in.step(t.options, t.clusterHint()...), rolloutStep(t.in))
	}
	t.Back = slices.Concat(uninstallSteps(t.in), back)
}

// unknownCluster stands in commands for the cluster's ID if no container tells it.
const unknownCluster = "CLUSTER-ID"

// tagStep makes the disks of PersistentVolumes the cluster's: topodisk changes nothing else. The other driver ignores the tag.
func (t *takeover) tagStep() []Step {
	var ids []string
	for i := range t.Volumes {
		if csi := t.Volumes[i].Spec.CSI; csi != nil && csi.Driver == t.Driver {
			ids = append(ids, csi.VolumeHandle)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	step := Step{Title: "Tag the disks of this cluster's PersistentVolumes, with keys of your own", ByHand: "Once topodisk runs, " +
		"`kubectl topodisk audit` prints the commands for snapshots, and for disks that the other driver makes after this step."}
	if t.in.clusterID == "" {
		step.ByHand += fmt.Sprintf(" Put in for %s the value of clusterID that you install with, or else what "+
			"`kubectl get namespace kube-system --output jsonpath={.metadata.uid}` prints.", unknownCluster)
	}
	step.Commands = disk.TagCommands(t.in.region, "disk", cmp.Or(t.in.clusterID, unknownCluster), ids...)
	return []Step{step}
}

// remakeDriverObject makes topodisk's CSIDriver object anew: switched off, the chart of another release takes away the object of the name,
// whoever made it.
func (t *takeover) remakeDriverObject() Step {
	step := Step{
		Title:    "Make topodisk's CSIDriver object anew, which goes with the other chart's disk driver",
		ByHand:   "Use the version of topodisk's chart that is installed.",
		Commands: []shell.Command{shell.New("kubectl", "delete", "csidriver", t.Driver, "--ignore-not-found")},
	}
	if own := t.own[0].manager(); own.release != "" {
		step.Commands = append(step.Commands,
			shell.New("helm", "upgrade", own.release, t.options.Chart, "--namespace", own.namespace, "--reset-then-reuse-values"))
	} else {
		step.ByHand = "Use the version of topodisk's manifests that is installed."
		step.Commands = append(step.Commands, shell.New("kubectl", "apply", "--kustomize", "deploy"))
	}
	return step
}

// clusterHint is for a cluster whose ID the other driver's containers don't tell.
func (t *takeover) clusterHint() []string {
	if t.in.clusterID != "" {
		return nil
	}
	return []string{"set clusterID to the ID that the other driver's disks have as tag ack.aliyun.com, if they have one"}
}

// servesBesides returns what a workload serves besides the driver.
func servesBesides(s *server, driver string) []string {
	return slices.DeleteFunc(s.serves(), func(name string) bool { return name == driver })
}

// copyOf is the file that an object is copied to.
func copyOf(r explain.Ref) string {
	parts := slices.DeleteFunc([]string{"before-topodisk", strings.ToLower(r.Kind), r.Namespace, r.Name}, func(part string) bool { return part == "" })
	return strings.Join(parts, "-") + ".yaml"
}

// driverRef names the CSIDriver object.
func (t *takeover) driverRef() explain.Ref { return explain.Ref{Kind: "CSIDriver", Name: t.Driver} }

// copies saves what the next steps change. Where topodisk is installed the CSIDriver object is its own, and the copy of the other
// driver's, which the way back needs, stays.
func (t *takeover) copies(install bool) Step {
	step := Step{Title: "Keep copies of what is changed"}
	if t.driverObject() != nil && install {
		step.Commands = append(step.Commands, shell.New("kubectl", "get", "csidriver", t.Driver, "--output", "yaml").To(copyOf(t.driverRef())))
	}
	for i := range t.leaving {
		s := &t.leaving[i]
		step.Commands = append(step.Commands,
			kubectlIn(s.Namespace, "get", s.resource(), "--output", "yaml").To(copyOf(s.ref())))
	}
	return step
}
