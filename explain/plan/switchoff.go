package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/internal/shell"
)

// How what runs the other driver is switched off, and on again: workloads, Helm releases, and what a release takes with it.

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
