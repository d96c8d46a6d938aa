//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/provisioner/journal"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/programs"
	"github.com/topodisk/topodisk/test/lab/simulator"
	"github.com/topodisk/topodisk/test/need"
)

// earlierCommit is the last one whose journal has eight ConfigMaps and writes them whole.
const earlierCommit = "8e7712895e689b60e8867c10407a32921b4238d9"

// earlierName is the release that has that commit's manifest.
const earlierName = "earlier"

// earlierVersion is topodisk of that commit, built and installed beside today's at the first need: each has the Roles of its
// own version.
var earlierVersion = sync.OnceValues(func() (e struct {
	programs.Earlier
	*lab.Release
}, err error) {
	root, err := programs.FindRoot()
	if err != nil {
		return e, err
	}
	if e.Earlier, err = programs.BuildEarlier(context.Background(), root, earlierCommit, os.Stderr); err != nil {
		return e, err
	}
	e.Release, err = cluster.InstallRelease(context.Background(), e.Manifest, earlierName)
	return e, err
})

// versions are the controllers of both versions, of which any number run: a driver and a provisioner each.
type versions struct {
	*scene
	old *lab.ControllerPod
}

// newVersions ends today's controller, which runs again when the test is over.
func newVersions(t *testing.T) *versions {
	t.Helper()
	need.Has(t, need.Commit(earlierCommit))
	t.Cleanup(func() { // when the scene's disks are gone, of which that version made some without a tag of the cluster
		if err := underPolicy(context.Background(), cluster, simulator.ClusterID); err != nil {
			t.Error(err)
		}
	})
	v := &versions{scene: newScene(t)}
	v.Must(underPolicyOf(v.Context(), v.Lab, oldPolicy, simulator.ClusterID))
	_, err := earlierVersion()
	v.Must(err)
	v.killToday()
	v.Cleanup(func() {
		v.killOld()
		v.restartController()
	})
	return v
}

func (v *versions) startOld(args ...string) {
	v.Helper()
	e, err := earlierVersion()
	v.Must(err)
	v.old, err = e.StartController(v.Context(), e.Programs, append(slices.Clone(quickElection), args...)...)
	v.Must(err)
}

// killOld may be called twice.
func (v *versions) killOld() {
	v.Helper()
	if v.old != nil {
		v.Must(v.old.End(syscall.SIGKILL))
	}
	v.old = nil
}

func (v *versions) drainOld() {
	v.Helper()
	v.Must(v.old.End(syscall.SIGTERM))
	v.old = nil
}

func (v *versions) startToday(args ...string) {
	v.Helper()
	v.Must(v.Topodisk.StartDriver(v.Context()))
	v.Must(v.Topodisk.StartProvisioner(v.Context(), lab.ProvisionerName, append(slices.Clone(quickElection), args...)...))
}

func (v *versions) killToday() {
	v.Topodisk.Kill(lab.ProvisionerName)
	v.Topodisk.Kill(lab.DriverProgram)
}

// begin makes claims of which a leader hears nothing certain: ECS makes disks for half of them and doesn't tell, and is not
// there for the others. It returns those of each kind when all are in the journal.
func (v *versions) begin(number int) (made, asked []string) {
	v.Helper()
	class := v.Class(atOnce, map[string]string{"type": "cloud_essd"})
	v.fault(ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultDelay, DelayAfter: 40 * time.Second, Count: number / 2})
	v.fault(ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultError, Status: 503, Code: "ServiceUnavailable"})
	var names []string
	for n := range number {
		names = append(names, fmt.Sprintf("order-%d", n))
		v.Claim(names[n], class, "20Gi")
	}
	v.WaitFor("half of the disks are made and unheard, and all records are in the journal", soon, func(ctx context.Context) (bool, error) {
		disks, err := v.Simulator.Disks(ctx, v.Namespace)
		return len(disks) == number/2 && len(v.journal()) == number, err
	})
	for _, name := range names {
		if len(v.disks(name)) > 0 {
			made = append(made, name)
		} else {
			asked = append(asked, name)
		}
	}
	return made, asked
}

// awaitNoDisk waits until a claim that was deleted has no disk.
func (v *versions) awaitNoDisk(claim string) {
	v.Helper()
	v.WaitFor("the disk of claim "+claim+" is deleted", late, func(context.Context) (bool, error) { return len(v.disks(claim)) == 0, nil })
}

// checkMade checks that no claim was given two disks at any time: since then ECS has made no more disks than there are claims.
func (v *versions) checkMade(claims, before int) {
	v.Helper()
	state, err := v.Simulator.State(v.Context())
	v.Must(err)
	if made := state.DisksMade - before; made > claims {
		v.Errorf("%d disks were made for %d claims", made, claims)
	}
}

func (v *versions) disksMade() int {
	v.Helper()
	state, err := v.Simulator.State(v.Context())
	v.Must(err)
	return state.DisksMade
}

// The records of creates that are under way when 8e77128 is killed are finished by today's version.
func TestEarlierRecordsAreFinishedAfterAnUpgrade(t *testing.T) {
	v := newVersions(t)
	before := v.disksMade()
	v.startOld()
	made, asked := v.begin(12)
	v.killOld()
	v.deleteClaim(made[0])
	v.deleteClaim(asked[0])
	v.Must(v.Simulator.ClearFaults(v.Context()))
	v.startToday()
	for _, name := range slices.Concat(made[1:], asked[1:]) {
		v.bound(name, late)
	}
	v.awaitNoDisk(made[0])
	v.awaitNoDisk(asked[0])
	v.drain(0)
	v.checkMade(12, before)
}

// Of today's records 8e77128 finishes what the ConfigMaps have that it knows. It takes no notice of the others, and neither
// begins a second disk for their claims nor forgets them: the next upgrade finishes those.
func TestTheWayBackToAnEarlierVersion(t *testing.T) {
	v := newVersions(t)
	before := v.disksMade()
	v.startToday()
	made, asked := v.begin(12)
	v.killToday()
	beyond := []string{made[0], made[1], asked[0]} // the first of them and one of the others is deleted
	v.moveBeyond(beyond)
	v.deleteClaim(made[0])
	v.deleteClaim(made[2])
	v.deleteClaim(asked[1])
	v.Must(v.Simulator.ClearFaults(v.Context()))
	v.startOld()
	for _, name := range slices.Concat(made[1:2], made[3:], asked[:1], asked[2:]) {
		v.bound(name, late)
	}
	v.awaitNoDisk(made[2])
	v.awaitNoDisk(asked[1])
	v.drainOld()
	if left := v.journal(); len(left) != len(beyond) || len(v.disks(made[0])) != 1 {
		t.Fatalf("after 8e77128 the journal has %d records, want the %d that it doesn't see; the claim that was deleted has %d disks, want 1",
			len(left), len(beyond), len(v.disks(made[0])))
	}
	v.startToday()
	v.awaitNoDisk(made[0])
	v.drain(0)
	v.checkMade(12, before)
}

// moveBeyond moves claims' records to a ConfigMap that 8e77128 doesn't know, where today's version puts them if the first
// eight are full. No provisioner runs.
func (v *versions) moveBeyond(claims []string) {
	v.Helper()
	api := v.Client.CoreV1().ConfigMaps(leaseNamespace)
	shard := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("topodisk-journal-%s-%d", leaseName, journal.Shards-1), Namespace: leaseNamespace,
			Labels: map[string]string{"csi.storage.k8s.io/managed-by": "disk-provisioner"},
		},
		Data: map[string]string{},
	}
	for _, page := range v.journalPages() {
		before := len(page.Data)
		for _, claim := range claims {
			if record, ok := page.Data[v.uid(claim)]; ok {
				shard.Data[v.uid(claim)] = record
				delete(page.Data, v.uid(claim))
			}
		}
		if len(page.Data) < before {
			_, err := api.Update(v.Context(), &page, metav1.UpdateOptions{})
			v.Must(err)
		}
	}
	if len(shard.Data) != len(claims) {
		v.Fatalf("the journal has %d of the %d records to move", len(shard.Data), len(claims))
	}
	_, err := api.Create(v.Context(), shard, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = api.Update(v.Context(), shard, metav1.UpdateOptions{})
	}
	v.Must(err)
}

// handovers is how often the Lease changes hands, and each how many volumes are saved before.
const handovers, each = 5, 10

// Replicas of both versions run at the same time, and the Lease is handed to and fro, in the middle of a crowd of claims of
// which some are deleted.
func TestTheLeaseGoesToAndFroBetweenVersions(t *testing.T) {
	v := newVersions(t)
	v.slowCreates()
	v.startOld("--worker-threads=8")
	leaders := v.followLeaders()
	class := v.Class(atOnce, map[string]string{"type": "cloud_essd"})
	var names []string
	for n := range 100 {
		names = append(names, fmt.Sprintf("crowd-%d", n))
		v.Claim(names[n], class, "20Gi")
	}
	gone := map[string]bool{}
	for turn := range handovers {
		oldLeads := turn%2 == 0
		if oldLeads {
			v.startToday("--worker-threads=8")
		} else {
			v.startOld("--worker-threads=8")
		}
		v.WaitFor(fmt.Sprintf("leader %d saves %d volumes, and hasn't heard of every disk", turn, each), late, func(context.Context) (bool, error) {
			return v.saved("d-") >= each*(turn+1)-len(gone) && v.unheard() > 0, nil
		})
		gone[v.deleteUnheard(gone)] = true
		reigns := len(leaders.list())
		switch {
		case oldLeads && turn%4 == 0:
			v.killOld()
		case oldLeads:
			v.drainOld()
		default:
			v.killToday()
		}
		v.awaitLeaders(leaders, reigns+1)
	}
	v.Must(v.Simulator.ClearFaults(v.Context()))
	for _, name := range names {
		if !gone[name] {
			v.bound(name, late)
		}
	}
	for name := range maps.Keys(gone) {
		v.awaitNoDisk(name)
	}
	// A leader that is killed after it has deleted a disk, and before it has erased the record, leaves a record whose token ECS refuses: that
	// there is no disk shows once it would be seen. Its disk is made once more then, and deleted.
	v.WaitFor("the journal is empty", 2*late, func(context.Context) (bool, error) { return len(v.journal()) == 0, nil })
	for _, name := range names {
		most := 1
		if gone[name] {
			most = 2
		}
		if made := v.disksOf(name); len(made) > most {
			v.Errorf("claim %s was given the disks %v, want %d at most", name, made, most)
		}
	}
	v.drain(0)
}

// disksOf returns the disks that ECS has made for a claim.
func (v *versions) disksOf(claim string) (ids []string) {
	for _, call := range v.creates(claim) {
		if call.Code == "" && !slices.Contains(ids, call.Disk) {
			ids = append(ids, call.Disk)
		}
	}
	return ids
}

// awaitLeaders waits until so many have led.
func (v *versions) awaitLeaders(l *leaders, n int) {
	v.Helper()
	v.WaitFor("the other version leads", soon, func(context.Context) (bool, error) {
		if led := l.list(); len(led) < n {
			return false, fmt.Errorf("those who led were %v", led)
		}
		return true, nil
	})
}

// deleteUnheard deletes a claim that has a disk and no volume yet, none of those that are gone, and returns its name.
func (v *versions) deleteUnheard(gone map[string]bool) (claim string) {
	v.Helper()
	volumes, err := v.volumes(v.Context())
	v.Must(err)
	disks, err := v.Simulator.Disks(v.Context(), v.Namespace)
	v.Must(err)
	for _, d := range disks {
		saved := func(pv corev1.PersistentVolume) bool { return pv.Spec.CSI.VolumeHandle == d.ID }
		if claim = d.Tags[disk.ClaimNameTag]; !gone[claim] && !slices.ContainsFunc(volumes, saved) {
			v.deleteClaim(claim)
			return claim
		}
	}
	v.Fatal("every disk has its volume")
	return ""
}
