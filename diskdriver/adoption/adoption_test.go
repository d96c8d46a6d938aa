package adoption_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/topodisk/topodisk/diskdriver/adoption"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/ecssim"
)

const (
	driver = "diskplugin.csi.alibabacloud.com"
	mine   = "c1"
)

// bed is a simulated ECS and the PersistentVolumes of a cluster.
type bed struct {
	t       *testing.T
	sim     *ecssim.Server
	client  *ecs.Client
	volumes []runtime.Object
	ids     map[string]disk.ID
}

func newBed(t *testing.T) *bed {
	t.Helper()
	sim, err := ecssim.New(ecssim.Config{Region: "cn-hangzhou", Zones: []string{"cn-hangzhou-a"}, AccessKeys: map[string]string{"id": "secret"}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := ecs.NewClient(ecs.Config{
		Region: "cn-hangzhou", ClusterID: mine, Transport: sim, Credentials: credentials.Static(credentials.Keys{AccessKeyID: "id", AccessKeySecret: "secret"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &bed{t: t, sim: sim, client: client, ids: map[string]disk.ID{}}
}

// policy puts a RAM policy on.
func (b *bed) policy(file string) {
	b.t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		b.t.Fatal(err)
	}
	var p ecssim.Policy
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), "REPLACE-WITH-THE-CLUSTER-ID", mine)), &p); err != nil {
		b.t.Fatal(err)
	}
	if err := b.sim.SetPolicy("", &p); err != nil {
		b.t.Fatal(err)
	}
}

// add makes a disk and, unless provisioner is "none", its PersistentVolume; an operator's has no provisioner.
func (b *bed) add(name, provisioner string, tags disk.Tags) {
	b.t.Helper()
	try := disk.Attempt{Zone: "cn-hangzhou-a", Category: "cloud_essd", Size: 20}
	d, err := b.client.Create(b.t.Context(), disk.Spec{Name: name, Tags: tags}, try, disk.Token(name))
	if err != nil {
		b.t.Fatal(err)
	}
	b.ids[name] = d.ID
	if provisioner == "none" {
		return
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: string(d.ID)}
	if provisioner != "" {
		pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": provisioner}
	}
	b.volumes = append(b.volumes, pv)
}

func (b *bed) run(adopted ...string) error {
	owner := disk.Owner{Region: "cn-hangzhou", Cluster: mine, Adopted: adopted}
	return adoption.Run(b.t.Context(), fake.NewClientset(b.volumes...), driver, owner, b.client)
}

// tagged are the names of the disks that are the cluster's by their tag.
func (b *bed) tagged() (names []string) {
	for _, d := range b.sim.Disks() {
		for name, id := range b.ids {
			if string(id) == d.ID && d.Tags[disk.OwnerTag] == mine {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

func old(cluster, creator string) disk.Tags {
	return disk.Tags{disk.ClusterTag: cluster, disk.CreatedByTag: creator}
}

// TestAdoption: an upgrade tags what a PersistentVolume of the cluster stands for, under the policy of 0.1.0, and nothing else.
func TestAdoption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		full := old(mine, disk.Creator)
		for n := len(full); n < disk.MostTags; n++ {
			full[fmt.Sprint("tag-", n)] = ""
		}
		const incumbent = "alibabacloud-csi-plugin"
		b.add("ours", driver, old(mine, disk.Creator))
		b.add("ours-too", driver, old(mine, disk.Creator).And(disk.Tags{"team": "web"}))
		b.add("without-volume", "none", old(mine, disk.Creator))
		b.add("static", "", old(mine, disk.Creator))
		b.add("of-another-driver-of-the-cluster", "other.example.com", old(mine, disk.Creator))
		b.add("of-the-incumbent", driver, old(mine, incumbent))
		b.add("of-a-node", driver, disk.Tags{disk.ClusterTag: mine})
		b.add("of-another-cluster", driver, old("c2", disk.Creator))
		b.add("marked-by-another-cluster", driver, old(mine, disk.Creator).And(disk.Tags{disk.OwnerTag: "c2"}))
		b.add("stripped", driver, old(mine, disk.Creator).And(disk.Tags{disk.HistoryTag: string(disk.HistoryNew)}))
		b.add("full", driver, full)
		b.policy("../testdata/ram-policy-0.1.0.json")
		for range 2 {
			if err := b.run(disk.Creator); err != nil {
				t.Fatal(err)
			}
			if got, want := b.tagged(), []string{"ours", "ours-too"}; !slices.Equal(got, want) {
				t.Errorf("tagged %v, want %v", got, want)
			}
		}
		if n := b.sim.Count("TagResources", ""); n != 1 {
			t.Errorf("%d TagResources, want one for all, and none where all is done", n)
		}
		if err := b.run(disk.Creator, incumbent); err != nil {
			t.Fatal(err)
		}
		if got, want := b.tagged(), []string{"of-the-incumbent", "ours", "ours-too"}; !slices.Equal(got, want) {
			t.Errorf("with the incumbent's: tagged %v, want %v", got, want)
		}
	})
}

// TestAdoptionUnderThePolicy: once the policy is on, nothing can be tagged into the cluster, and the error says where to look.
func TestAdoptionUnderThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.add("ours", driver, old(mine, disk.Creator))
		b.policy("../../deploy/ram-policy.json")
		err := b.run(disk.Creator)
		if disk.KindOf(err) != disk.Denied || !strings.Contains(err.Error(), "kubectl topodisk audit") {
			t.Errorf("%v, want Denied, with what names the disks", err)
		}
		if got := b.tagged(); len(got) > 0 {
			t.Errorf("tagged %v", got)
		}
	})
}

// TestAdoptionOfMany: a hundred and twenty disks take three calls.
func TestAdoptionOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		for n := range 120 {
			b.add(fmt.Sprint("disk-", n), driver, old(mine, disk.Creator))
			time.Sleep(time.Second)
		}
		if err := b.run(disk.Creator); err != nil {
			t.Fatal(err)
		}
		if n := b.sim.Count("TagResources", ""); n != 3 || len(b.tagged()) != 120 {
			t.Errorf("%d TagResources tagged %d disks, want 3 and 120", n, len(b.tagged()))
		}
	})
}
