package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/internal/audit"
	"github.com/topodisk/topodisk/test/golden"
	"github.com/topodisk/topodisk/test/lab/aliyun"
)

// auditWorld is a cluster and a simulated ECS with something of every kind that an audit judges.
type auditWorld struct {
	sim      *ecssim.Server
	endpoint string
	api      *listServer
	orphan   disk.Disk
}

func newAuditWorld(t *testing.T, denials ...ecssim.Denial) *auditWorld {
	t.Helper()
	sim, err := ecssim.New(ecssim.Config{
		Region: "cn-hangzhou", Zones: []string{"cn-hangzhou-h"}, AccessKeys: map[string]string{"key": "secret", "mine": "secret"}, Denials: denials,
		Instances: []ecssim.Instance{{ID: "i-1", Zone: "cn-hangzhou-h", Type: "ecs.g7.large"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(sim)
	t.Cleanup(server.Close)
	w := &auditWorld{sim: sim, endpoint: server.URL}
	client, err := ecs.NewClient(ecs.Config{Region: "cn-hangzhou", Endpoint: server.URL, ClusterID: "c-this",
		Credentials: credentials.Static(credentials.Keys{AccessKeyID: "key", AccessKeySecret: "secret"})})
	if err != nil {
		t.Fatal(err)
	}
	create := func(name, cluster string) disk.Disk {
		spec := disk.Spec{Name: name, Tags: disk.VolumeTags(nil, name, cluster, "", "")}
		d, err := client.Create(t.Context(), spec, disk.Attempt{Zone: "cn-hangzhou-h", Category: disk.ESSD, Level: disk.PL1, Size: 40}, disk.NewToken(name, 1))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	owned, held := create("disk-owned", "c-this"), create("disk-held", "c-this")
	w.orphan = create("disk-orphan", "c-this")
	create("disk-other", "c-dead")
	if err := sim.Advance(time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, _, err := client.Attach(t.Context(), "i-1", held.ID, false); err != nil {
		t.Fatal(err)
	}
	for _, spec := range []disk.SnapshotSpec{
		{Name: "snapshot-1", Source: held.ID, Marks: disk.Tags{disk.ClusterTag: "c-this", disk.SnapshotNameTag: "snapshot-1"}},
		disk.Temporary("disk-copy", "c-this", held.ID),
	} {
		spec.Tags = disk.SnapshotTags(spec.Tags, spec.Marks)
		if _, err := client.CreateSnapshot(t.Context(), spec, disk.NewToken(spec.Name, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := sim.Advance(5 * time.Hour); err != nil {
		t.Fatal(err)
	}
	w.api = &listServer{forbidden: map[string]bool{}, lists: map[string]any{
		"/api/v1/namespaces/kube-system":                          corev1.Namespace{ObjectMeta: metav1.ObjectMeta{UID: "c-this"}},
		"/api/v1/persistentvolumeclaims":                          corev1.PersistentVolumeClaimList{},
		"/api/v1/persistentvolumes":                               corev1.PersistentVolumeList{Items: []corev1.PersistentVolume{volumeOf(string(owned.ID), "data"), volumeOf(string(held.ID), "logs"), volumeOf("d-lost", "mail")}},
		"/api/v1/nodes":                                           corev1.NodeList{Items: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{corev1.LabelTopologyRegion: "cn-hangzhou"}}}}},
		"/api/v1/pods":                                            corev1.PodList{},
		"/apis/coordination.k8s.io/v1/leases":                     coordinationv1.LeaseList{Items: []coordinationv1.Lease{{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "diskplugin-csi-alibabacloud-com"}}}},
		"/apis/storage.k8s.io/v1/volumeattachments":               storagev1.VolumeAttachmentList{},
		"/apis/storage.k8s.io/v1/csinodes":                        storagev1.CSINodeList{Items: []storagev1.CSINode{{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: defaultDriver, NodeID: "i-1"}}}}}},
		"/apis/storage.k8s.io/v1/storageclasses":                  storagev1.StorageClassList{Items: []storagev1.StorageClass{classWithSecret("half", defaultDriver, "provisioner-"), classWithSecret("whole", defaultDriver, ""), classWithSecret("another", "nas.example.com", "provisioner-")}},
		"/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents": map[string]any{"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContentList", "items": []any{}},
	}}
	return w
}

// classWithSecret returns a class that names a Secret for the calls of a prefix; all if it is empty.
func classWithSecret(name, driver, prefix string) storagev1.StorageClass {
	key := "csi.storage.k8s.io/" + prefix + "secret-name"
	return storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driver, Parameters: map[string]string{key: "keys"}}
}

func volumeOf(id, claim string) corev1.PersistentVolume {
	return corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: id},
		Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: claim},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: defaultDriver, VolumeHandle: id}}},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
}

// audit runs an audit at the simulator's time and without the pause.
func (w *auditWorld) audit(t *testing.T, change func(*auditOptions)) (report *audit.Report, diagnostics string) {
	t.Helper()
	streams, _, _, said := genericiooptions.NewTestIOStreams()
	f := newFactory(streams)
	*f.config.KubeConfig = kubeconfigOf(t, w.api)
	o := &auditOptions{driver: defaultDriver, endpoint: w.endpoint, confirm: audit.Lag, now: w.sim.Now,
		wait: func(context.Context, time.Duration) error { return nil }}
	if change != nil {
		change(o)
	}
	report, err := o.run(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return report, said.String()
}

// useKeys sets the environment's keys; an empty ID stands for none.
func useKeys(t *testing.T, id string) {
	t.Helper()
	t.Setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", id)
	t.Setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", map[bool]string{true: "secret"}[id != ""])
	t.Setenv("ALIBABA_CLOUD_ECS_METADATA_DISABLED", "true")
}

var volatile = regexp.MustCompile(`\b([ds])-[0-9a-z]{15,}`)

// withoutIDs replaces the IDs of the simulator, which differ from run to run.
func withoutIDs(text string) string {
	ids := map[string]string{}
	return volatile.ReplaceAllStringFunc(text, func(id string) string {
		if ids[id] == "" {
			ids[id] = id[:2] + strings.Repeat("x", len(id)-3) + strconv.Itoa(len(ids))
		}
		return ids[id]
	})
}

func TestAuditOfASimulatedECS(t *testing.T) {
	useKeys(t, "mine")
	w := newAuditWorld(t)
	file := fileWith(t, "currency: CNY\nperGiBMonth: {cloud_essd/PL1: 1.5, snapshot: 0.12}\n")
	report, diagnostics := w.audit(t, func(o *auditOptions) { o.prices = file })
	if !strings.Contains(diagnostics, "6 found; they are read again in 1m0s") {
		t.Errorf("it says %q", diagnostics)
	}
	var out bytes.Buffer
	if err := report.Print(&out, w.sim.Now()); err != nil {
		t.Fatal(err)
	}
	golden.Page(t, "testdata/audit.txt", withoutIDs(out.String()))
	for _, request := range w.api.requests {
		if !strings.HasPrefix(request, "GET ") {
			t.Errorf("it writes: %s", request)
		}
	}
	for _, call := range w.sim.Calls() {
		if call.Action != "CreateDisk" && call.Action != "CreateSnapshot" && call.Action != "AttachDisk" && !strings.HasPrefix(call.Action, "Describe") {
			t.Errorf("it calls %s", call.Action)
		}
	}
}

// TestWhatAuditPrintsTagsAll runs the commands that audit prints as an operator does: each disk, snapshot and group of the cluster without
// its tag has it then, and audit finds none any more.
func TestWhatAuditPrintsTagsAll(t *testing.T) {
	useKeys(t, "mine")
	w := newAuditWorld(t)
	cli := aliyun.CLI{Endpoint: w.endpoint, KeyID: "mine", Secret: "secret"}
	client, err := ecs.NewClient(ecs.Config{Region: "cn-hangzhou", Endpoint: w.endpoint, ClusterID: "c-this",
		Credentials: credentials.Static(credentials.Keys{AccessKeyID: "mine", AccessKeySecret: "secret"})})
	if err != nil {
		t.Fatal(err)
	}
	var held disk.ID
	for _, d := range w.sim.Disks() {
		if err := client.Untag(t.Context(), disk.ID(d.ID), []string{disk.OwnerTag}); err != nil {
			t.Fatal(err)
		}
		if d.Tags[disk.VolumeNameTag] == "disk-held" {
			held = disk.ID(d.ID)
		}
	}
	marks := disk.Tags{disk.ClusterTag: "c-this", disk.GroupNameTag: "group-1"}
	group, err := client.CreateGroup(t.Context(), disk.GroupSpec{Name: "group-1", Sources: []disk.ID{held}, Marks: marks, Tags: marks}, disk.NewToken("group-1", 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.sim.Advance(5 * time.Hour); err != nil {
		t.Fatal(err)
	}
	shots, err := client.ListSnapshots(t.Context(), disk.SnapshotFilter{Tags: disk.Tags{disk.SnapshotNameTag: "snapshot-1"}})
	if err != nil || len(shots) != 1 {
		t.Fatalf("got %v, %v", shots, err)
	}
	err = cli.Run(t.Context(), "aliyun ecs UntagResources --RegionId cn-hangzhou --ResourceType snapshot --ResourceId.1 "+string(shots[0].ID)+" --TagKey.1 "+disk.OwnerTag)
	if err != nil {
		t.Fatal(err)
	}
	contents := func(kind, version string, status map[string]any) map[string]any {
		item := map[string]any{"metadata": map[string]any{"name": "content"}, "spec": map[string]any{"driver": defaultDriver}, "status": status}
		return map[string]any{"apiVersion": version, "kind": kind + "List", "items": []any{item}}
	}
	w.api.lists["/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents"] = contents("VolumeSnapshotContent", "snapshot.storage.k8s.io/v1",
		map[string]any{"snapshotHandle": string(shots[0].ID)})
	w.api.lists["/apis/groupsnapshot.storage.k8s.io/v1/volumegroupsnapshotcontents"] = contents("VolumeGroupSnapshotContent", "groupsnapshot.storage.k8s.io/v1",
		map[string]any{"volumeGroupSnapshotHandle": string(group)})

	before, _ := w.audit(t, nil)
	if before.Count(audit.WithoutOwner) != 4 || len(before.TagCommands) != 3 { // two disks, a snapshot and a member of the group
		t.Errorf("before: %+v", before)
	}
	for _, command := range before.TagCommands {
		if err := cli.Run(t.Context(), command.String()); err != nil {
			t.Error(err)
		}
	}
	after, _ := w.audit(t, nil)
	var out bytes.Buffer
	if err := after.Print(&out, w.sim.Now()); err != nil {
		t.Fatal(err)
	}
	if after.Count(audit.WithoutOwner) != 0 || !strings.Contains(out.String(), "every snapshot of a VolumeSnapshotContent has the tag topodisk.io/cluster") {
		t.Errorf("after: %s", out.String())
	}
	if g, err := client.GetGroup(t.Context(), group); err != nil || g.Tags[disk.OwnerTag] != "c-this" || g.Members[0].Tags[disk.OwnerTag] != "c-this" {
		t.Errorf("the group is %+v, %v; want it and its member to be the cluster's", g, err)
	}
	for _, d := range w.sim.Disks() {
		if ours := d.Tags[disk.VolumeNameTag] == "disk-owned" || d.ID == string(held); (d.Tags[disk.OwnerTag] == "c-this") != ours {
			t.Errorf("disk %s has tags %v; is it to be the cluster's: %v", d.ID, d.Tags, ours)
		}
	}
}

func TestAuditForPrograms(t *testing.T) {
	useKeys(t, "mine")
	w := newAuditWorld(t)
	report, _ := w.audit(t, nil)
	var out bytes.Buffer
	o := newOutput()
	*o.flags.OutputFormat = "json"
	if err := o.print(&out, "Audit", report); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Kind     string `json:"kind"`
		Findings []struct{ Kind, ID string }
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Kind != "Audit" || len(got.Findings) != 6 || got.Findings[0].Kind != "DiskWithoutVolume" || got.Findings[0].ID != string(w.orphan.ID) {
		t.Errorf("got %s", out.String())
	}
}

// What can't be read is named with what follows from it, and nothing is guessed.
func TestAuditWithoutRights(t *testing.T) {
	of := func(kinds ...audit.Kind) []audit.Kind { return kinds }
	snapshots := of(audit.SnapshotWithoutContent, audit.LeftoverCopy, audit.Archive)
	for name, c := range map[string]struct {
		key       string
		denied    string // an action of ECS
		forbidden string // a path of the API server
		region    string
		reason    string
		want      []audit.Kind // that are not checked
	}{
		"no keys":        {reason: "no credentials: set ALIBABA_CLOUD_ACCESS_KEY_ID", want: append(of(audit.DiskWithoutVolume, audit.VolumeWithoutDisk, audit.UnwantedAttachment, audit.WithoutOwner), snapshots...)},
		"wrong keys":     {key: "other", reason: "InvalidAccessKeyId", want: append(of(audit.DiskWithoutVolume, audit.VolumeWithoutDisk, audit.UnwantedAttachment, audit.WithoutOwner), snapshots...)},
		"no snapshots":   {key: "mine", denied: "DescribeSnapshots", reason: "DescribeSnapshots", want: snapshots},
		"no journal":     {key: "mine", forbidden: "/api/v1/namespaces/kube-system/configmaps/topodisk-journal-diskplugin-csi-alibabacloud-com-0", reason: "you may not", want: of(audit.DiskWithoutVolume, audit.LeftoverCopy, audit.UnderWay)},
		"no Lease":       {key: "mine", forbidden: "/apis/coordination.k8s.io/v1/leases", reason: "you may not", want: of(audit.DiskWithoutVolume, audit.LeftoverCopy, audit.UnderWay)},
		"no Pods":        {key: "mine", forbidden: "/api/v1/pods", reason: "you may not", want: of(audit.UnwantedAttachment)},
		"no classes":     {key: "mine", forbidden: "/apis/storage.k8s.io/v1/storageclasses", reason: "you may not", want: of(audit.IncompleteClass)},
		"no contents":    {key: "mine", forbidden: "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents", reason: "you may not", want: of(audit.SnapshotWithoutContent)},
		"no group kinds": {key: "mine", forbidden: "/apis/groupsnapshot.storage.k8s.io/v1/volumegroupsnapshotcontents", reason: "you may not", want: of(audit.SnapshotWithoutContent)},
	} {
		t.Run(name, func(t *testing.T) {
			useKeys(t, c.key)
			var denials []ecssim.Denial
			if c.denied != "" {
				denials = append(denials, ecssim.Denial{Who: "mine", Action: c.denied})
			}
			w := newAuditWorld(t, denials...)
			w.api.forbidden[c.forbidden] = true
			report, _ := w.audit(t, nil)
			if len(report.Unread) != 1 || !strings.Contains(report.Unread[0].Reason, c.reason) {
				t.Fatalf("not read: %+v, want because of %q", report.Unread, c.reason)
			}
			if diff := cmp.Diff(c.want, report.Unread[0].Kinds); diff != "" {
				t.Error(diff)
			}
			for _, kind := range audit.Kinds() {
				found, checked := report.Count(kind) > 0, report.Checked(kind)
				if found && !checked || checked && !found && kind.NeedsAction() && kind != audit.WithoutOwner {
					t.Errorf("%s: found %v, checked %v", kind, found, checked)
				}
			}
		})
	}
}

// What was not checked is not clean, for a program that looks at the exit code alone.
func TestAuditEndsAsWhyDoesIfItCantTell(t *testing.T) {
	useKeys(t, "")
	w := newAuditWorld(t)
	w.api.lists["/apis/storage.k8s.io/v1/storageclasses"] = storagev1.StorageClassList{}
	code, out, diagnostics := ran(t, "audit", "--kubeconfig="+kubeconfigOf(t, w.api))
	if code != exitUnknown || !strings.Contains(out, "not read: ECS: ") {
		t.Errorf("exit code %d, printed %q and %q", code, out, diagnostics)
	}
	hidden := []audit.Unread{{Kinds: []audit.Kind{audit.UnwantedAttachment, audit.UnderWay}}}
	for want, report := range map[int]audit.Report{
		exitFine:    {Findings: []audit.Finding{{Kind: audit.KeptVolume}}, Unread: []audit.Unread{{Kinds: []audit.Kind{audit.UnderWay}}}},
		exitFound:   {Findings: []audit.Finding{{Kind: audit.DiskWithoutVolume}}, Unread: hidden},
		exitUnknown: {Unread: hidden},
	} {
		var exit exitError
		if errors.As(exitCodeOfAudit(&report), &exit); int(exit) != want {
			t.Errorf("exit code %d, want %d", exit, want)
		}
	}
}

func TestAuditRefusesWrongFlags(t *testing.T) {
	file := fileWith(t, "currency: CNY\nperGiBMonth: {cloud_esd: 1}\n")
	refuses(t, false, map[string]string{
		"audit now":                              `argument "now" is not allowed`,
		"audit --confirm-after=1s":               "--confirm-after=1s is not allowed: allowed is 1m0s or more",
		"audit --prices=/nowhere":                "--prices: open /nowhere: no such file",
		"audit --prices=" + file:                 `"cloud_esd" is no disk category; allowed are cloud, `,
		"audit --output=xml":                     "--output=xml is not allowed",
		"audit --region=x --kubeconfig=/nowhere": "/nowhere",
	})
}
