//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/topodisk/topodisk/explain/plan"
	"github.com/topodisk/topodisk/explain/plan/reader"
	"github.com/topodisk/topodisk/test/labtest"
)

// otherDriver is the name of the driver that the plan is about: another than the lab's own.
const otherDriver = "aplugin.csi.alibabacloud.com"

// The commands of a takeover take the disk driver out of workloads that serve NAS and OSS too, and those of the way back bring the cluster
// back to where it was.
func TestTakeoverByThePlansCommands(t *testing.T) {
	p := &planned{T: labtest.T{T: t}, dir: t.TempDir()}
	p.connect()
	p.deploy("takeover-ack", "plan-shared")
	p.deploy("takeover-disks-alone", "plan-alone")
	p.serves("plan-alone/csi-plugin "+otherDriver, "plan-alone/csi-provisioner "+otherDriver,
		"plan-shared/csi-plugin "+otherDriver+" nasplugin.csi.alibabacloud.com ossplugin.csi.alibabacloud.com",
		"plan-shared/csi-provisioner "+otherDriver+" nasplugin.csi.alibabacloud.com ossplugin.csi.alibabacloud.com snapshot-controller")
	before := p.plan()
	p.run(before.Steps)
	p.serves("plan-shared/csi-plugin nasplugin.csi.alibabacloud.com ossplugin.csi.alibabacloud.com",
		"plan-shared/csi-provisioner nasplugin.csi.alibabacloud.com ossplugin.csi.alibabacloud.com snapshot-controller")
	if _, err := p.objects.StorageV1().CSIDrivers().Get(t.Context(), otherDriver, metav1.GetOptions{}); err == nil {
		t.Error("the CSIDriver object is still there")
	}
	p.run(before.Back)
	if after := p.text(p.plan()); after != p.text(before) {
		t.Errorf("the way back leads elsewhere; the plan was\n%s\nand is\n%s", p.text(before), after)
	}
}

// planned is a cluster of another driver.
type planned struct {
	labtest.T
	objects kubernetes.Interface
	kinds   dynamic.Interface
	dir     string // of the copies that the commands make
}

func (p *planned) connect() {
	config, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig)
	p.Must(err)
	p.objects, err = kubernetes.NewForConfig(config)
	p.Must(err)
	p.kinds, err = dynamic.NewForConfig(config)
	p.Must(err)
}

// deploy makes the workloads and CSIDrivers of the facts that the plan's own tests have, in a namespace of its own.
func (p *planned) deploy(facts, namespace string) {
	text, err := os.ReadFile(filepath.Join("../../explain/plan/testdata", facts+".yaml"))
	p.Must(err)
	renamed := strings.NewReplacer("diskplugin.csi", "aplugin.csi", "disk,nas", "a,nas", "[--driver, disk]", "[--driver, a]",
		"disk-plugin-dir", "a-plugin-dir", "disk-provisioner-dir", "a-provisioner-dir")
	var f plan.Facts
	p.Must(yaml.UnmarshalStrict([]byte(renamed.Replace(string(text))), &f))
	_, err = p.objects.CoreV1().Namespaces().Create(p.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	p.Must(err)
	p.Cleanup(func() {
		p.Must(p.objects.CoreV1().Namespaces().Delete(context.Background(), namespace, metav1.DeleteOptions{}))
	})
	for i := range f.Drivers {
		p.createDriver(f.Drivers[i].Name)
	}
	for i := range f.Workloads {
		if f.Workloads[i].Namespace != "monitoring" {
			p.createWorkload(&f.Workloads[i], namespace)
		}
	}
}

func (p *planned) createDriver(name string) {
	drivers := p.objects.StorageV1().CSIDrivers()
	if _, err := drivers.Get(p.Context(), name, metav1.GetOptions{}); err == nil {
		return
	}
	_, err := drivers.Create(p.Context(), &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	p.Must(err)
	p.Cleanup(func() { p.Must(drivers.Delete(context.Background(), name, metav1.DeleteOptions{})) })
}

func (p *planned) createWorkload(w *plan.Workload, namespace string) {
	labels := map[string]string{"app": w.Name}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: w.Name, Annotations: w.Annotations}
	pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: w.Pod}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	var err error
	if w.Kind == "DaemonSet" {
		_, err = p.objects.AppsV1().DaemonSets(namespace).Create(p.Context(), &appsv1.DaemonSet{ObjectMeta: meta,
			Spec: appsv1.DaemonSetSpec{Selector: selector, Template: pod}}, metav1.CreateOptions{})
	} else {
		_, err = p.objects.AppsV1().Deployments(namespace).Create(p.Context(), &appsv1.Deployment{ObjectMeta: meta,
			Spec: appsv1.DeploymentSpec{Replicas: &w.Replicas, Selector: selector, Template: pod}}, metav1.CreateOptions{})
	}
	p.Must(err)
}

// plan reads the cluster anew.
func (p *planned) plan() *plan.Plan {
	p.Helper()
	facts, err := reader.Read(p.Context(), reader.Clients{Objects: p.objects, Kinds: p.kinds}, otherDriver, plan.KindTakeover, time.Now())
	p.Must(err)
	made := plan.Takeover(facts, plan.DefaultOptions())
	if made.Incomplete {
		p.Fatalf("not all could be read: %v", made.NotChecked)
	}
	return made
}

func (p *planned) text(made *plan.Plan) string {
	var b strings.Builder
	p.Must(made.WriteText(&b))
	return b.String()
}

// serves checks which workloads of the test's namespaces serve what.
func (p *planned) serves(want ...string) {
	p.Helper()
	var got []string
	for _, s := range p.plan().Serving {
		if strings.HasPrefix(s.Object.Namespace, "plan-") {
			got = append(got, s.Object.Namespace+"/"+s.Object.Name+" "+strings.Join(s.Serves, " "))
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		p.Errorf("these serve:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// run runs the commands that are about the other driver: no test here installs topodisk.
func (p *planned) run(steps []plan.Step) {
	p.Helper()
	for _, step := range steps {
		for _, c := range step.Commands {
			command := c.String()
			if strings.HasPrefix(command, "helm ") || strings.Contains(command, "secret generic") ||
				strings.Contains(command, "topodisk-controller") || strings.Contains(command, "name=topodisk") {
				continue
			}
			sh := exec.CommandContext(p.Context(), "sh", "-ec", command)
			sh.Dir = p.dir
			sh.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig, "PATH="+filepath.Dir(cluster.Kubectl)+":"+os.Getenv("PATH"))
			if out, err := sh.CombinedOutput(); err != nil {
				p.Fatalf("%s\n%v\n%s", command, err, out)
			}
		}
	}
}
