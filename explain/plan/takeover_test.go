package plan

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/topodisk/topodisk/diskdriver"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/test/lab/aliyun"
)

// TestTakeoverTagsByItsCommands runs the commands of the plan that tag disks: those of the driver's PersistentVolumes get the tag, and no
// others.
func TestTakeoverTagsByItsCommands(t *testing.T) {
	const region, zone, volumes = "cn-hangzhou", "cn-hangzhou-a", 60 // more than one command tags
	sim, err := ecssim.New(ecssim.Config{Region: region, Zones: []string{zone}, AccessKeys: map[string]string{"operator": "secret"}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(sim)
	defer server.Close()
	client, err := ecs.NewClient(ecs.Config{
		Region: region, Endpoint: server.URL, ClusterID: "somebody", Credentials: credentials.Static(credentials.Keys{AccessKeyID: "operator", AccessKeySecret: "secret"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range []string{"c0123", "it's; mine"} {
		f, want := &Facts{Facts: explain.Facts{Driver: diskdriver.DefaultName}}, map[string]bool{}
		for n := range volumes + 1 {
			made, err := client.Create(t.Context(), disk.Spec{Name: "n"}, disk.Attempt{Zone: zone, Category: "cloud_essd", Size: 20}, disk.Token(fmt.Sprint(cluster, n)))
			if err != nil {
				t.Fatal(err)
			}
			pv := corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: string(made.ID)}}
			pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: diskdriver.DefaultName, VolumeHandle: string(made.ID)}
			if n == volumes {
				pv.Spec.CSI.Driver = "other.example.com"
			}
			want[string(made.ID)] = n < volumes
			f.Volumes = append(f.Volumes, pv)
		}
		f.Workloads = []Workload{{Kind: "Deployment", ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "csi-provisioner"}, Replicas: 2, Pod: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "csi-plugin", Image: "mirror.example.com/acs/csi-plugin:v1", Args: []string{"--driver=disk", "--endpoint=unix://csi/csi.sock"},
				Env: []corev1.EnvVar{{Name: clusterIDEnv, Value: cluster}, {Name: regionEnv, Value: region}},
			}},
		}}}
		for _, step := range Takeover(f, DefaultOptions()).Steps {
			for _, command := range step.Commands {
				if !aliyun.IsCommand(command.String()) {
					continue
				}
				if err := (aliyun.CLI{Endpoint: server.URL, KeyID: "operator", Secret: "secret"}).Run(t.Context(), command.String()); err != nil {
					t.Error(err)
				}
			}
		}
		for _, d := range sim.Disks() {
			if wanted, made := want[d.ID]; made && (d.Tags["topodisk.io/cluster"] == cluster) != wanted {
				t.Errorf("disk %s has tags %v; is it to be of cluster %q: %v", d.ID, d.Tags, cluster, wanted)
			}
		}
	}
}

// randomServer is a workload of the incumbent, in one of the forms that it has had: whose program serves some drivers, each with or
// without sidecars of its own, perhaps with a snapshot-controller and a stranger beside them.
func randomServer(r *rand.Rand, n int) Workload {
	kind := []string{"Deployment", "DaemonSet", "StatefulSet"}[r.IntN(3)]
	w := Workload{Kind: kind, ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: fmt.Sprintf("server-%d", n)}, Replicas: 2}
	drivers := slices.DeleteFunc([]string{"disk", "nas", "oss", "bmcpfs"}, func(string) bool { return r.IntN(2) == 0 })
	if r.IntN(3) == 0 {
		drivers = []string{"disk"}
	}
	r.Shuffle(len(drivers), func(i, j int) { drivers[i], drivers[j] = drivers[j], drivers[i] })
	merged := r.IntN(3) > 0
	if merged {
		w.Pod.Containers = append(w.Pod.Containers, program(r, "csi-plugin", drivers))
	}
	for _, d := range drivers {
		volume := d + "-plugin-dir"
		source := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		if r.IntN(2) == 0 {
			source = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet/csi-plugins/" + d + alibabaSuffix}}
		}
		w.Pod.Volumes = append(w.Pod.Volumes, corev1.Volume{Name: volume, VolumeSource: source})
		mount := []corev1.VolumeMount{{Name: volume, MountPath: "/csi"}}
		if !merged {
			c := program(r, d+"-driver", []string{d})
			c.VolumeMounts = mount
			w.Pod.Containers = append(w.Pod.Containers, c)
		}
		for _, sidecar := range []string{"csi-provisioner", "csi-attacher", "csi-node-driver-registrar"} {
			if r.IntN(2) == 0 {
				w.Pod.Containers = append(w.Pod.Containers, corev1.Container{Name: d + "-" + sidecar, Image: "mirror.example.com:5000/" + sidecar + ":v1", Args: []string{"--csi-address=/csi/csi.sock"}, VolumeMounts: mount})
			}
		}
	}
	if r.IntN(4) == 0 {
		w.Pod.Containers = append(w.Pod.Containers, corev1.Container{Name: "external-snapshot-controller", Image: "mirror.example.com/snapshot-controller:v8"})
	}
	if r.IntN(4) == 0 {
		w.Pod.Containers = append(w.Pod.Containers, corev1.Container{Name: "logs", Image: "mirror.example.com/logs", Args: []string{"--driver=disk"}})
	}
	switch r.IntN(4) {
	case 0:
		w.Annotations = map[string]string{"component.version": "v1"}
	case 1:
		w.Labels = map[string]string{"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": []string{"alibaba-cloud-csi-driver-1.36.2", "own-0.1"}[r.IntN(2)]}
		w.Annotations = map[string]string{"meta.helm.sh/release-name": fmt.Sprintf("release-%d", r.IntN(2)), "meta.helm.sh/release-namespace": "kube-system"}
	}
	r.Shuffle(len(w.Pod.Containers), func(i, j int) {
		w.Pod.Containers[i], w.Pod.Containers[j] = w.Pod.Containers[j], w.Pod.Containers[i]
	})
	return w
}

// program is a container of the drivers, in one of the spellings of its arguments.
func program(r *rand.Rand, name string, drivers []string) corev1.Container {
	c := corev1.Container{Name: name, Image: "mirror.example.com:5000/acs/csi-plugin:v1@sha256:0"}
	names := slices.Clone(drivers)
	if r.IntN(2) == 0 {
		for i := range names {
			names[i] += alibabaSuffix
		}
	}
	words := []string{"--endpoint=unix://csi/driverplugin.csi.alibabacloud.com-replace/csi.sock"}
	switch text := strings.Join(names, ","); r.IntN(4) {
	case 0:
		words = append(words, "--driver", text)
	case 1: // nothing tells, unless its mounts do
	default:
		words = append(words, "--driver="+text)
	}
	if r.IntN(4) == 0 {
		c.Command = append([]string{"/bin/plugin"}, words...)
	} else {
		c.Args = words
	}
	return c
}

// What disks are switched off with never takes away what serves anything else, and leaves it serving that.
func TestTakeoverNeverStopsAnotherDriver(t *testing.T) {
	patches, stops := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		f := &Facts{Facts: explain.Facts{Driver: diskdriver.DefaultName}}
		for n := range 1 + r.IntN(4) {
			f.Workloads = append(f.Workloads, randomServer(r, n))
		}
		before, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		p := Takeover(f, DefaultOptions())
		for _, step := range p.Steps {
			for _, c := range step.Commands {
				command := c.String()
				for i := range f.Workloads {
					w := &f.Workloads[i]
					switch {
					case !touches(command, w):
					case strings.Contains(command, " patch "):
						patches++
						checkPatch(t, seed, command, w)
					case serving(w) != "disk" && (serving(w) != "map[snapshot-controller:true]" || !keepsSnapshots(p)):
						t.Fatalf("seed %d: %s serves %q:\n%s", seed, w.Name, serving(w), command)
					default:
						stops++
					}
				}
			}
		}
		if after, _ := json.Marshal(f); string(after) != string(before) {
			t.Fatalf("seed %d: the facts were changed", seed)
		}
	}
	if patches < 100 || stops < 100 {
		t.Errorf("only %d patches and %d stops", patches, stops)
	}
}

// keepsSnapshots says whether the plan leaves the cluster a snapshot-controller: by hand, or by another workload that goes on running one.
func keepsSnapshots(p *Plan) bool {
	byHand := slices.ContainsFunc(p.Steps, func(s Step) bool { return strings.Contains(s.Title, "snapshot-controller of kubernetes-csi") })
	return byHand || slices.ContainsFunc(p.Serving, func(s Serving) bool {
		return slices.Contains(s.Serves, SnapshotController) && !strings.Contains(s.ManagedBy, incumbentChart)
	})
}

// touches says whether a command changes or deletes the workload.
func touches(command string, w *Workload) bool {
	if strings.HasPrefix(command, "helm upgrade") {
		release := w.Annotations["meta.helm.sh/release-name"]
		return release != "" && strings.Contains(w.Labels["helm.sh/chart"], incumbentChart) && strings.Contains(command, " "+release+" ") && strings.Contains(command, "plugin.enabled=false")
	}
	return regexp.MustCompile(`\b(patch|scale|delete)\b .*\b`+regexp.QuoteMeta(w.Name)+`\b`).MatchString(command) && !strings.HasPrefix(command, "kubectl get")
}

// serving is what a workload serves by what randomServer gave it, without the code that is tested.
func serving(w *Workload) string {
	served := map[string]bool{}
	for _, c := range w.Pod.Containers {
		text := c.Name + strings.Join(c.Command, " ") + strings.Join(c.Args, " ")
		for _, what := range []string{"nas", "oss", "bmcpfs", "snapshot-controller", "logs"} {
			if strings.Contains(text, what) {
				served[what] = true
			}
		}
	}
	if len(served) == 0 {
		return "disk"
	}
	return fmt.Sprint(served)
}

var patchForm = regexp.MustCompile(`--patch '(.*)'$`)

// checkPatch applies a patch as the API server does.
func checkPatch(t *testing.T, seed uint64, command string, w *Workload) {
	t.Helper()
	m := patchForm.FindStringSubmatch(command)
	if m == nil {
		t.Fatalf("seed %d: no patch: %s", seed, command)
	}
	old, err := json.Marshal(appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: w.Pod}}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := strategicpatch.StrategicMergePatch(old, []byte(m[1]), appsv1.Deployment{})
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	var made appsv1.Deployment
	if err := json.Unmarshal(text, &made); err != nil {
		t.Fatal(err)
	}
	left := Workload{Kind: w.Kind, ObjectMeta: w.ObjectMeta, Pod: made.Spec.Template.Spec}
	if len(left.Pod.Containers) == 0 {
		t.Fatalf("seed %d: no container is left of %s", seed, w.Name)
	}
	was, is := server{w, servicesOf(&w.Pod)}, server{&left, servicesOf(&left.Pod)}
	want := servesBesides(&was, diskdriver.DefaultName)
	if got := is.serves(); !slices.Equal(got, want) || serving(w) != serving(&left) {
		t.Fatalf("seed %d: %s serves %v (%s) after the patch, want %v (%s):\n%s", seed, w.Name, got, serving(&left), want, serving(w), command)
	}
}

func deployment(name string, containers ...corev1.Container) Workload {
	return Workload{Kind: "Deployment", ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Replicas: 1, Pod: corev1.PodSpec{Containers: containers}}
}

// topodisk is a Deployment of topodisk's chart for a driver of the name.
func topodisk(driver string) Workload {
	w := deployment("topodisk-controller", corev1.Container{Name: "disk-driver", Image: "example.com/topodisk", Args: []string{"--driver-name=" + driver}})
	w.Labels = map[string]string{"app.kubernetes.io/name": "topodisk"}
	return w
}

// renamed is what the chart's nameOverride makes of the labels.
func renamed(w Workload) Workload {
	w.Labels = map[string]string{"app.kubernetes.io/name": "disks", "app.kubernetes.io/part-of": "topodisk"}
	return w
}

func stopped(w Workload) Workload {
	w.Replicas = 0
	return w
}

func TestWhatStandsAgainstATakeoverIsNamed(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	renewed := func(before time.Duration) []coordinationv1.Lease {
		at, holder := metav1.NewMicroTime(now.Add(-before)), "hosted-1"
		return []coordinationv1.Lease{{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "diskplugin-csi-alibabacloud-com"},
			Spec: coordinationv1.LeaseSpec{RenewTime: &at, HolderIdentity: &holder}}}
	}
	registered := []storagev1.CSINode{{ObjectMeta: named("n1"), Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: diskdriver.DefaultName}}}}}
	disk := corev1.Container{Name: "disk", Image: "acs/csi-plugin:v1", Args: []string{"--driver=disk"}}
	for name, test := range map[string]struct {
		facts Facts
		want  []string // of the findings, or of the summary if there is no finding
		steps bool
	}{
		"hosted":                    {Facts{Facts: explain.Facts{Leases: renewed(time.Second)}}, []string{`blocks: is renewed by "hosted-1"`}, true},
		"a Lease of the past":       {Facts{Facts: explain.Facts{Leases: renewed(time.Hour)}}, []string{"nothing serves"}, false},
		"a Lease of a Deployment":   {Facts{Facts: explain.Facts{Leases: renewed(time.Second)}, Workloads: []Workload{deployment("d", disk)}}, []string{"note: has no CLUSTER_ID"}, true},
		"nodes of nobody":           {Facts{Facts: explain.Facts{CSINodes: registered}}, []string{"blocks: 1 node registers"}, true},
		"arguments that don't tell": {Facts{Workloads: []Workload{deployment("d", corev1.Container{Name: "c", Image: "acs/csi-plugin:v1"})}}, []string{"blocks: what its container c serves can't be told"}, true},
		"one process without a list": {Facts{Workloads: []Workload{deployment("d", corev1.Container{Name: "c", Image: "acs/csi-plugin:v1",
			Args: []string{"--sockets=/csi/diskplugin.csi.alibabacloud.com,/csi/nasplugin.csi.alibabacloud.com"}})}}, []string{"blocks: its container c serves"}, true},
		"a watcher of the driver":     {Facts{Workloads: []Workload{deployment("d", corev1.Container{Name: "c", Image: "watch", Args: []string{"diskplugin.csi.alibabacloud.com"}})}}, []string{"nothing serves"}, false},
		"scaled to 0":                 {Facts{Workloads: []Workload{stopped(deployment("d", disk))}}, []string{"nothing serves"}, false},
		"topodisk alone":              {Facts{Workloads: []Workload{topodisk(diskdriver.DefaultName)}}, []string{"topodisk serves diskplugin.csi.alibabacloud.com already"}, false},
		"topodisk under nameOverride": {Facts{Workloads: []Workload{renamed(topodisk(diskdriver.DefaultName))}}, []string{"topodisk serves diskplugin.csi.alibabacloud.com already"}, false},
		"topodisk of another name":    {Facts{Workloads: []Workload{topodisk("disk.example.com"), deployment("d", disk)}}, []string{"switched off in 1 workload"}, true},
		"unread":                      {Facts{Facts: explain.Facts{Unread: []explain.Unread{{Kind: "DaemonSet", Reason: "forbidden"}}}, Workloads: []Workload{deployment("d", disk)}}, []string{"could not all be read"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := test.facts
			f.At, f.Driver = now, diskdriver.DefaultName
			p := Takeover(&f, DefaultOptions())
			text := lines(p) + p.Summary
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in:\n%s", want, text)
				}
			}
			if (len(p.Steps) > 0) != test.steps || p.Incomplete != (name == "unread") {
				t.Errorf("steps %v, incomplete %t", p.Steps, p.Incomplete)
			}
		})
	}
}

// That nothing serves the driver isn't concluded from workloads that were not read, or are not in the cluster: topodisk over another driver
// takes the sockets of its node plugin, and a CSIDriver object that is deleted is in use.
func TestInstallIsNotPlannedOverWhatIsNotSeen(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at, holder := metav1.NewMicroTime(now.Add(-time.Second)), "hosted-1"
	for name, test := range map[string]struct {
		facts explain.Facts
		want  string
	}{
		"workloads that are not read": {explain.Facts{Unread: []explain.Unread{{Kind: "DaemonSet", Reason: "forbidden"}}}, "could not all be read"},
		"a hosted controller": {explain.Facts{Leases: []coordinationv1.Lease{{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "diskplugin-csi-alibabacloud-com"},
			Spec: coordinationv1.LeaseSpec{RenewTime: &at, HolderIdentity: &holder}}}}, `blocks: is renewed by "hosted-1"`},
		"nodes of nobody": {explain.Facts{CSINodes: []storagev1.CSINode{{ObjectMeta: named("n1"),
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: diskdriver.DefaultName}}}}}}, "blocks: 1 node registers"},
	} {
		t.Run(name, func(t *testing.T) {
			f := Facts{Facts: test.facts, Version: "v1.35.0", Drivers: []storagev1.CSIDriver{{ObjectMeta: named(diskdriver.DefaultName)}}}
			f.At, f.Driver = now, diskdriver.DefaultName
			p := Install(&f, DefaultOptions())
			text := lines(p) + p.Summary
			if !strings.Contains(text, test.want) || strings.Contains(text, "nothing serves it") || len(p.Steps) > 0 || !p.Incomplete && !p.Harms() {
				t.Errorf("incomplete %t, %d steps:\n%s", p.Incomplete, len(p.Steps), text)
			}
		})
	}
}

// What was not read may have the zone.
func TestAZoneIsNotDeniedUnread(t *testing.T) {
	f := factsOf(t, "drain")
	f.Unread = []explain.Unread{{Kind: "Node", Reason: "forbidden"}}
	if _, err := Drain(f, "cn-hangzhou-x"); err == nil || !strings.Contains(err.Error(), "can't be told: objects of kind Node could not be read: forbidden") {
		t.Errorf("got %v", err)
	}
	if _, err := Drain(f, "cn-hangzhou-h"); err != nil {
		t.Error(err)
	}
}

func TestArgumentsOfPlansAreChecked(t *testing.T) {
	f := factsOf(t, "soldout")
	for _, test := range []struct{ zone, category, want string }{
		{"cn-hangzhou-x", "cloud_essd", `ZONE "cn-hangzhou-x" is not a zone of the cluster's nodes and volumes: allowed are cn-hangzhou-h, cn-hangzhou-i`},
		{"cn-hangzhou-h", "cloud_esd", `TYPE "cloud_esd" is no disk category of ECS: allowed are cloud, cloud_auto`},
		{"cn-hangzhou-h", "local_ssd_pro", `TYPE "local_ssd_pro" is no disk of this driver: it is part of an instance`},
	} {
		if _, err := SoldOut(f, test.zone, test.category); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s %s: %v, want %s", test.zone, test.category, err, test.want)
		}
	}
	if _, err := Drain(&Facts{}, "h"); err == nil || !strings.Contains(err.Error(), "none of its nodes and volumes names one") {
		t.Errorf("a cluster without zones: %v", err)
	}
	if _, err := Drain(f, ""); err == nil || !strings.HasPrefix(err.Error(), `ZONE "" is not`) {
		t.Errorf("drain of no zone: %v", err)
	}
}

func TestOldClustersAreRefused(t *testing.T) {
	for version, want := range map[string]string{"v1.30.9": "needs Kubernetes 1.31", "v1.31.0-aliyun.1": "", "v1.40.0": "", "": "the version of Kubernetes"} {
		p := Install(&Facts{Version: version, Facts: explain.Facts{Driver: diskdriver.DefaultName}}, DefaultOptions())
		text := lines(p) + fmt.Sprint(p.NotChecked)
		if want != "" && !strings.Contains(text, want) || want == "" && strings.Contains(text, "Kubernetes") {
			t.Errorf("%s: %s", version, text)
		}
	}
}
