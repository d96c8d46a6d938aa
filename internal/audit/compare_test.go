package audit

import (
	"bytes"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/test/golden"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// named returns the findings in short: kind and ID.
func named(r *Report) (all []string) {
	for _, f := range r.Findings {
		all = append(all, string(f.Kind)+" "+f.ID)
	}
	return all
}

func TestCompare(t *testing.T) {
	old := noon.Add(-24 * time.Hour)
	orphan := Disk{ID: "d-1", Cluster: thisCluster, Owner: thisCluster, Name: "disk-" + uid("x", 1), Created: old}
	held := Disk{ID: "d-1", Cluster: thisCluster, Owner: thisCluster, Name: "n", Instances: []string{"i-1"}}
	pv := func(change ...func(*corev1.PersistentVolume)) []corev1.PersistentVolume {
		v := pvOf("d-1", "n", "data", old)
		for _, c := range change {
			c(&v)
		}
		return []corev1.PersistentVolume{v}
	}
	released := func(ago time.Duration, policy corev1.PersistentVolumeReclaimPolicy) func(*corev1.PersistentVolume) {
		return func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeReclaimPolicy, v.Status.Phase = policy, corev1.VolumeReleased
			v.Status.LastPhaseTransitionTime = ptr.To(metav1.NewTime(noon.Add(-ago)))
		}
	}
	nodes := []storagev1.CSINode{csiNode("node-1", "i-1")}
	attach := func(node string) []storagev1.VolumeAttachment {
		return []storagev1.VolumeAttachment{{Spec: storagev1.VolumeAttachmentSpec{NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("d-1")}}}}
	}
	shot := Snapshot{ID: "s-1", Cluster: thisCluster, Owner: thisCluster, Name: "snapshot-" + uid("v", 1), Created: old}
	member := shot
	member.Group, member.Name = "ssg-1", "groupsnapshot-x"
	claim := func(volume string) []corev1.PersistentVolumeClaim {
		return []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid("x", 1))}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}}
	}

	for name, c := range map[string]struct {
		disks     []Disk
		snapshots []Snapshot
		cluster   Cluster
		region    string
		want      []string
	}{
		"a disk of its own":              {disks: []Disk{orphan}, want: []string{"DiskWithoutVolume d-1"}},
		"with a PersistentVolume":        {disks: []Disk{orphan}, cluster: Cluster{Volumes: pv()}},
		"with that of another driver":    {disks: []Disk{orphan}, cluster: Cluster{Volumes: pv(func(v *corev1.PersistentVolume) { v.Spec.CSI.Driver = "x" })}},
		"with that of the FlexVolume":    {disks: []Disk{orphan}, cluster: Cluster{Volumes: pv(flexVolume)}},
		"a disk that is requested":       {disks: []Disk{orphan}, cluster: Cluster{Requests: []Request{{Name: orphan.Name}}}, want: []string{"UnderWay " + orphan.Name}},
		"by a record that can't be read": {disks: []Disk{orphan}, cluster: Cluster{Requests: []Request{{ClaimUID: uid("x", 1)}}}, want: []string{"UnderWay " + uid("x", 1)}},
		"by a record that has ended": {disks: []Disk{orphan}, cluster: Cluster{
			Requests: []Request{{Name: orphan.Name}}, Volumes: []corev1.PersistentVolume{pvOf("d-2", orphan.Name, "data", old)}},
			want: []string{"DiskWithoutVolume d-1", "VolumeWithoutDisk d-2"}},
		"a disk that a claim waits for":       {disks: []Disk{orphan}, cluster: Cluster{Claims: claim("")}},
		"the second disk of a bound claim":    {disks: []Disk{orphan}, cluster: Cluster{Claims: claim("d-2")}, want: []string{"DiskWithoutVolume d-1"}},
		"a name of the UID's beginning":       {disks: []Disk{{ID: "d-1", Cluster: thisCluster, Owner: thisCluster, Name: "disk-x4f6b0001", Created: old}}, cluster: Cluster{Claims: claim("")}},
		"a young disk":                        {disks: []Disk{{ID: "d-1", Cluster: thisCluster, Owner: thisCluster, Name: "n", Created: noon.Add(-time.Minute)}}, want: []string{"UnderWay d-1"}},
		"no volume name, no cluster, another": {disks: []Disk{{ID: "d-1", Cluster: thisCluster, Owner: thisCluster}, {ID: "d-2"}, {ID: "d-3", Cluster: "c-dead", Name: "n"}}},

		"a PersistentVolume of its own": {cluster: Cluster{Volumes: pv()}, disks: []Disk{{ID: "d-9"}}, want: []string{"VolumeWithoutDisk d-1"}},
		"of another region":             {cluster: Cluster{Volumes: pv(inZone("cn-beijing-h"))}, region: "cn-hangzhou", disks: []Disk{{ID: "d-9"}}},
		"of this region":                {cluster: Cluster{Volumes: pv(inZone("cn-hangzhou-h"))}, region: "cn-hangzhou", disks: []Disk{{ID: "d-9"}}, want: []string{"VolumeWithoutDisk d-1"}},
		"of another account, perhaps":   {cluster: Cluster{Volumes: pv(func(v *corev1.PersistentVolume) { v.Annotations[secretAnnotation] = "keys" })}, disks: []Disk{{ID: "d-9"}}},
		"of another region by an old key": {cluster: Cluster{Volumes: pv(inZone("cn-beijing-h"), func(v *corev1.PersistentVolume) {
			v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Key = corev1.LabelFailureDomainBetaZone
		})}, region: "cn-hangzhou", disks: []Disk{{ID: "d-9"}}},
		"being deleted":                  {cluster: Cluster{Volumes: pv(released(time.Minute, corev1.PersistentVolumeReclaimDelete))}, disks: []Disk{{ID: "d-9"}}},
		"released long ago":              {cluster: Cluster{Volumes: pv(released(time.Hour, corev1.PersistentVolumeReclaimDelete))}, disks: []Disk{{ID: "d-9"}}, want: []string{"VolumeWithoutDisk d-1"}},
		"released and kept":              {cluster: Cluster{Volumes: pv(released(time.Minute, corev1.PersistentVolumeReclaimRetain))}, disks: []Disk{{ID: "d-1", Owner: thisCluster}}, want: []string{"KeptVolume d-1"}},
		"released and kept without disk": {cluster: Cluster{Volumes: pv(released(time.Minute, corev1.PersistentVolumeReclaimRetain))}, disks: []Disk{{ID: "d-9"}}, want: []string{"VolumeWithoutDisk d-1"}},

		"attached without a reason":    {disks: []Disk{held}, cluster: Cluster{Volumes: pv(), CSINodes: nodes}, want: []string{"UnwantedAttachment d-1"}},
		"attached to a stranger":       {disks: []Disk{held}, cluster: Cluster{Volumes: pv()}, want: []string{"UnwantedAttachment d-1"}},
		"with a VolumeAttachment":      {disks: []Disk{held}, cluster: Cluster{Volumes: pv(), CSINodes: nodes, Attachments: attach("node-1")}},
		"with that of an unknown node": {disks: []Disk{held}, cluster: Cluster{Volumes: pv(), CSINodes: nodes, Attachments: attach("gone")}},
		"with that of another node": {disks: []Disk{held}, cluster: Cluster{Volumes: pv(), CSINodes: append(nodes, csiNode("node-2", "i-2")), Attachments: attach("node-2")},
			want: []string{"UnwantedAttachment d-1"}},
		"with a Pod":            {disks: []Disk{held}, cluster: Cluster{Volumes: pv(), CSINodes: nodes, Pods: []corev1.Pod{podOf("p", "node-1", "data")}}},
		"with a Pod's own":      {disks: []Disk{held}, cluster: Cluster{Volumes: pv(func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.Name = "p-data" }), CSINodes: nodes, Pods: []corev1.Pod{ephemeral(podOf("p", "node-1", ""))}}},
		"with a Pod that ended": {disks: []Disk{held}, cluster: Cluster{Volumes: pv(), CSINodes: nodes, Pods: []corev1.Pod{ended(podOf("p", "node-1", "data"))}}, want: []string{"UnwantedAttachment d-1"}},
		"with a Pod elsewhere":  {disks: []Disk{held}, cluster: Cluster{Volumes: pv(), CSINodes: nodes, Pods: []corev1.Pod{podOf("p", "node-2", "data")}}, want: []string{"UnwantedAttachment d-1"}},
		"in use by the kubelet": {disks: []Disk{held}, cluster: Cluster{Volumes: pv(), Nodes: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{ProviderID: "cn-hangzhou.i-1"},
			Status: corev1.NodeStatus{VolumesInUse: []corev1.UniqueVolumeName{"kubernetes.io/csi/" + driver + "^d-1"}}}}}},
		"an orphan that is attached": {disks: []Disk{{ID: "d-1", Cluster: thisCluster, Owner: thisCluster, Name: "n", Created: old, Instances: []string{"i-1"}}}, want: []string{"DiskWithoutVolume d-1"}},

		"a snapshot of its own":            {snapshots: []Snapshot{shot}, want: []string{"SnapshotWithoutContent s-1"}},
		"with a content":                   {snapshots: []Snapshot{shot}, cluster: Cluster{Contents: []Content{{Handle: "s-1"}}}},
		"with a content that waits":        {snapshots: []Snapshot{shot}, cluster: Cluster{Contents: []Content{{SnapshotUID: uid("v", 1)}}}},
		"with another that waits":          {snapshots: []Snapshot{shot}, cluster: Cluster{Contents: []Content{{SnapshotUID: uid("v", 2)}}}, want: []string{"SnapshotWithoutContent s-1"}},
		"a member of a group":              {snapshots: []Snapshot{member}, cluster: Cluster{Contents: []Content{{Handle: "ssg-1", Group: true}}}},
		"a member of a group in the make":  {snapshots: []Snapshot{member}, cluster: Cluster{Contents: []Content{{SnapshotUID: "u", Group: true}}}},
		"a member of no group":             {snapshots: []Snapshot{member}, want: []string{"SnapshotWithoutContent s-1"}},
		"an archive":                       {snapshots: []Snapshot{{ID: "s-1", Cluster: thisCluster, Owner: thisCluster, Archive: true}}, want: []string{"Archive s-1"}},
		"no tag of its owner":              {disks: []Disk{{ID: "d-1", Cluster: thisCluster, Name: "n"}}, cluster: Cluster{Volumes: []corev1.PersistentVolume{pvOf("d-1", "", "a", old)}}, want: []string{"WithoutOwner d-1"}},
		"a snapshot of another, by hand":   {snapshots: []Snapshot{{ID: "s-1", Cluster: "c-dead", Name: "n"}, {ID: "s-2", Cluster: thisCluster, Owner: thisCluster}}},
		"a copy that was left":             {snapshots: []Snapshot{{ID: "s-1", Cluster: thisCluster, Owner: thisCluster, Copy: "n", Created: old}}, want: []string{"LeftoverCopy s-1"}},
		"a copy of now":                    {snapshots: []Snapshot{{ID: "s-1", Cluster: thisCluster, Owner: thisCluster, Copy: "n", Created: noon.Add(-time.Hour)}}},
		"a copy that is not taken yet":     {snapshots: []Snapshot{{ID: "s-1", Cluster: thisCluster, Owner: thisCluster, Copy: "n"}}},
		"a copy that is requested":         {snapshots: []Snapshot{{ID: "s-1", Cluster: thisCluster, Owner: thisCluster, Copy: "n", Created: old}}, cluster: Cluster{Requests: []Request{{Name: "n"}}}, want: []string{"UnderWay n"}},
		"a copy whose disk is being made":  {snapshots: []Snapshot{{ID: "s-1", Cluster: thisCluster, Owner: thisCluster, Copy: "n", Created: old}}, disks: []Disk{{ID: "d-1", Name: "n", Creating: true}}},
		"what needs what was not read":     {disks: []Disk{orphan}, cluster: Cluster{Unread: []Unread{{What: "x", Kinds: []Kind{DiskWithoutVolume}}}}},
		"kept, though ECS was not read":    {cluster: Cluster{Volumes: pv(released(time.Hour, corev1.PersistentVolumeReclaimRetain)), Unread: []Unread{{What: "ECS", Kinds: Kinds()[:5]}}}, want: []string{"KeptVolume d-1"}},
		"not lost, though ECS wasn't read": {cluster: Cluster{Volumes: pv(), Unread: []Unread{{What: "ECS", Kinds: Kinds()[:5]}}}},
	} {
		t.Run(name, func(t *testing.T) {
			c.cluster.At, c.cluster.Driver = noon, driver
			r, err := Compare(Listing{Disks: c.disks, Snapshots: c.snapshots}, c.cluster, Options{Clusters: []string{thisCluster}, Region: c.region})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, named(r)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func flexVolume(v *corev1.PersistentVolume) {
	v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{FlexVolume: &corev1.FlexPersistentVolumeSource{Options: map[string]string{"VolumeId": "d-1"}}}
}

func inZone(zone string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}}}}}}
	}
}

func TestZonesOf(t *testing.T) {
	const old, rack = corev1.LabelFailureDomainBetaZone, "racks.example.com/zone"
	for name, c := range map[string]struct {
		keys []string // each of them with a zone of its own: 0, 1, ...
		want []string
	}{
		"none":                  {nil, nil},
		"today's key":           {[]string{corev1.LabelTopologyZone}, []string{"0"}},
		"another key":           {[]string{old}, []string{"0"}},
		"another beside it":     {[]string{rack, corev1.LabelTopologyZone}, []string{"1"}},
		"a key of another kind": {[]string{corev1.LabelTopologyRegion}, nil},
	} {
		var v corev1.PersistentVolume
		inZone("")(&v)
		term := &v.Spec.NodeAffinity.Required.NodeSelectorTerms[0]
		term.MatchExpressions = nil
		for i, key := range c.keys {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{strconv.Itoa(i)}})
		}
		if got := ZonesOf(&v); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func ended(p corev1.Pod) corev1.Pod {
	p.Status.Phase = corev1.PodSucceeded
	return p
}

func ephemeral(p corev1.Pod) corev1.Pod {
	p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	return p
}

func TestWhoseDisks(t *testing.T) {
	both := []corev1.PersistentVolume{pvOf("d-1", "", "a", noon), pvOf("d-2", "", "b", noon)}
	both[0].Spec.ClaimRef.UID, both[1].Spec.ClaimRef.UID = "uid-a", "uid-b"
	for name, c := range map[string]struct {
		disks    []Disk
		fallback string
		want     string // the clusters or, of an error, a part of it
	}{
		"that of the volumes' disks": {disks: []Disk{{ID: "d-1", Cluster: "c1"}, {ID: "d-2", Cluster: "c1"}, {ID: "d-3", Cluster: "c2"}}, want: "c1"},
		"two of them":                {disks: []Disk{{ID: "d-1", Cluster: "c1"}, {ID: "d-2", Cluster: "c2"}}, want: "c1, c2; set --cluster-id"},
		"none of them":               {disks: []Disk{{ID: "d-1"}}, want: "set --cluster-id"},
		"none but the fallback":      {disks: []Disk{{ID: "d-1"}}, fallback: "c3", want: "c3"},
		"no disk at all":             {want: "credentials"},
		"made for other claims":      {disks: []Disk{{ID: "d-1", Cluster: "c-old", Name: "disk-uid-x"}, {ID: "d-3", Cluster: "c-old", Name: "disk-uid-y"}}, fallback: "c3", want: "may be another one; set --cluster-id"},
		"one made for its claim":     {disks: []Disk{{ID: "d-1", Cluster: "c1", Name: "disk-uid-x"}, {ID: "d-2", Cluster: "c1", Name: "disk-uid-b"}}, want: "c1"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Compare(Listing{Disks: c.disks}, Cluster{Driver: driver, Volumes: both}, Options{DefaultCluster: c.fallback})
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				got = strings.Join(r.Clusters, ",")
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestConfirmDistinguishesAttachments(t *testing.T) {
	report := func(detached string) *Report {
		c := Cluster{Driver: driver, At: noon, Volumes: []corev1.PersistentVolume{pvOf("d-1", "", "a", noon)}}
		r, err := Compare(Listing{Disks: []Disk{{ID: "d-1", Owner: thisCluster, Instances: []string{"i-1"}, Detached: detached}}}, c, ofThisCluster)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := Confirm(report("t1"), report("t1")); r.Count(UnwantedAttachment) != 1 || !r.Confirmed {
		t.Errorf("of the same attachment: %v", named(r))
	}
	if r := Confirm(report("t1"), report("t2")); !r.Clean() {
		t.Errorf("of another attachment to the same instance: %v", named(r))
	}
}

func TestPrint(t *testing.T) {
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	kept := pvOf("d-kept", "", "media", ago(100*time.Hour))
	kept.Spec.PersistentVolumeReclaimPolicy, kept.Status.Phase = corev1.PersistentVolumeReclaimRetain, corev1.VolumeReleased
	kept.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("40Gi")}
	listing := Listing{
		Disks: []Disk{
			{ID: "d-orphan", Cluster: thisCluster, Owner: thisCluster, Name: "disk-1", Type: "cloud_essd", Level: "PL1", Zone: "cn-hangzhou-h", GiB: 100, Created: ago(50 * 24 * time.Hour), Instances: []string{"i-1"}},
			{ID: "d-strange", Cluster: thisCluster, Owner: thisCluster, Name: "disk-2", Type: "cloud_new", Zone: "cn-hangzhou-i", GiB: 20, Created: ago(time.Hour)},
			{ID: "d-kept", Cluster: thisCluster, Owner: thisCluster, Name: "disk-3", Type: "cloud_essd", Level: "PL0", Zone: "cn-hangzhou-h", GiB: 40},
			{ID: "d-held", Owner: thisCluster, Type: "cloud_auto", Zone: "cn-hangzhou-h", GiB: 20, Instances: []string{"i-9"}},
			{ID: "d-dead1", Cluster: "c-dead", Name: "x", Type: "cloud_essd", GiB: 10}, {ID: "d-dead2", Cluster: "c-dead", Type: "cloud_essd", GiB: 30}, {ID: "d-free"},
		},
		Snapshots: []Snapshot{
			{ID: "s-1", Cluster: thisCluster, Owner: thisCluster, Name: "snapshot-1", Disk: "d-x", GiB: 100, Created: ago(90 * time.Minute)},
			{ID: "s-2", Cluster: thisCluster, Owner: thisCluster, Copy: "disk-9", Disk: "d-x", GiB: 100, Created: ago(26 * time.Hour)},
			{ID: "s-3", Cluster: thisCluster, Owner: thisCluster, Archive: true, Disk: "d-y", GiB: 20, Created: ago(72 * time.Hour)},
			{ID: "s-4", Cluster: "c-dead", Name: "x"},
		},
	}
	cluster := Cluster{
		At: noon, Driver: driver, Volumes: []corev1.PersistentVolume{kept, pvOf("d-held", "", "data", ago(time.Hour)), pvOf("d-lost", "", "mail", ago(30*time.Hour))},
		Requests: []Request{{Name: "disk-7", Claim: "shop/new"}},
	}
	prices := func(kind, level, _ string, gib int64) (float64, bool) {
		price, known := map[string]float64{"cloud_essd PL0": .5, "cloud_essd PL1": 1, "cloud_essd ": 1, "snapshot ": .12}[kind+" "+level]
		return price * float64(gib), known
	}
	for name, c := range map[string]struct {
		listing Listing
		cluster Cluster
		priced  bool
	}{
		"priced":        {listing: listing, cluster: cluster, priced: true},
		"unpriced":      {listing: listing, cluster: cluster},
		"nothing":       {listing: Listing{Disks: []Disk{{ID: "d-1"}}}, cluster: Cluster{At: noon, Driver: driver}},
		"ecs-not-read":  {listing: Listing{Unread: []Unread{{What: "ECS", Reason: "no credentials", Kinds: Kinds()[:5]}}}, cluster: cluster},
		"pods-not-read": {listing: listing, cluster: Cluster{At: noon, Driver: driver, Unread: []Unread{{What: "Pods", Reason: "forbidden", Kinds: []Kind{UnwantedAttachment}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Compare(c.listing, c.cluster, ofThisCluster)
			if err != nil {
				t.Fatal(err)
			}
			if c.priced {
				r.Price("CNY", prices)
				r.Confirmed = true
			}
			var out bytes.Buffer
			if err := r.Print(&out, noon); err != nil {
				t.Fatal(err)
			}
			golden.Page(t, filepath.Join("testdata", name+".txt"), out.String())
		})
	}
}
