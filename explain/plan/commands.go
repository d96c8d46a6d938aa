package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/internal/shell"
	"github.com/topodisk/topodisk/topology"
)

// Options are what the commands of a plan name and the cluster doesn't know.
type Options struct {
	Image      string // registry and name of topodisk's image
	Chart      string // where topodisk's chart is
	OtherChart string // where the other driver's chart is; empty: its name, as the release's labels have it
}

// DefaultOptions are those of the pages of topodisk.
func DefaultOptions() Options {
	return Options{Image: "registry.example.com/storage/topodisk", Chart: "charts/topodisk"}
}

// usualNamespace is the namespace that topodisk is installed in unless the Secret with the credentials is in another.
const usualNamespace = "kube-system"

// kubectlIn returns a kubectl command for a namespace.
func kubectlIn(namespace string, words ...string) shell.Command {
	return shell.New(append([]string{"kubectl", "-n", namespace}, words...)...)
}

// installation is what `helm install` sets.
type installation struct {
	namespace   string
	region      string
	clusterID   string
	secret      string   // the Secret with the access key
	keys        []string // its keys of ID and secret, if they must be said
	kubeletDir  string   // empty: the chart's
	snapshotter bool
	groups      bool // of snapshots
	takeover    bool // the other driver's CSIDriver object may be there
}

// command returns `helm install`.
func (in installation) command(o Options) shell.Command {
	sets := []string{"region=" + in.region, "image.repository=" + o.Image, "credentials.existingSecret=" + in.secret}
	if in.clusterID != "" {
		sets = append(sets, "clusterID="+in.clusterID)
	}
	if len(in.keys) == 2 {
		sets = append(sets, "credentials.keys.accessKeyID="+in.keys[0], "credentials.keys.accessKeySecret="+in.keys[1])
	}
	if in.kubeletDir != "" {
		sets = append(sets, "nodePlugin.kubeletDir="+in.kubeletDir)
	}
	if in.snapshotter {
		sets = append(sets, "csiSnapshotter.enabled=true")
	}
	if in.groups {
		sets = append(sets, "csiSnapshotter.featureGates=CSIVolumeGroupSnapshot=true")
	}
	if in.takeover {
		sets = append(sets, "takeover=true")
	}
	install := shell.New("helm", "install", "topodisk", o.Chart, "--namespace", in.namespace)
	for _, set := range sets {
		install = install.Line("--set", set)
	}
	return install
}

// step is the installation itself, with hints of what is to be put in by hand.
func (in installation) step(o Options, hints ...string) Step {
	if in.region == noRegion {
		hints = slices.Insert(hints, 0, "put the region of your instances in for "+noRegion)
	}
	if o.Image == DefaultOptions().Image {
		hints = slices.Insert(hints, 0, "put your image in for "+o.Image+", or give --image")
	}
	text := strings.Join(hints, "; ")
	if text != "" {
		text = strings.ToUpper(text[:1]) + text[1:] + "."
	}
	return Step{Title: "Install topodisk", ByHand: text, Commands: []shell.Command{in.command(o)}}
}

// noRegion stands in commands for the region that no node tells.
const noRegion = "REGION"

// regionOf returns the region that most Nodes are in, noRegion if none tells.
func regionOf(f *Facts) string {
	votes := map[string]int{}
	best := noRegion
	for i := range f.Nodes {
		n := &f.Nodes[i]
		_, region := disk.InstanceOfNode(n.Spec.ProviderID, n.Labels[disk.InstanceLabel])
		if region == "" {
			region = n.Labels[topology.RegionKey]
		}
		if region == "" {
			continue
		}
		if votes[region]++; votes[region] > votes[best] || votes[region] == votes[best] && region < best {
			best = region
		}
	}
	return best
}

// installationOf returns what the cluster tells of how topodisk is to be installed.
func installationOf(f *Facts) installation {
	in := installation{namespace: usualNamespace, region: regionOf(f), secret: "topodisk-credentials"}
	for i := range f.SnapshotClasses {
		if c := &f.SnapshotClasses[i]; c.Driver == f.Driver {
			in.snapshotter = true
			in.groups = in.groups || c.Kind == "VolumeGroupSnapshotClass"
		}
	}
	return in
}

// credentialsStep is for a cluster that has no Secret with an access key.
func credentialsStep(in installation) Step {
	return Step{
		Title: "Make the credentials",
		ByHand: "Write an access key with the policy of deploy/ram-policy.json into two files; or use OIDC (credentials.source=oidc), " +
			"see docs/install.md.",
		Commands: []shell.Command{kubectlIn(in.namespace, "create", "secret", "generic", in.secret).
			Line("--from-file=access-key-id=./access-key-id", "--from-file=access-key-secret=./access-key-secret")},
	}
}

// rolloutStep waits until topodisk serves.
func rolloutStep(in installation) Step {
	return Step{Title: "See that it works", Commands: []shell.Command{
		kubectlIn(in.namespace, "rollout", "status", "deployment/topodisk-controller", "daemonset/topodisk-node", "--timeout=5m"),
		shell.New("kubectl", "get", "csinodes", "--output", "custom-columns=NODE:.metadata.name,DRIVERS:.spec.drivers[*].name"),
		shell.New("kubectl", "get", "events", "--all-namespaces", "--field-selector", "type=Warning"),
	}}
}

// uninstallSteps take topodisk away, once what it has begun has ended.
func uninstallSteps(in installation) []Step {
	journal := labels.Set{"csi.storage.k8s.io/managed-by": "disk-provisioner"}.String()
	return []Step{{
		Title: "Stop topodisk's controller",
		ByHand: "The last command must print nothing: it names claims (by UID) whose disks may be made and not saved yet. " +
			"If it prints any, scale back to 2 replicas until the metric topodisk_provisioner_creates_in_flight is 0, and begin anew.",
		Commands: []shell.Command{
			kubectlIn(in.namespace, "scale", "deployment", "topodisk-controller", "--replicas=0"),
			kubectlIn(in.namespace, "wait", "pod", "--for=delete", "--timeout=2m").Line("--selector=" + explain.ControllerSelector),
			kubectlIn(in.namespace, "get", "configmap", "--selector="+journal).
				Line(`--output=go-template={{range .items}}{{range $claim, $order := .data}}{{$claim}}{{"\n"}}{{end}}{{end}}`),
		},
	}, {
		Title:    "Take topodisk away",
		Commands: []shell.Command{shell.New("helm", "uninstall", "topodisk", "--namespace", in.namespace)},
	}}
}

// patched is what a strategic merge patch says of one container.
type patched struct {
	Name    string   `json:"name"`
	Delete  string   `json:"$patch,omitempty"`
	Command []string `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
}

// patchWithout returns the strategic merge patch that takes a driver out of a workload and leaves all else, or what stands against it.
func (s *server) patchWithout(driver string) (patch, obstacle string) {
	var containers []patched
	for i, service := range s.services {
		c := &s.Pod.Containers[i]
		switch {
		case service.vague():
			return "", fmt.Sprintf("what its container %s serves can't be told from its arguments", c.Name)
		case !slices.Contains(service.drivers, driver):
		case service.only(driver):
			containers = append(containers, patched{Name: c.Name, Delete: "delete"})
		default:
			change, ok := withoutDriver(c, service.role, driver)
			if !ok {
				return "", fmt.Sprintf("its container %s serves %s for several drivers, and no list of drivers is among its arguments", c.Name, driver)
			}
			containers = append(containers, change)
		}
	}
	var body struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []patched `json:"containers"`
				} `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	body.Spec.Template.Spec.Containers = containers
	text, err := json.Marshal(body)
	if err != nil {
		return "", err.Error()
	}
	return string(text), ""
}

// withoutDriver returns the command line of a container of several drivers without one of them; false if its flags can't say so.
func withoutDriver(c *corev1.Container, as role, driver string) (patched, bool) {
	before := flagged(c, as)
	left := c.DeepCopy()
	left.Command, left.Args = linesWithout(c.Command, driver), linesWithout(c.Args, driver)
	want := slices.DeleteFunc(slices.Clone(before), func(name string) bool { return name == driver })
	if len(want) == 0 || !slices.Equal(flagged(left, as), want) {
		return patched{}, false
	}
	change := patched{Name: c.Name}
	if !slices.Equal(left.Command, c.Command) {
		change.Command = left.Command
	}
	if !slices.Equal(left.Args, c.Args) {
		change.Args = left.Args
	}
	return change, true
}

// linesWithout takes a driver out of every flag that lists drivers.
func linesWithout(words []string, driver string) []string {
	words = slices.Clone(words)
	for i, word := range words {
		m := driverFlag.FindStringSubmatch(word)
		switch {
		case m == nil:
		case m[2] != "":
			words[i] = strings.TrimSuffix(word, m[3]) + listWithout(m[3], driver)
		case i+1 < len(words):
			words[i+1] = listWithout(words[i+1], driver)
		}
	}
	return words
}

func listWithout(names, driver string) string {
	rest := slices.DeleteFunc(strings.Split(names, ","), func(name string) bool { return longName(strings.TrimSpace(name)) == driver })
	return strings.Join(rest, ",")
}
