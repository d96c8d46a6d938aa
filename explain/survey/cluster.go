package survey

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/topodisk/topodisk/explain/audit"
	"github.com/topodisk/topodisk/provisioner/journal"
	"github.com/topodisk/topodisk/provisioner/request"
)

// Cluster reads the API server.
type Cluster struct {
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	Driver  string
	// JournalNamespace is where disk-provisioner runs.
	JournalNamespace string
	// Namespace is whose claims and Pods are read; all if it is empty.
	Namespace string
	// Selector is which claims are read, by their labels; all if it is empty.
	Selector string
	Now      func() time.Time
}

// Read reads everything that an audit needs, as audit.Source wants it: the journal and the claims first, then the rest. The error says
// that nothing can be told.
func (c *Cluster) Read(ctx context.Context) (audit.Cluster, error) {
	r := &reading{facts: audit.Cluster{At: c.Now(), Driver: c.Driver}}
	for _, step := range [][]part{{
		{"disk-provisioner's journal", ofOwners, c.readJournal},
		{"PersistentVolumeClaims", ofOwners, c.readClaims},
	}, {
		{"PersistentVolumes", nil, c.readVolumes},
		{"VolumeAttachments", ofAttachments, c.readAttachments},
		{"CSINodes", ofAttachments, c.readCSINodes},
		{"Nodes", ofAttachments, c.readNodes},
		{"Pods", ofAttachments, c.readPods},
		{"VolumeSnapshotContents", []audit.Kind{audit.SnapshotWithoutContent}, c.readContents},
		{"VolumeGroupSnapshotContents", []audit.Kind{audit.SnapshotWithoutContent}, c.readGroupContents},
	}} {
		if err := r.all(ctx, step); err != nil {
			return audit.Cluster{}, err
		}
	}
	return r.facts, nil
}

// ReadVolumes reads what a list of volumes needs: claims, PersistentVolumes, VolumeAttachments, Pods and StorageClasses.
func (c *Cluster) ReadVolumes(ctx context.Context) (audit.Cluster, []storagev1.StorageClass, error) {
	r := &reading{facts: audit.Cluster{At: c.Now(), Driver: c.Driver}}
	var classes []storagev1.StorageClass
	err := r.all(ctx, []part{
		{"PersistentVolumeClaims", nil, c.readClaims},
		{"PersistentVolumes", ofOwners, c.readVolumes},
		{"VolumeAttachments", ofAttachments, c.readAttachments},
		{"Pods", ofAttachments, c.readPods},
		{"StorageClasses", ofOwners, func(ctx context.Context) (func(*audit.Cluster), error) {
			list, err := c.Client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
			return func(*audit.Cluster) { classes = list.Items }, err
		}},
	})
	return r.facts, classes, err
}

// The findings that depend on what is being made, and on what is to be attached.
var (
	ofOwners      = []audit.Kind{audit.DiskWithoutVolume, audit.LeftoverCopy, audit.UnderWay}
	ofAttachments = []audit.Kind{audit.UnwantedAttachment}
)

// part is something to be read. Without kinds it is essential.
type part struct {
	what  string
	kinds []audit.Kind
	read  func(context.Context) (set func(*audit.Cluster), err error)
}

// reading collects facts.
type reading struct {
	mu    sync.Mutex
	facts audit.Cluster
}

// all reads parts side by side.
func (r *reading) all(ctx context.Context, parts []part) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unread := make([]*audit.Unread, len(parts))
	var group sync.WaitGroup
	for i, p := range parts {
		group.Go(func() {
			set, err := p.read(ctx)
			switch {
			case err == nil:
				r.mu.Lock()
				set(&r.facts)
				r.mu.Unlock()
			case p.kinds != nil && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)):
				unread[i] = &audit.Unread{What: p.what, Reason: err.Error(), Kinds: p.kinds}
			default:
				cancel(fmt.Errorf("reading %s: %w", p.what, err))
			}
		})
	}
	group.Wait()
	for _, u := range unread {
		if u != nil {
			r.facts.Unread = append(r.facts.Unread, *u)
		}
	}
	return context.Cause(ctx)
}

var notInObjectName = regexp.MustCompile("[^a-zA-Z0-9-]")

// readJournal reads the requests of disk-provisioner. One of a later version is known by its claim's UID.
func (c *Cluster) readJournal(ctx context.Context) (func(*audit.Cluster), error) {
	prefix := "topodisk-journal-" + notInObjectName.ReplaceAllString(c.Driver, "-")
	records, err := journal.New(c.Client, nil, c.JournalNamespace, prefix, func() {}).Load(ctx)
	if err != nil {
		return nil, err
	}
	var requests []audit.Request
	for uid, record := range records {
		r := audit.Request{ClaimUID: uid}
		if decoded, err := request.Decode(record); err == nil {
			r.Name, r.Claim = decoded.Create.GetName(), decoded.Claim.Namespace+"/"+decoded.Claim.Name
		}
		requests = append(requests, r)
	}
	return func(f *audit.Cluster) { f.Requests = requests }, nil
}

// pages reads a list page by page, and keeps what keep says of each object.
func pages[T any](ctx context.Context, o metav1.ListOptions, list func(context.Context, metav1.ListOptions) (runtime.Object, error), keep func(T)) error {
	p := pager.New(list)
	p.PageBufferSize = 1
	return p.EachListItem(ctx, o, func(object runtime.Object) error {
		keep(any(object).(T))
		return nil
	})
}

func (c *Cluster) readClaims(ctx context.Context) (func(*audit.Cluster), error) {
	var all []corev1.PersistentVolumeClaim
	err := pages(ctx, metav1.ListOptions{LabelSelector: c.Selector}, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.Client.CoreV1().PersistentVolumeClaims(c.Namespace).List(ctx, o)
	}, func(claim *corev1.PersistentVolumeClaim) {
		claim.ManagedFields = nil
		all = append(all, *claim)
	})
	return func(f *audit.Cluster) { f.Claims = all }, err
}

func (c *Cluster) readVolumes(ctx context.Context) (func(*audit.Cluster), error) {
	var all []corev1.PersistentVolume
	err := pages(ctx, metav1.ListOptions{}, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.Client.CoreV1().PersistentVolumes().List(ctx, o)
	}, func(pv *corev1.PersistentVolume) {
		pv.ManagedFields = nil
		all = append(all, *pv)
	})
	return func(f *audit.Cluster) { f.Volumes = all }, err
}

func (c *Cluster) readAttachments(ctx context.Context) (func(*audit.Cluster), error) {
	var all []storagev1.VolumeAttachment
	err := pages(ctx, metav1.ListOptions{}, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.Client.StorageV1().VolumeAttachments().List(ctx, o)
	}, func(a *storagev1.VolumeAttachment) {
		all = append(all, storagev1.VolumeAttachment{Spec: a.Spec, Status: a.Status})
	})
	return func(f *audit.Cluster) { f.Attachments = all }, err
}

func (c *Cluster) readCSINodes(ctx context.Context) (func(*audit.Cluster), error) {
	var all []storagev1.CSINode
	err := pages(ctx, metav1.ListOptions{}, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.Client.StorageV1().CSINodes().List(ctx, o)
	}, func(n *storagev1.CSINode) {
		n.ManagedFields = nil
		all = append(all, *n)
	})
	return func(f *audit.Cluster) { f.CSINodes = all }, err
}

func (c *Cluster) readNodes(ctx context.Context) (func(*audit.Cluster), error) {
	var all []corev1.Node
	err := pages(ctx, metav1.ListOptions{}, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.Client.CoreV1().Nodes().List(ctx, o)
	}, func(n *corev1.Node) {
		all = append(all, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}, Spec: corev1.NodeSpec{ProviderID: n.Spec.ProviderID},
			Status: corev1.NodeStatus{VolumesInUse: n.Status.VolumesInUse, VolumesAttached: n.Status.VolumesAttached},
		})
	})
	return func(f *audit.Cluster) { f.Nodes = all }, err
}

// readPods keeps of a Pod its node, its volumes and its phase: neither environment nor commands.
func (c *Cluster) readPods(ctx context.Context) (func(*audit.Cluster), error) {
	var all []corev1.Pod
	err := pages(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName!="}, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.Client.CoreV1().Pods(c.Namespace).List(ctx, o)
	}, func(p *corev1.Pod) {
		if len(audit.ClaimsOf(p)) > 0 {
			all = append(all, corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
				Spec:       corev1.PodSpec{NodeName: p.Spec.NodeName, Volumes: p.Spec.Volumes}, Status: corev1.PodStatus{Phase: p.Status.Phase},
			})
		}
	})
	return func(f *audit.Cluster) { f.Pods = all }, err
}

func (c *Cluster) readContents(ctx context.Context) (func(*audit.Cluster), error) {
	return c.contents(ctx, "snapshot.storage.k8s.io", "volumesnapshotcontents", []string{"v1"}, func(o map[string]any) audit.Content {
		handle := cmp.Or(text(o, "status", "snapshotHandle"), text(o, "spec", "source", "snapshotHandle"))
		return audit.Content{Handle: handle, SnapshotUID: text(o, "spec", "volumeSnapshotRef", "uid")}
	})
}

// groupVersions are the versions of the API of group snapshots, the newest first.
var groupVersions = []string{"v1", "v1beta2", "v1beta1"}

func (c *Cluster) readGroupContents(ctx context.Context) (func(*audit.Cluster), error) {
	return c.contents(ctx, "groupsnapshot.storage.k8s.io", "volumegroupsnapshotcontents", groupVersions, func(o map[string]any) audit.Content {
		handle := cmp.Or(text(o, "status", "volumeGroupSnapshotHandle"), text(o, "spec", "source", "groupSnapshotHandles", "volumeGroupSnapshotHandle"))
		return audit.Content{Handle: handle, SnapshotUID: text(o, "spec", "volumeGroupSnapshotRef", "uid"), Group: true}
	})
}

// contents reads the contents of the driver in the first version that the cluster has; a cluster without the kind has none.
func (c *Cluster) contents(ctx context.Context, group, resource string, versions []string,
	of func(map[string]any) audit.Content) (func(*audit.Cluster), error) {
	var all []audit.Content
	var err error
	for _, version := range versions {
		all = nil
		client := c.Dynamic.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
		err = pages(ctx, metav1.ListOptions{}, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
			func(u *unstructured.Unstructured) {
				if text(u.Object, "spec", "driver") == c.Driver {
					content := of(u.Object)
					content.Name = u.GetName()
					all = append(all, content)
				}
			})
		if !apierrors.IsNotFound(err) {
			break
		}
		err = nil
	}
	return func(f *audit.Cluster) { f.Contents = append(f.Contents, all...) }, err
}

func text(object map[string]any, path ...string) string {
	value, _, _ := unstructured.NestedString(object, path...) // another type is none
	return value
}
