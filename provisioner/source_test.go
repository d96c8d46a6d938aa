package provisioner

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/watch"
)

const snapshotGroup = "snapshot.storage.k8s.io"

// setFields sets fields of an object by their paths, dots between.
func setFields(values map[string]any) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		for path, value := range values {
			if value == nil {
				unstructured.RemoveNestedField(u.Object, strings.Split(path, ".")...)
			} else if err := unstructured.SetNestedField(u.Object, value, strings.Split(path, ".")...); err != nil {
				panic(err)
			}
		}
	}
}

// snapshotOf returns a VolumeSnapshot that is ready, and its content.
func snapshotOf(namespace string) (snapshot, content *unstructured.Unstructured) {
	snapshot = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": snapshotGroup + "/v1", "kind": "VolumeSnapshot",
		"metadata": map[string]any{"name": "src", "namespace": namespace, "uid": "snap-uid", "resourceVersion": "5"},
		"status":   map[string]any{"boundVolumeSnapshotContentName": "content", "readyToUse": true, "restoreSize": "20Gi"},
	}}
	content = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": snapshotGroup + "/v1", "kind": "VolumeSnapshotContent",
		"metadata": map[string]any{"name": "content", "resourceVersion": "6"},
		"spec": map[string]any{
			"driver": driverName, "sourceVolumeMode": "Filesystem",
			"volumeSnapshotRef": map[string]any{"name": "src", "namespace": namespace, "uid": "snap-uid"},
		},
		"status": map[string]any{"snapshotHandle": "s-1"},
	}}
	return snapshot, content
}

func (b *bench) addSnapshot(t *testing.T, namespace string, changes ...func(snapshot, content *unstructured.Unstructured)) {
	t.Helper()
	snapshot, content := snapshotOf(namespace)
	for _, change := range changes {
		change(snapshot, content)
	}
	if _, err := b.dynamic.Resource(watch.VolumeSnapshots).Namespace(namespace).Create(t.Context(), snapshot, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.dynamic.Resource(watch.VolumeSnapshotContents).Create(t.Context(), content, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.addMetadata(t, watch.VolumeSnapshots.GroupVersion().String(), "VolumeSnapshot", namespace)
}

// addMetadata puts what is known of an object named src where finalizers are written.
func (b *bench) addMetadata(t *testing.T, version, kind, namespace string, finalizers ...string) {
	t.Helper()
	if err := b.metadata.Tracker().Add(&metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "src", ResourceVersion: "5", UID: "src-uid", Finalizers: append([]string{"other"}, finalizers...)},
	}); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) finalizers(t *testing.T, o watch.Object) []string {
	t.Helper()
	read, err := b.metadata.Resource(o.Resource).Namespace(o.Namespace).Get(t.Context(), o.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return read.Finalizers
}

func fromSnapshot(c *v1.PersistentVolumeClaim) {
	c.Spec.DataSource = &v1.TypedLocalObjectReference{APIGroup: ptr.To(snapshotGroup), Kind: "VolumeSnapshot", Name: "src"}
}

func fromClaim(c *v1.PersistentVolumeClaim) {
	c.Spec.DataSourceRef = &v1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "src"}
}

func acrossNamespaces(c *v1.PersistentVolumeClaim) {
	c.Spec.DataSourceRef = &v1.TypedObjectReference{APIGroup: ptr.To(snapshotGroup), Kind: "VolumeSnapshot", Name: "src", Namespace: ptr.To("archive")}
}

// sourceClaim returns a bound claim and its volume.
func sourceClaim(change ...func(*v1.PersistentVolumeClaim, *v1.PersistentVolume)) (*v1.PersistentVolumeClaim, *v1.PersistentVolume) {
	claim := testClaim(func(c *v1.PersistentVolumeClaim) {
		c.Name, c.UID, c.ResourceVersion, c.Spec.VolumeName, c.Status.Phase = "src", "src-uid", "5", "d-src", v1.ClaimBound
	})
	pv := testVolume("d-src", func(pv *v1.PersistentVolume) {
		pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID = "src", "src-uid"
		pv.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("20Gi")}
	})
	for _, f := range change {
		f(claim, pv)
	}
	return claim, pv
}

func sources(c *Config) { c.DriverRestores, c.DriverClones = true, true }

func TestSnapshotsThatAVolumeIsMadeOf(t *testing.T) {
	source := watch.Object{Resource: watch.VolumeSnapshots, Namespace: "shop", Name: "src"}
	type both = func(snapshot, content *unstructured.Unstructured)
	snapshot := func(values map[string]any) both {
		return func(s, _ *unstructured.Unstructured) { setFields(values)(s) }
	}
	content := func(values map[string]any) both {
		return func(_, c *unstructured.Unstructured) { setFields(values)(c) }
	}
	tests := map[string]struct {
		config  func(*Config)
		claim   func(*v1.PersistentVolumeClaim)
		change  both
		absent  bool
		outcome Outcome
		want    []string     // nothing: it is made
		waits   watch.Object // for what
	}{
		"ready": {},
		"no restore size": {
			change: snapshot(map[string]any{"status.restoreSize": nil}),
		},
		"a driver without snapshots": {
			config: func(c *Config) { c.DriverRestores = false }, outcome: Finished, want: []string{"claim.spec.dataSource", "makes no snapshots"},
		},
		"no such snapshot": {
			absent: true, outcome: Unchanged, want: []string{"VolumeSnapshot shop/src", "not found"}, waits: source,
		},
		"not bound": {
			change: snapshot(map[string]any{"status": nil}), outcome: Unchanged, want: []string{"not bound"}, waits: source,
		},
		"not ready": {
			change: snapshot(map[string]any{"status.readyToUse": false}), outcome: Unchanged, want: []string{"not ready to use yet"}, waits: source,
		},
		"failed": {
			change:  snapshot(map[string]any{"status.readyToUse": false, "status.error": map[string]any{"message": "no quota"}}),
			outcome: Unchanged, want: []string{"not ready to use: no quota"}, waits: source,
		},
		"being deleted": {
			change: snapshot(map[string]any{"metadata.deletionTimestamp": "2026-01-02T03:04:05Z"}), outcome: Unchanged, want: []string{"is being deleted"}, waits: source,
		},
		"no content": {
			change: snapshot(map[string]any{"status.boundVolumeSnapshotContentName": "other"}), outcome: Unchanged, want: []string{"VolumeSnapshotContent other"}, waits: watch.Object{Resource: watch.VolumeSnapshotContents, Name: "other"},
		},
		"no handle": {
			change: content(map[string]any{"status": nil}), outcome: Unchanged, want: []string{"no snapshotHandle yet"}, waits: watch.Object{Resource: watch.VolumeSnapshotContents, Name: "content"},
		},
		"another driver's": {
			change: content(map[string]any{"spec.driver": "other"}), outcome: Finished, want: []string{"is of driver other"},
		},
		"the content of another snapshot": {
			change: content(map[string]any{"spec.volumeSnapshotRef.uid": "x"}), outcome: Finished, want: []string{"VolumeSnapshotContent content is of snapshot shop/src"},
		},
		"larger than the claim": {
			change: snapshot(map[string]any{"status.restoreSize": "21Gi"}), outcome: Unchanged, want: []string{"is 20Gi, less than the 21Gi"},
		},
		"another mode": {
			claim:   func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock) },
			outcome: Finished, want: []string{"claim.spec.volumeMode is Block", "was Filesystem", allowModeChange},
		},
		"another mode, allowed by the snapshot": {
			claim:  func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock) },
			change: func(_, c *unstructured.Unstructured) { c.SetAnnotations(map[string]string{allowModeChange: "true"}) },
		},
		"another mode, allowed by the operator": {
			claim:  func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock) },
			config: func(c *Config) { c.PreventModeConversion = false },
		},
		"another namespace, without the gate": {
			claim: acrossNamespaces, outcome: Finished, want: []string{"dataSourceRef.namespace is archive", "CrossNamespaceVolumeDataSource=true"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			answer := made("d-bp1", 0, "zone-a")
			b := newBench(t, nil)
			sources(&b.config)
			if test.config != nil {
				test.config(&b.config)
			}
			if !test.absent {
				if test.change == nil {
					test.change = func(_, _ *unstructured.Unstructured) {}
				}
				b.addSnapshot(t, "shop", test.change)
			}
			claim := testClaim(fromSnapshot)
			if test.claim != nil {
				test.claim(claim)
			}
			content, outcome, err := b.content(t.Context(), claim)
			if len(test.want) == 0 {
				if err != nil || content.GetSnapshot().GetSnapshotId() != "s-1" {
					t.Fatalf("got %v, %v", content, err)
				}
				answer.volume.ContentSource = content
				b.driver.creates = append(b.driver.creates, answer)
				if _, _, err := b.provision(t.Context(), claim, testClass(nil), "node-1"); err != nil || b.driver.created[0].VolumeContentSource.GetSnapshot().GetSnapshotId() != "s-1" {
					t.Errorf("got %v, %v", b.driver.created, err)
				}
				return
			}
			if outcome != test.outcome {
				t.Errorf("got %v, want %v", outcome, test.outcome)
			}
			for _, want := range test.want {
				if !strings.Contains(text(err), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
			if waits := notReadyObject(err); waits != test.waits {
				t.Errorf("it waits for %v, want %v", waits, test.waits)
			}
		})
	}
}

func TestClaimsThatAVolumeIsCopiedFrom(t *testing.T) {
	src := watch.Object{Resource: watch.PersistentVolumeClaims, Namespace: "shop", Name: "src"}
	tests := map[string]struct {
		config  func(*Config)
		change  func(*v1.PersistentVolumeClaim, *v1.PersistentVolume)
		absent  bool
		outcome Outcome
		want    string // nothing: it is made
		waits   watch.Object
	}{
		"bound":                        {},
		"a driver that copies nothing": {config: func(c *Config) { c.DriverClones = false }, outcome: Finished, want: "copies no volumes"},
		"no such claim":                {absent: true, outcome: Unchanged, want: "not found", waits: src},
		"being deleted": {
			change:  func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { c.DeletionTimestamp = ptr.To(metav1.Now()) },
			outcome: Unchanged, want: "is being deleted", waits: src,
		},
		"not bound": {
			change:  func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { c.Status.Phase = v1.ClaimPending },
			outcome: Unchanged, want: "not bound yet", waits: src,
		},
		"another mode": {
			change: func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
				c.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
			},
			outcome: Finished, want: "claim.spec.volumeMode is Filesystem, that of claim shop/src is Block",
		},
		"another driver's": {
			change:  func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) { pv.Spec.CSI.Driver = "other" },
			outcome: Finished, want: "not of driver " + driverName,
		},
		"a volume that is another claim's": {
			change:  func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) { pv.Spec.ClaimRef.UID = "x" },
			outcome: Unchanged, want: "PersistentVolume d-src is not bound to",
		},
		"larger than the claim": {
			change: func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
				pv.Spec.Capacity[v1.ResourceStorage] = resource.MustParse("21Gi")
			},
			outcome: Unchanged, want: "is 20Gi, less than the 21Gi",
		},
		"of another class": {
			change: func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { c.Spec.StorageClassName = ptr.To("ssd") },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			if !test.absent {
				if test.change == nil {
					test.change = func(*v1.PersistentVolumeClaim, *v1.PersistentVolume) {}
				}
				claim, pv := sourceClaim(test.change)
				for _, err := range []error{b.api.Tracker().Add(claim), b.api.Tracker().Add(pv)} {
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			sources(&b.config)
			if test.config != nil {
				test.config(&b.config)
			}
			content, outcome, err := b.content(t.Context(), testClaim(fromClaim))
			switch {
			case test.want == "":
				if err != nil || content.GetVolume().GetVolumeId() != "d-src" {
					t.Errorf("got %v, %v", content, err)
				}
			case outcome != test.outcome || !strings.Contains(text(err), test.want) || notReadyObject(err) != test.waits:
				t.Errorf("got %v, %v, waiting for %v", outcome, err, notReadyObject(err))
			}
		})
	}
}

func TestASourceOfAnotherNamespaceNeedsAGrant(t *testing.T) {
	grant := func(from, to map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant", "metadata": map[string]any{"name": "g", "namespace": "archive"},
			"spec": map[string]any{"from": []any{from}, "to": []any{to}},
		}}
	}
	from := map[string]any{"group": "", "kind": "PersistentVolumeClaim", "namespace": "shop"}
	to := map[string]any{"group": snapshotGroup, "kind": "VolumeSnapshot"}
	with := func(base map[string]any, key, value string) map[string]any {
		changed := map[string]any{key: value}
		for k, v := range base {
			if k != key {
				changed[k] = v
			}
		}
		return changed
	}
	for name, test := range map[string]struct {
		grant   *unstructured.Unstructured
		allowed bool
	}{
		"none":                         {},
		"to all snapshots":             {grant(from, to), true},
		"to this one":                  {grant(from, with(to, "name", "src")), true},
		"to another":                   {grant(from, with(to, "name", "x")), false},
		"to claims":                    {grant(from, with(with(to, "group", ""), "kind", "PersistentVolumeClaim")), false},
		"from another namespace":       {grant(with(from, "namespace", "x"), to), false},
		"from another kind of objects": {grant(with(from, "kind", "Pod"), to), false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			sources(&b.config)
			b.config.CrossNamespace = true
			b.addSnapshot(t, "archive")
			if test.grant != nil {
				if _, err := b.dynamic.Resource(watch.ReferenceGrants).Namespace("archive").Create(t.Context(), test.grant, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			_, outcome, err := b.content(t.Context(), testClaim(acrossNamespaces))
			if (err == nil) != test.allowed {
				t.Errorf("got %v", err)
			}
			isTold := strings.Contains(text(err), "ReferenceGrant of namespace archive")
			if !test.allowed && (outcome != Finished || notReadyObject(err) != watch.Object{Resource: watch.ReferenceGrants, Namespace: "archive"} || !isTold) {
				t.Errorf("got %v, %v, waiting for %v", outcome, err, notReadyObject(err))
			}
		})
	}
}

func TestAVolumeThatShouldBeFilledAndIsEmptyIsDeletedAgain(t *testing.T) {
	b := newBench(t, []answer{made("d-empty", 0, "zone-a")})
	sources(&b.config)
	b.addSnapshot(t, "shop")
	_, outcome, err := b.provision(t.Context(), testClaim(fromSnapshot), testClass(nil), "node-1")
	if outcome != Finished || !strings.Contains(text(err), "d-empty is empty") {
		t.Errorf("got %v, %v", outcome, err)
	}
	if _, deletes := b.driver.calls(); deletes != 1 {
		t.Errorf("%d deletions", deletes)
	}
}

func TestASourceIsKeptForAsLongAsAnOrderNeedsIt(t *testing.T) {
	filled := made("d-bp1", 0, "zone-a")
	b := newBench(t, []answer{unavailable()})
	sources(&b.config)
	b.addSnapshot(t, "shop")
	source, claim := watch.Object{Resource: watch.VolumeSnapshots, Namespace: "shop", Name: "src"}, testClaim(fromSnapshot)
	try := func() Outcome {
		_, outcome, _ := b.provision(t.Context(), claim, testClass(nil), "node-1")
		return outcome
	}
	if outcome := try(); outcome != Background {
		t.Fatalf("got %v", outcome)
	}
	if diff := cmp.Diff([]string{"other", snapshotFinalizer}, b.finalizers(t, source)); diff != "" {
		t.Error(diff)
	}
	if err := b.sources.free(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	if len(b.finalizers(t, source)) != 2 {
		t.Error("the finalizer went while the order was under way")
	}
	filled.volume.ContentSource = b.driver.created[0].VolumeContentSource
	b.driver.creates = []answer{filled}
	if outcome := try(); outcome != Finished || b.sources.queue.Len() != 1 {
		t.Fatalf("got %v, and %d sources to be let go", outcome, b.sources.queue.Len())
	}
	b.sources.next(t.Context())
	if diff := cmp.Diff([]string{"other"}, b.finalizers(t, source)); diff != "" {
		t.Error(diff)
	}
}

func TestTheDriverIsNotAskedBeforeTheSourceIsKept(t *testing.T) {
	b := newBench(t, []answer{made("d-bp1", 0, "zone-a")})
	sources(&b.config)
	b.addSnapshot(t, "shop")
	b.metadata.PrependReactor("patch", "volumesnapshots", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errString("etcd is slow")
	})
	_, outcome, err := b.provision(t.Context(), testClaim(fromSnapshot), testClass(nil), "node-1")
	if creates, _ := b.driver.calls(); outcome != Unchanged || !strings.Contains(text(err), "the finalizer of VolumeSnapshot shop/src") || creates != 0 {
		t.Errorf("got %v, %v; the driver was asked %d times", outcome, err, creates)
	}
	if all, _ := b.journal.underWay(); all != 0 || len(b.sources.held) != 0 {
		t.Errorf("%d orders are under way, %v are held", all, b.sources.held)
	}
}

func TestASourceOfARefusedOrderIsLetGo(t *testing.T) {
	b := newBench(t, []answer{soldOutAnswer()})
	sources(&b.config)
	b.addSnapshot(t, "shop")
	for range 2 { // the second time the driver is not even asked
		_, outcome, _ := b.provision(t.Context(), testClaim(fromSnapshot), testClass(nil), "node-1")
		if outcome != Reschedule {
			t.Fatalf("got %v", outcome)
		}
	}
	b.sources.next(t.Context())
	if got := b.finalizers(t, watch.Object{Resource: watch.VolumeSnapshots, Namespace: "shop", Name: "src"}); len(got) != 1 || len(b.sources.held) != 0 {
		t.Errorf("finalizers %v, held %v", got, b.sources.held)
	}
}

func TestSourcesLeftByAProcessThatEndedAreLetGo(t *testing.T) {
	for name, test := range map[string]struct {
		driver string
		want   int
	}{"ours": {driverName, 1}, "another driver's": {"other", 2}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			snapshot, content := snapshotOf("shop")
			setFields(map[string]any{"spec.driver": test.driver})(content)
			for _, err := range []error{
				b.dynamic.Tracker().Create(watch.VolumeSnapshots, snapshot, "shop"), b.dynamic.Tracker().Create(watch.VolumeSnapshotContents, content, ""),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			b.addMetadata(t, snapshotGroup+"/v1", "VolumeSnapshot", "shop", snapshotFinalizer)
			if err := b.sweepSnapshots(t.Context()); err != nil {
				t.Fatal(err)
			}
			if b.sources.queue.Len() > 0 {
				b.sources.next(t.Context())
			}
			if got := b.finalizers(t, watch.Object{Resource: watch.VolumeSnapshots, Namespace: "shop", Name: "src"}); len(got) != test.want {
				t.Errorf("finalizers %v", got)
			}
		})
	}
	t.Run("a claim that is being deleted", func(t *testing.T) {
		b := newBench(t, nil)
		b.addMetadata(t, "v1", "PersistentVolumeClaim", "shop", cloneFinalizer)
		claim, _ := sourceClaim(func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
			c.DeletionTimestamp, c.Finalizers = ptr.To(metav1.Now()), []string{cloneFinalizer}
		})
		b.sources.claimChanged(claim, "other") // of whom it is none of our business
		if b.sources.queue.Len() != 0 {
			t.Error("another driver's claim was taken for ours")
		}
		b.sources.claimChanged(claim, driverName)
		b.sources.next(t.Context())
		if got := b.finalizers(t, watch.Object{Resource: watch.PersistentVolumeClaims, Namespace: "shop", Name: "src"}); len(got) != 1 {
			t.Errorf("finalizers %v", got)
		}
	})
}

func TestAttributesOfVolumes(t *testing.T) {
	class := &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, DriverName: driverName, Parameters: map[string]string{"performanceLevel": "PL2"}}
	foreign := class.DeepCopy()
	foreign.Name, foreign.DriverName = "foreign", "other"
	tests := map[string]struct {
		class   string
		config  func(*Config)
		outcome Outcome
		want    string
		waits   watch.Object
	}{
		"of a class":         {class: "fast"},
		"another driver's":   {class: "foreign", outcome: Finished, want: "is of driver other"},
		"missing":            {class: "later", outcome: Unchanged, want: "not found", waits: watch.Object{Resource: watch.VolumeAttributesClasses, Name: "later"}},
		"can't be modified":  {class: "fast", config: func(c *Config) { c.DriverModifies = false }, outcome: Finished, want: "cannot modify volumes"},
		"switched off":       {class: "fast", config: func(c *Config) { c.AttributesClasses = false }, outcome: Finished, want: "VolumeAttributesClass=false"},
		"none, by its empty": {class: ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, []answer{made("d-bp1", 0, "zone-a")}, class, foreign)
			b.config.DriverModifies = true
			if test.config != nil {
				test.config(&b.config)
			}
			claim := testClaim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = &test.class })
			pv, outcome, err := b.provision(t.Context(), claim, testClass(map[string]string{
				"csi.storage.k8s.io/controller-modify-secret-name": "m", "csi.storage.k8s.io/controller-modify-secret-namespace": "vault",
			}), "node-1")
			if test.want != "" {
				if outcome != test.outcome || !strings.Contains(text(err), test.want) || notReadyObject(err) != test.waits {
					t.Errorf("got %v, %v, waiting for %v", outcome, err, notReadyObject(err))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := b.driver.created[0].MutableParameters["performanceLevel"]; (got == "PL2") != (test.class != "") {
				t.Errorf("asked for %q", got)
			}
			if got := ptr.Deref(pv.Spec.VolumeAttributesClassName, ""); got != test.class {
				t.Errorf("the PersistentVolume names %q", got)
			}
			if pv.Annotations["volume.kubernetes.io/controller-modify-secret-name"] != "m" || pv.Annotations["volume.kubernetes.io/controller-modify-secret-namespace"] != "vault" {
				t.Errorf("annotations %v", pv.Annotations)
			}
		})
	}
}
