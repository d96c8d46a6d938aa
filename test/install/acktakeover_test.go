//go:build e2einstall

package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/explain/plan"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/aliyun"
	"github.com/topodisk/topodisk/test/lab/images"
	"github.com/topodisk/topodisk/test/lab/programs"
	"github.com/topodisk/topodisk/test/lab/simulator"
)

const (
	nasClass  = "alibabacloud-cnfs-nas"
	ossVolume = "oss-bucket"
	// servingGap is how long a new Pod with a volume of NAS may take beyond twice the time that its plugin or its provisioner was being
	// replaced: the kubelet's pauses between tries double, and a Lease of 15 s may have to run out.
	servingGap = 40 * time.Second
	// longestAbsence is the time that a Pod gets to end (30 s), and as much for the next to start on a busy machine.
	longestAbsence = 60 * time.Second
)

// takesOverFromACK switches disks of a cluster whose one plugin serves disks, NAS and OSS to topodisk and back, by the commands
// that kubectl topodisk plan takeover prints. Pods with volumes of NAS and OSS write and start throughout; a Pod with a disk
// runs all the while.
func (s *scene) takesOverFromACK() {
	s.sh("notes", "echo kept >/data/kept && sync")
	s.helm("uninstall")
	s.awaitGone()
	components := s.writeComponents()
	s.kubectl("apply -f " + components)
	s.awaitComponents()
	others := s.startOthers()

	takeover := s.planTakeover()
	s.runSteps(takeover.Steps)
	s.awaitReady(late)
	s.servesDisks("by topodisk")
	s.componentsServe("nas", "oss")

	// An update of the component brings its disk driver back.
	s.kubectl("apply -f " + components)
	s.awaitComponents()
	s.componentsServe("disk", "nas", "oss")
	s.runSteps(s.planTakeover().Steps)
	s.awaitReady(late)
	s.servesDisks("by topodisk again")
	s.componentsServe("nas", "oss")

	s.runSteps(takeover.Back)
	s.awaitGone()
	s.awaitComponents()
	s.componentsServe("disk", "nas", "oss")
	if capacity := s.kubectl("get csidriver " + lab.DriverName + " -o jsonpath={.spec.storageCapacity}"); capacity == "true" {
		s.Error("the scheduler waits for topodisk's CSIStorageCapacity objects")
	}
	others.end()

	s.installInsteadOf(components)
	s.Must(contains(s.sh("notes", "cat /data/kept"), "kept"))
}

// installInsteadOf takes the components away and installs topodisk, whose cluster has another ID than theirs.
func (s *scene) installInsteadOf(components string) {
	s.Helper()
	s.retagAsUsual("notes")
	s.kubectl("delete -f " + components + " --wait")
	s.WaitFor("no Pod of the components is left", late, func(ctx context.Context) (bool, error) {
		pods, err := s.componentPods(ctx)
		return err == nil && len(pods) == 0, err
	})
	s.kubectl("-n " + home + " delete secret " + secretName + " --ignore-not-found")
	s.makeSecret(otherID, otherSecret)
	s.install()
	s.awaitReady(late)
}

// otherChart is where the chart of the other driver's layout is.
func otherChart() string {
	return filepath.Join(root, "test", "install", "testdata", "alibaba-cloud-csi-driver")
}

// writeOtherValues writes what the other driver's chart is told to the desk.
func (s *scene) writeOtherValues(more string) (file string) {
	s.Helper()
	var instances []string
	for _, n := range s.Nodes {
		instances = append(instances, n.Name+"="+n.Instance)
	}
	file = filepath.Join(desk, "other-values.yaml")
	s.Must(os.WriteFile(file, fmt.Appendf(nil, "instances: %q\n%s", strings.Join(instances, ","), more), 0o600))
	return file
}

// writeComponents writes the workloads of ACK's components, which serve disks, NAS and OSS, to the desk: those of the chart, applied
// without Helm and without the classes, as ACK's component manager leaves them.
func (s *scene) writeComponents() (file string) {
	s.Helper()
	values := s.writeOtherValues("component: v1.34.1-1234567-aliyun\ndefaultStorageClass: {enabled: false}\ndefaultVolumeSnapshotClass: {enabled: false}\n")
	objects, err := s.run(s.Context(), helm, "template", "csi", otherChart(), "--namespace=kube-system", "--values="+values)
	s.Must(err)
	file = filepath.Join(desk, "components.yaml")
	s.Must(os.WriteFile(file, []byte(objects+"\n---\n"+otherKey()), 0o600))
	return file
}

// otherKey is the Secret with the other driver's access key.
func otherKey() string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: csi-access-key, namespace: kube-system}\nstringData: {id: %q, secret: %q}\n", otherID, otherSecret)
}

// componentImages are the images of the components: what serves and registers, the sidecars of Kubernetes that NAS and OSS need, and
// what only waits.
func componentImages() []images.Image {
	one := func(program string, names ...string) images.Image {
		return images.Image{Names: names, Entrypoint: []string{"/program"}, Files: []images.File{{Path: "program", From: program}}}
	}
	const registry = "registry.example.com/acs/"
	return []images.Image{
		one(built("fakeplugin"), registry+"csi-plugin:v1.36.2", registry+"csi-node-driver-registrar:v2.15"),
		one(filepath.Join(root, ".build", "upstream", "csi-provisioner"), registry+"csi-provisioner:v6.2.1-aliyun"),
		one(filepath.Join(programs.Default.BuiltNodes(root).Sidecars, "csi-attacher"), registry+"csi-attacher:v4.12.0-aliyun"),
	}
}

// idleImages are the names of the components' other images.
func idleImages() []string {
	return []string{"registry.example.com/acs/csi-resizer:v2.1.1-aliyun", "registry.example.com/acs/csi-snapshotter:v8.5.1-aliyun", "registry.example.com/acs/snapshot-controller:v8.5.1-aliyun"}
}

func (s *scene) awaitComponents() {
	s.Helper()
	s.kubectl("-n kube-system rollout status deployment/csi-provisioner", limit)
	s.kubectl("-n kube-system rollout status daemonset/csi-plugin", limit)
}

func (s *scene) componentPods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := s.Client.CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{LabelSelector: "app in (csi-provisioner, csi-plugin)"})
	return list.Items, err
}

// componentsServe checks which drivers the components' plugin serves.
func (s *scene) componentsServe(drivers ...string) {
	s.Helper()
	for _, workload := range []string{"deployment/csi-provisioner", "daemonset/csi-plugin"} {
		args := s.kubectl("-n kube-system get " + workload + " -o jsonpath={.spec.template.spec.containers[*].args[*]}")
		s.Must(contains(args, "--driver="+strings.Join(drivers, ",")))
	}
}

// takeoverPlan is what a script reads of a plan in JSON.
type takeoverPlan struct {
	Findings    []plan.Finding
	Steps, Back []takeoverStep
}

type takeoverStep struct {
	Title    string
	Commands []string
}

// planTakeover returns what kubectl topodisk plan takeover says.
func (s *scene) planTakeover() *takeoverPlan {
	s.Helper()
	text, err := s.run(s.Context(), s.Kubectl, "topodisk", "plan", "takeover", "--output=json", "--image="+imageName, "--other-chart="+otherChart())
	var exit *exec.ExitError
	found := errors.As(err, &exit) && exit.ExitCode() == 1 // something would be refused
	if err != nil && !found {
		s.Fatal(err)
	}
	var p takeoverPlan
	s.Must(json.Unmarshal([]byte(text), &p))
	for _, f := range p.Findings {
		if f.Effect == plan.Blocks {
			s.Fatalf("%s stands against it: %s", f.Object, f.Message)
		}
	}
	return &p
}

// runSteps runs the commands of a plan's steps on the desk, those of Alibaba Cloud's command line with an operator's key.
func (s *scene) runSteps(steps []takeoverStep) {
	s.Helper()
	if len(steps) == 0 {
		s.Fatal("the plan has no steps")
	}
	for _, step := range steps {
		s.Logf("%s: %s", step.Title, step.Commands)
		cli := aliyun.CLI{Endpoint: s.Simulator.URL, KeyID: simulator.OperatorID, Secret: simulator.OperatorSecret}
		commands := slices.DeleteFunc(slices.Clone(step.Commands), func(command string) bool {
			if !aliyun.IsCommand(command) {
				return false
			}
			s.Must(cli.Run(s.Context(), command))
			return true
		})
		if len(commands) > 0 {
			_, err := s.run(s.Context(), "/bin/sh", "-ec", strings.Join(commands, "\n"))
			s.Must(err)
		}
	}
}

// servesDisks sees that a new claim gets a disk, on every node, that this goes with the claim, and that the one that is there can move.
func (s *scene) servesDisks(when string) {
	s.Helper()
	const own = "disk-on-"
	for _, n := range s.Nodes {
		name := own + n.Name
		s.Must(s.MakeClaim(s.Context(), lab.Claim(namespace, name, className, "20Gi")))
		s.Must(s.makePodOn(s.Context(), n.Name, name, name))
		s.kubectl("wait --for=condition=Ready pod/"+name, limit)
		s.kubectl("delete pod " + name + " --now")
		s.kubectl("delete pvc " + name)
	}
	// Before another driver comes, which detaches nothing here, and another cluster ID.
	s.WaitFor("those disks are gone", late, func(ctx context.Context) (bool, error) {
		disks, err := s.Simulator.Disks(ctx, namespace)
		left := slices.ContainsFunc(disks, func(d ecssim.DiskState) bool { return strings.HasPrefix(d.Tags[disk.ClaimNameTag], own) })
		return err == nil && !left, err
	})
	s.Must(contains(s.sh("notes", "cat /data/kept"), "kept"))
	s.Logf("disks are served %s", when)
}

// others are Pods with volumes of NAS and OSS: two that write for as long as they run, and one after the other that begins.
type others struct {
	scene   *scene
	stop    context.CancelFunc
	ended   chan error
	pods    []time.Duration // from the claim's beginning until the Pod runs
	absence time.Duration   // the longest in which a node had no plugin that was ready, or the cluster no provisioner
}

// writer appends the time to a file of the volume, five times a second, and for comparison to one of the container.
const writer = "trap exit TERM; : >/data/log; append() { while :; do date +%s >>$1; sleep 0.2; done; }; append /log & append /data/log & wait"

func (s *scene) startOthers() *others {
	s.Helper()
	s.kubectl("apply -f " + filepath.Join(root, "test", "install", "testdata", "oss-volume.yaml"))
	s.Must(s.MakeClaim(s.Context(), lab.Claim(namespace, "nas", nasClass, "5Gi")))
	for name, claim := range map[string]string{"nas-writer": "nas", "oss-writer": ossVolume} {
		s.startWriter(name, claim)
	}
	ctx, stop := context.WithCancel(s.Context())
	o := &others{scene: s, stop: stop, ended: make(chan error, 1)}
	go func() {
		both, ctx := errgroup.WithContext(ctx)
		both.Go(func() error { return o.startPods(ctx) })
		both.Go(func() error { return o.watchAbsence(ctx) })
		o.ended <- both.Wait()
	}()
	return o
}

// watchAbsence looks twice a second which nodes have a plugin that is ready, and whether the cluster has a provisioner.
func (o *others) watchAbsence(ctx context.Context) error {
	seen := map[string]time.Time{} // by app and node
	for ctx.Err() == nil {
		pods, err := o.scene.componentPods(o.scene.Context())
		if err != nil {
			return err
		}
		for _, p := range pods {
			place := p.Labels["app"]
			if place == "csi-plugin" {
				place += " of " + p.Spec.NodeName
			}
			if lab.IsReady(&p) && p.DeletionTimestamp == nil {
				if last := seen[place]; !last.IsZero() {
					o.absence = max(o.absence, time.Since(last))
				}
				seen[place] = time.Now()
			}
		}
		time.Sleep(500 * time.Millisecond)
	}
	return nil
}

// startPods makes one Pod after the other, each with a new claim of NAS, on every node in turn.
func (o *others) startPods(ctx context.Context) error {
	s := o.scene
	for n := 0; ctx.Err() == nil; n++ {
		name, begin := fmt.Sprintf("nas-%d", n), time.Now()
		if err := s.MakeClaim(s.Context(), lab.Claim(namespace, name, nasClass, "5Gi")); err != nil {
			return err
		}
		if err := s.makePodOn(s.Context(), s.Nodes[n%len(s.Nodes)].Name, name, name); err != nil {
			return err
		}
		if _, err := s.AwaitRunning(s.Context(), namespace, name, late); err != nil {
			return err
		}
		o.pods = append(o.pods, time.Since(begin))
		if err := s.Client.CoreV1().Pods(namespace).Delete(s.Context(), name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		if err := s.Client.CoreV1().PersistentVolumeClaims(namespace).Delete(s.Context(), name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		time.Sleep(time.Until(begin.Add(3 * pace)))
	}
	return nil
}

// end checks that the writers have written without a pause, and that every Pod has begun soon.
func (o *others) end() {
	s := o.scene
	s.Helper()
	o.stop()
	s.Must(<-o.ended)
	if len(o.pods) < 3 {
		s.Fatalf("%d Pods with volumes of NAS began; want at least 3", len(o.pods))
	}
	slices.Sort(o.pods)
	median, slowest := o.pods[len(o.pods)/2], o.pods[len(o.pods)-1]
	s.Logf("%d Pods with volumes of NAS began, half of them within %.1f s, the slowest after %.1f s; at most %.1f s without a plugin or a provisioner",
		len(o.pods), median.Seconds(), slowest.Seconds(), o.absence.Seconds())
	if most := 2*o.absence + servingGap; slowest > most {
		s.Errorf("a Pod with a volume of NAS began after %s; want each within %s", slowest, most)
	}
	if o.absence > longestAbsence {
		s.Errorf("a node had no plugin, or the cluster no provisioner, for %s; want at most %s", o.absence, longestAbsence)
	}
	for _, name := range []string{"nas-writer", "oss-writer"} {
		s.hasWritten(name)
	}
	s.kubectl("delete pod nas-writer oss-writer --now")
	s.kubectl("delete pvc nas " + ossVolume)
	s.kubectl("delete pv " + ossVolume)
	s.WaitFor("no volume of NAS is left", late, func(ctx context.Context) (bool, error) {
		list, err := s.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(list.Items, func(v corev1.PersistentVolume) bool { return v.Spec.StorageClassName == nasClass }), nil
	})
}

// startWriter starts a Pod that appends the time to a file on a claim's volume for as long as it runs.
func (s *scene) startWriter(name, claim string) {
	s.Helper()
	pod := lab.Pod(namespace, name, claim)
	pod.Spec.Containers[0].Command = []string{"sh", "-c", writer}
	_, err := s.Client.CoreV1().Pods(namespace).Create(s.Context(), pod, metav1.CreateOptions{})
	s.Must(err)
	s.kubectl("wait --for=condition=Ready pod/"+name, limit)
}

// hasWritten checks that a writer has written without a pause that its container didn't have without the volume, and is at it still.
func (s *scene) hasWritten(name string) {
	s.Helper()
	_, beside := s.longestPause(name, "/log")
	last, pause := s.longestPause(name, "/data/log")
	if most := 5*time.Second + beside; pause > most {
		s.Errorf("%s wrote nothing for %s; want at most %s", name, pause, most)
	}
	if idle := time.Since(last); idle > 10*time.Second {
		s.Errorf("%s has written nothing for %s", name, idle)
	}
	if restarts := s.kubectl("get pod " + name + " -o jsonpath={.status.containerStatuses[0].restartCount}"); restarts != "0" {
		s.Errorf("%s was restarted %s times", name, restarts)
	}
}

// longestPause returns when a writer wrote last, and for how long it had not.
func (s *scene) longestPause(name, file string) (last time.Time, pause time.Duration) {
	s.Helper()
	for i, line := range strings.Fields(s.sh(name, "cat "+file)) {
		seconds, err := strconv.ParseInt(line, 10, 64)
		s.Must(err)
		at := time.Unix(seconds, 0)
		if i > 0 {
			pause = max(pause, at.Sub(last))
		}
		last = at
	}
	return last, pause
}
