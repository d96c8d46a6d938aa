package plan

import (
	"cmp"
	"fmt"
	"maps"
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
		"VolumeGroupSnapshotClass", "PersistentVolume", "VolumeAttachment")
	others, own := servers(f)
	p.Serving = rowsOf(f, slices.Concat(others, own))
	own = slices.DeleteFunc(own, func(s server) bool { return !s.vague() && !slices.Contains(s.serves(), f.Driver) })
	read, refused := findRefused(f, p)
	t := &takeover{Facts: f, Plan: p, options: o, in: installationOf(f), own: own}
	for _, s := range others {
		if s.vague() || slices.Contains(s.serves(), f.Driver) {
			t.leaving = append(t.leaving, s)
		}
	}
	t.findHidden(others, own)
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

// findHidden finds what serves the driver and is in no workload that was read.
func (t *takeover) findHidden(others, own []server) {
	serving := func(kind ...string) bool {
		return slices.ContainsFunc(slices.Concat(others, own), func(s server) bool {
			return slices.Contains(kind, s.Kind) && (s.vague() || slices.Contains(s.serves(), t.Driver))
		})
	}
	name := request.ObjectName(t.Driver)
	for i := range t.Leases {
		l := &t.Leases[i]
		if l.Name == name && l.Spec.RenewTime != nil && t.At.Sub(l.Spec.RenewTime.Time) < recent && !serving("Deployment", "StatefulSet") {
			t.find(Blocks, explain.Ref{Kind: "Lease", Namespace: l.Namespace, Name: l.Name},
				"is renewed by %q, and no Deployment serves %s: its controller runs outside of the cluster, as a managed one of ACK does; "+
					"have it switched off there first", deref(l.Spec.HolderIdentity), t.Driver)
		}
	}
	nodes := 0
	for i := range t.CSINodes {
		for _, d := range t.CSINodes[i].Spec.Drivers {
			if d.Name == t.Driver {
				nodes++
			}
		}
	}
	if nodes > 0 && !serving("DaemonSet") {
		t.find(Blocks, explain.Ref{Kind: "CSINode", Name: "*"},
			"%s registers %s, and no DaemonSet serves it: find out what runs its node plugin, and stop it first", counted(nodes, "node"), t.Driver)
	}
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
	slices.Sort(ids)
	step := Step{Title: "Tag the disks of this cluster's PersistentVolumes, with keys of your own", ByHand: "Once topodisk runs, " +
		"`kubectl topodisk audit` prints the commands for snapshots, and for disks that the other driver makes after this step."}
	if t.in.clusterID == "" {
		step.ByHand += fmt.Sprintf(" Put in for %s the value of clusterID that you install with, or else what "+
			"`kubectl get namespace kube-system --output jsonpath={.metadata.uid}` prints.", unknownCluster)
	}
	for some := range slices.Chunk(slices.Compact(ids), disk.MostTagged) {
		step.Commands = append(step.Commands, disk.TagCommand(t.in.region, "disk", cmp.Or(t.in.clusterID, unknownCluster), some...))
	}
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

// workloadOff switches the driver off in a workload that no known chart made.
func (t *takeover) workloadOff(s *server) (off Step, back []Step) {
	m := s.manager()
	hint := ""
	switch {
	case m.release != "":
		hint = fmt.Sprintf("Which values of chart %s switch disks off is not known here: find them and set them, "+
			"or the next `helm upgrade` of release %s puts the driver back.", m.chart, m.release)
	case m.component != "" && !s.servesOnly(t.Driver):
		hint = fmt.Sprintf("It is an ACK component. Don't uninstall it, for it serves %s, too; an upgrade of it in the console puts the disk "+
			"driver back, so repeat this step after one.", others(s, t.Driver))
	case m.component != "":
		hint = "It is an ACK component: uninstall it in the console, or an upgrade puts it back."
	case m.label != "":
		hint = fmt.Sprintf("%s manages it and may put it back: stop that first.", m.label)
	}
	if s.servesOnly(t.Driver) {
		return t.wholeOff(s, hint)
	}
	patch, obstacle := s.patchWithout(t.Driver)
	if obstacle != "" {
		t.find(Blocks, s.ref(), "%s: switch disks off in it by hand, and leave the rest", obstacle)
		byHand := strings.TrimSpace("No command can be given, for " + obstacle + ". " + hint)
		return Step{Title: fmt.Sprintf("Switch disks off in %s %s", s.Kind, s.Name), ByHand: byHand}, nil
	}
	off = Step{
		Title:  fmt.Sprintf("Switch disks off in %s %s, which goes on serving %s", s.Kind, s.Name, others(s, t.Driver)),
		ByHand: hint,
		Commands: []shell.Command{
			kubectlIn(s.Namespace, "patch", s.resource(), "--type=strategic", "--patch", patch),
			kubectlIn(s.Namespace, "rollout", "status", s.resource(), "--timeout=10m"),
		},
	}
	undo := kubectlIn(s.Namespace, "rollout", "undo", s.resource())
	return off, []Step{{Title: fmt.Sprintf("Switch disks on again in %s %s", s.Kind, s.Name), Commands: []shell.Command{undo}}}
}

// others names what a workload serves besides the driver.
func others(s *server, driver string) string {
	names := servesBesides(s, driver)
	if len(names) == 0 {
		return "what its other containers are for"
	}
	return list(shortNames(names), len(names))
}

// wholeOff stops a workload that serves nothing but the driver.
func (t *takeover) wholeOff(s *server, hint string) (off Step, back []Step) {
	if s.Kind == "DaemonSet" {
		stop := kubectlIn(s.Namespace, "delete", "daemonset", s.Name, "--cascade=foreground")
		start := shell.New("kubectl", "create", "--filename", copyOf(s.ref()))
		return Step{Title: "Stop the node plugin: Pods keep their disks, and new ones wait for topodisk's", ByHand: hint, Commands: []shell.Command{stop}},
			[]Step{{Title: "Start the node plugin again", Commands: []shell.Command{start}}}
	}
	stop := kubectlIn(s.Namespace, "scale", s.resource(), "--replicas=0")
	start := kubectlIn(s.Namespace, "scale", s.resource(), fmt.Sprintf("--replicas=%d", s.Replicas))
	return Step{Title: "Stop the controller", ByHand: hint, Commands: []shell.Command{stop}},
		[]Step{{Title: "Start the controller again", Commands: []shell.Command{start}}}
}

// incumbentChart is the chart whose values are known here.
const incumbentChart = "alibaba-cloud-csi-driver"

func isIncumbentChart(chart string) bool { return strings.HasPrefix(chart, incumbentChart+"-") }

// manyDrivers stands in the endpoint of the incumbent's program for the name of each driver that it serves.
const manyDrivers = "driver" + alibabaSuffix + "-replace"

// isOfIncumbentChart says whether a Helm release of the incumbent's chart made the workload. That chart's objects don't name it, so
// without another chart's name they are known by their program.
func (s *server) isOfIncumbentChart() bool {
	m := s.manager()
	if m.release == "" || m.chart != "" {
		return m.release != "" && isIncumbentChart(m.chart)
	}
	return slices.ContainsFunc(s.Pod.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(slices.Concat(c.Command, c.Args), func(word string) bool { return strings.Contains(word, manyDrivers) })
	})
}

// releaseOff switches the driver off in a release of the incumbent's chart, and nothing else that the release serves.
func (t *takeover) releaseOff(m manager) (keep, off []Step, back Step) {
	if kept, kinds := t.classesOf(m); len(kinds) > 0 {
		step := Step{Title: fmt.Sprintf("Keep the classes of release %s, which the chart would delete with its disk driver", m.release)}
		for _, kind := range kinds {
			step.Commands = append(step.Commands,
				shell.New(slices.Concat([]string{"kubectl", "annotate", kind}, kept[kind], []string{"helm.sh/resource-policy=keep", "--overwrite"})...))
		}
		keep = []Step{step}
	}
	values := []string{"csi.disk.enabled=false"}
	if t.releaseServesOnly(m) {
		values = append(values, "controller.enabled=false", "plugin.enabled=false")
	}
	name, hint := t.options.OtherChart, ""
	if t.options.OtherChart == "" {
		name = incumbentChart
		hint = fmt.Sprintf("Put in for %s where you have that chart, of the version that `%s` shows, or give --other-chart. "+
			"If it shows another chart, that one's values are not known here.", name, shell.New("helm", "list", "--namespace", m.namespace))
	}
	words := []string{"helm", "upgrade", m.release, name}
	if version, named := strings.CutPrefix(m.chart, incumbentChart+"-"); named {
		words = append(words, "--version", version)
	}
	upgrade := shell.New(append(words, "--namespace", m.namespace, "--reuse-values", "--wait")...)
	for _, value := range values {
		upgrade = upgrade.Line("--set", value)
	}
	off = []Step{{Title: fmt.Sprintf("Switch disks off in Helm release %s", m.release), ByHand: hint, Commands: []shell.Command{upgrade}}}
	return keep, off, t.releaseOn(m)
}

// releaseOn is the way back from releaseOff. Helm can't take up again a custom resource that it kept: it makes the deleted one anew.
func (t *takeover) releaseOn(m manager) Step {
	on := Step{Title: fmt.Sprintf("Switch disks on again in Helm release %s", m.release),
		ByHand: fmt.Sprintf("If the release had other revisions since, name the one before disks were switched off: `%s`.",
			shell.New("helm", "history", m.release, "--namespace", m.namespace))}
	kept, kinds := t.classesOf(m)
	for _, kind := range kinds {
		if kind != storageClasses {
			on.Commands = append(on.Commands, shell.New(slices.Concat([]string{"kubectl", "delete", kind}, kept[kind], []string{"--ignore-not-found"})...))
		}
	}
	on.Commands = append(on.Commands, shell.New("helm", "rollback", m.release, "--namespace", m.namespace, "--wait"))
	return on
}

// sameRelease says whether a workload belongs to the Helm release.
func sameRelease(a, b manager) bool { return a.release == b.release && a.namespace == b.namespace }

// releaseServesOnly says whether all workloads of the release serve the driver and nothing else but the snapshot-controller, which goes with
// the chart's disk driver anyway.
func (t *takeover) releaseServesOnly(m manager) bool {
	for i := range t.Workloads {
		w := &t.Workloads[i]
		s := server{w, servicesOf(&w.Pod)}
		more := slices.ContainsFunc(s.services, func(x service) bool { return !x.only(t.Driver) && x.role != controllers })
		if more && sameRelease(w.manager(), m) {
			return false
		}
	}
	return true
}

// storageClasses is the resource of classes that is Kubernetes' own; the others are custom.
const storageClasses = "storageclass"

// classesOf returns the driver's classes that a Helm release made, by resource.
func (t *takeover) classesOf(m manager) (names map[string][]string, kinds []string) {
	names = map[string][]string{}
	add := func(kind, name string, annotations map[string]string) {
		if annotations["meta.helm.sh/release-name"] == m.release && annotations["meta.helm.sh/release-namespace"] == m.namespace {
			names[kind] = append(names[kind], name)
		}
	}
	for i := range t.Classes {
		if c := &t.Classes[i]; c.Provisioner == t.Driver {
			add(storageClasses, c.Name, c.Annotations)
		}
	}
	for i := range t.SnapshotClasses {
		if c := &t.SnapshotClasses[i]; c.Driver == t.Driver {
			add(strings.ToLower(c.Kind), c.Name, c.Annotations)
		}
	}
	for _, kind := range names {
		slices.Sort(kind)
	}
	return names, slices.Sorted(maps.Keys(names))
}

// snapshotStep keeps a snapshot-controller in the cluster: the incumbent's chart runs it beside its disk driver and takes it away with it.
func (t *takeover) snapshotStep(releases map[string]bool) []Step {
	var going, staying []string
	for i := range t.Workloads {
		w := &t.Workloads[i]
		s := server{w, servicesOf(&w.Pod)}
		if !slices.Contains(s.serves(), SnapshotController) {
			continue
		}
		if m := w.manager(); releases[m.namespace+"/"+m.release] {
			going = append(going, w.Kind+" "+w.Name)
		} else {
			staying = append(staying, w.Name)
		}
	}
	if len(going) == 0 || len(staying) > 0 {
		return nil
	}
	return []Step{{
		Title: "Install the snapshot-controller of kubernetes-csi/external-snapshotter",
		ByHand: fmt.Sprintf("The one in %s goes with the chart's disk driver, and snapshots need one. Two of them do no harm, for they elect a leader. "+
			"In a checkout of that project: kubectl kustomize deploy/kubernetes/snapshot-controller | kubectl apply --filename -",
			list(going, len(going))),
	}}
}
