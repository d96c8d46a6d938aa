package source

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/watch"
)

const snapshotGroup = "snapshot.storage.k8s.io"

// bench is a Reader and a Protection on fake API servers.
type bench struct {
	*Protection
	api      *fake.Clientset
	volumes  cache.Store
	metadata *metadatafake.FakeMetadataClient
	dynamic  *dynamicfake.FakeDynamicClient
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{
		api: fake.NewClientset(), volumes: cache.NewStore(cache.MetaNamespaceKeyFunc),
		metadata: provisionertest.MetadataClient(), dynamic: provisionertest.DynamicClient(),
	}
	options := Options{DriverName: provisionertest.DriverName, Snapshots: true, Clones: true, PreventModeConversion: true, RetryStart: 1, RetryMax: 1}
	b.Protection = NewProtection(b.metadata, b.volumes, NewReader(options, b.api, b.dynamic))
	t.Cleanup(b.queue.ShutDown)
	return b
}

func acrossNamespaces(c *v1.PersistentVolumeClaim) {
	c.Spec.DataSourceRef = &v1.TypedObjectReference{APIGroup: ptr.To(snapshotGroup), Kind: "VolumeSnapshot", Name: "src", Namespace: ptr.To("archive")}
}

// sourceClaim returns a bound claim and its volume.
func sourceClaim(change ...func(*v1.PersistentVolumeClaim, *v1.PersistentVolume)) (*v1.PersistentVolumeClaim, *v1.PersistentVolume) {
	claim := provisionertest.Claim(func(c *v1.PersistentVolumeClaim) {
		c.Name, c.UID, c.ResourceVersion, c.Spec.VolumeName, c.Status.Phase = "src", "src-uid", "5", "d-src", v1.ClaimBound
	})
	pv := provisionertest.Volume("d-src", func(pv *v1.PersistentVolume) {
		pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID = "src", "src-uid"
		pv.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("20Gi")}
	})
	for _, f := range change {
		if f != nil {
			f(claim, pv)
		}
	}
	return claim, pv
}

func TestContentOfASnapshot(t *testing.T) {
	source := watch.Object{Resource: watch.VolumeSnapshots, Namespace: "shop", Name: "src"}
	type both = func(snapshot, content *unstructured.Unstructured)
	snapshot := func(values map[string]any) both {
		return func(s, _ *unstructured.Unstructured) { setFields(s, values) }
	}
	content := func(values map[string]any) both {
		return func(_, c *unstructured.Unstructured) { setFields(c, values) }
	}
	tests := map[string]struct {
		options func(*Options)
		claim   func(*v1.PersistentVolumeClaim)
		change  both
		absent  bool
		want    []string     // nothing: it is made
		waits   watch.Object // for what
	}{
		"ready": {},
		"no restore size": {
			change: snapshot(map[string]any{"status.restoreSize": nil}),
		},
		"a driver without snapshots": {
			options: func(o *Options) { o.Snapshots = false }, want: []string{"claim.spec.dataSource", "does not support snapshots"},
		},
		"no such snapshot": {
			absent: true, want: []string{"VolumeSnapshot shop/src", "not found"}, waits: source,
		},
		"not bound": {
			change: snapshot(map[string]any{"status": nil}), want: []string{"not bound"}, waits: source,
		},
		"not ready": {
			change: snapshot(map[string]any{"status.readyToUse": false}), want: []string{"not ready to use yet"}, waits: source,
		},
		"failed": {
			change: snapshot(map[string]any{"status.readyToUse": false, "status.error": map[string]any{"message": "no quota"}}),
			want:   []string{"not ready to use: no quota"}, waits: source,
		},
		"being deleted": {
			change: snapshot(map[string]any{"metadata.deletionTimestamp": "2026-01-02T03:04:05Z"}), want: []string{"is being deleted"}, waits: source,
		},
		"no content": {
			change: snapshot(map[string]any{"status.boundVolumeSnapshotContentName": "other"}), want: []string{"VolumeSnapshotContent other"},
			waits: watch.Object{Resource: watch.VolumeSnapshotContents, Name: "other"},
		},
		"no handle": {
			change: content(map[string]any{"status": nil}), want: []string{"no snapshotHandle yet"},
			waits: watch.Object{Resource: watch.VolumeSnapshotContents, Name: "content"},
		},
		"another driver's": {
			change: content(map[string]any{"spec.driver": "other"}), want: []string{"is of driver other"},
		},
		"the content of another snapshot": {
			change: content(map[string]any{"spec.volumeSnapshotRef.uid": "x"}), want: []string{"VolumeSnapshotContent content is of snapshot shop/src"},
		},
		"larger than the claim": {
			change: snapshot(map[string]any{"status.restoreSize": "21Gi"}), want: []string{"is 20Gi, less than the 21Gi"},
		},
		"another mode": {
			claim: func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock) },
			want:  []string{"claim.spec.volumeMode is Block", "was Filesystem", allowModeChange},
		},
		"another mode, allowed by the snapshot": {
			claim:  func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock) },
			change: func(_, c *unstructured.Unstructured) { c.SetAnnotations(map[string]string{allowModeChange: "true"}) },
		},
		"another mode, allowed by the operator": {
			claim:   func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock) },
			options: func(o *Options) { o.PreventModeConversion = false },
		},
		"another namespace, without the gate": {
			claim: acrossNamespaces, want: []string{"dataSourceRef.namespace is archive", "CrossNamespaceVolumeDataSource=true"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if test.options != nil {
				test.options(&b.reader.options)
			}
			if !test.absent {
				provisionertest.AddSnapshot(t, b.dynamic, "shop", test.change)
			}
			claim := provisionertest.Claim(provisionertest.FromSnapshot)
			if test.claim != nil {
				test.claim(claim)
			}
			content, err := b.reader.Content(t.Context(), claim)
			if len(test.want) == 0 {
				if err != nil || content.GetSnapshot().GetSnapshotId() != "s-1" {
					t.Errorf("got %v, %v", content, err)
				}
				return
			}
			for _, want := range test.want {
				if !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
			if waits := watch.NotReadyObject(err); waits != test.waits {
				t.Errorf("it waits for %v, want %v", waits, test.waits)
			}
		})
	}
}

func TestContentOfAClaim(t *testing.T) {
	src := watch.Object{Resource: watch.PersistentVolumeClaims, Namespace: "shop", Name: "src"}
	tests := map[string]struct {
		options func(*Options)
		change  func(*v1.PersistentVolumeClaim, *v1.PersistentVolume)
		absent  bool
		want    string // nothing: it is made
		waits   watch.Object
	}{
		"bound":                        {},
		"a driver that copies nothing": {options: func(o *Options) { o.Clones = false }, want: "does not support clones"},
		"no such claim":                {absent: true, want: "not found", waits: src},
		"being deleted": {
			change: func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { c.DeletionTimestamp = ptr.To(metav1.Now()) },
			want:   "is being deleted", waits: src,
		},
		"not bound": {
			change: func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { c.Status.Phase = v1.ClaimPending },
			want:   "not bound yet", waits: src,
		},
		"another mode": {
			change: func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
				c.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
			},
			want: "claim.spec.volumeMode is Filesystem, that of claim shop/src is Block",
		},
		"another driver's": {
			change: func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) { pv.Spec.CSI.Driver = "other" },
			want:   "not of driver " + provisionertest.DriverName,
		},
		"a volume that is another claim's": {
			change: func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) { pv.Spec.ClaimRef.UID = "x" },
			want:   "PersistentVolume d-src is not bound to",
		},
		"larger than the claim": {
			change: func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
				pv.Spec.Capacity[v1.ResourceStorage] = resource.MustParse("21Gi")
			},
			want: "is 20Gi, less than the 21Gi",
		},
		"of another class": {
			change: func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { c.Spec.StorageClassName = ptr.To("ssd") },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if !test.absent {
				claim, pv := sourceClaim(test.change)
				for _, object := range []runtime.Object{claim, pv} {
					if err := b.api.Tracker().Add(object); err != nil {
						t.Fatal(err)
					}
				}
			}
			if test.options != nil {
				test.options(&b.reader.options)
			}
			content, err := b.reader.Content(t.Context(), provisionertest.Claim(fromClaim))
			switch {
			case test.want == "":
				if err != nil || content.GetVolume().GetVolumeId() != "d-src" {
					t.Errorf("got %v, %v", content, err)
				}
			case !strings.Contains(fmt.Sprint(err), test.want) || watch.NotReadyObject(err) != test.waits:
				t.Errorf("got %v, waiting for %v", err, watch.NotReadyObject(err))
			}
		})
	}
}

// A tenant may have any number of ReferenceGrants with annotations of 256 KiB.
func TestGrantsAreReadInPages(t *testing.T) {
	b := newBench(t)
	b.reader.options.CrossNamespace = true
	provisionertest.AddSnapshot(t, b.dynamic, "archive", nil)
	pages := 0
	b.dynamic.PrependReactor("list", "referencegrants", func(action clienttesting.Action) (bool, runtime.Object, error) {
		asked := action.(clienttesting.ListActionImpl).ListOptions
		if asked.Limit == 0 || asked.Limit > grantPage || (asked.Continue != "") != (pages > 0) {
			t.Errorf("page %d is asked for with %+v", pages, asked)
		}
		pages++
		list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrantList"}}
		if pages < 3 {
			list.SetContinue("more")
			return true, list, nil
		}
		list.Items = []unstructured.Unstructured{{Object: map[string]any{"spec": map[string]any{
			"from": []any{map[string]any{"group": "", "kind": "PersistentVolumeClaim", "namespace": "shop"}},
			"to":   []any{map[string]any{"group": snapshotGroup, "kind": "VolumeSnapshot"}},
		}}}}
		return true, list, nil
	})
	if _, err := b.reader.Content(t.Context(), provisionertest.Claim(acrossNamespaces)); err != nil || pages != 3 {
		t.Errorf("got %v after %d pages", err, pages)
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
			b := newBench(t)
			b.reader.options.CrossNamespace = true
			provisionertest.AddSnapshot(t, b.dynamic, "archive", nil)
			if test.grant != nil {
				if _, err := b.dynamic.Resource(watch.ReferenceGrants).Namespace("archive").Create(t.Context(), test.grant, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			_, err := b.reader.Content(t.Context(), provisionertest.Claim(acrossNamespaces))
			if (err == nil) != test.allowed {
				t.Errorf("got %v", err)
			}
			isTold := strings.Contains(fmt.Sprint(err), "ReferenceGrant of namespace archive")
			if !test.allowed && (watch.NotReadyObject(err) != watch.Object{Resource: watch.ReferenceGrants, Namespace: "archive"} || !isTold) {
				t.Errorf("got %v, waiting for %v", err, watch.NotReadyObject(err))
			}
		})
	}
}

// fromClaim makes a claim one that is filled from claim src of its namespace.
func fromClaim(c *v1.PersistentVolumeClaim) {
	c.Spec.DataSourceRef = &v1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "src"}
}

// setFields sets fields of an object by their paths, with dots between, or removes
// those whose value is nil.
func setFields(u *unstructured.Unstructured, values map[string]any) {
	for path, value := range values {
		if value == nil {
			unstructured.RemoveNestedField(u.Object, strings.Split(path, ".")...)
		} else if err := unstructured.SetNestedField(u.Object, value, strings.Split(path, ".")...); err != nil {
			panic(err)
		}
	}
}
