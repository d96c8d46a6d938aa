package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/topodisk/topodisk/explain/lists"
	"github.com/topodisk/topodisk/internal/audit"
	"github.com/topodisk/topodisk/internal/podclaims"
	"github.com/topodisk/topodisk/provisioner/journal"
	"github.com/topodisk/topodisk/provisioner/request"
)

// Reader reads the API server.
type Reader struct {
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	Driver  string
	// JournalNamespace is where disk-provisioner runs; empty: where its Lease is.
	JournalNamespace string
	// Namespace is whose claims and Pods are read; all if it is empty.
	Namespace string
	// Selector is which claims are read, by their labels; all if it is empty.
	Selector string
	Now      func() time.Time
}

// Read reads everything that an audit needs, as audit.Source wants it: the journal and the claims first, then the rest. The error says
// that nothing can be told.
func (c *Reader) Read(ctx context.Context) (audit.Cluster, error) {
	r := c.newReading()
	f, core, storage := &r.facts, c.Client.CoreV1(), c.Client.StorageV1()
	for _, step := range [][]part{{
		{"disk-provisioner's journal", ofOwners, r.readJournal},
		r.claims(ofOwners),
	}, {
		r.volumes(nil),
		r.attachments(),
		{"CSINodes", ofAttachments, list(storage.CSINodes().List, metav1.ListOptions{}, lists.Keep(&f.CSINodes))},
		{"Nodes", ofAttachments, list(core.Nodes().List, metav1.ListOptions{}, func(n *corev1.Node) {
			f.Nodes = append(f.Nodes, corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}, Spec: corev1.NodeSpec{ProviderID: n.Spec.ProviderID},
				Status: corev1.NodeStatus{VolumesInUse: n.Status.VolumesInUse, VolumesAttached: n.Status.VolumesAttached},
			})
		})},
		r.pods(),
		{"StorageClasses", []audit.Kind{audit.IncompleteClass}, list(storage.StorageClasses().List, metav1.ListOptions{}, func(class *storagev1.StorageClass) {
			if err := request.CheckSecrets(class); err != nil && class.Provisioner == c.Driver {
				f.Classes = append(f.Classes, audit.Class{Name: class.Name, Missing: err.Error()})
			}
		})},
		r.contents("VolumeSnapshotContents", lists.SnapshotGroup, "volumesnapshotcontents", func(o map[string]any) audit.Content {
			handle := cmp.Or(text(o, "status", "snapshotHandle"), text(o, "spec", "source", "snapshotHandle"))
			return audit.Content{Handle: handle, SnapshotUID: text(o, "spec", "volumeSnapshotRef", "uid")}
		}),
		r.contents("VolumeGroupSnapshotContents", lists.GroupSnapshotGroup, "volumegroupsnapshotcontents", func(o map[string]any) audit.Content {
			handle := cmp.Or(text(o, "status", "volumeGroupSnapshotHandle"), text(o, "spec", "source", "groupSnapshotHandles", "volumeGroupSnapshotHandle"))
			return audit.Content{Handle: handle, SnapshotUID: text(o, "spec", "volumeGroupSnapshotRef", "uid"), Group: true}
		}),
	}} {
		if err := r.all(ctx, step); err != nil {
			return audit.Cluster{}, err
		}
	}
	return r.facts, nil
}

// ReadVolumes reads what a list of volumes needs: claims, PersistentVolumes, VolumeAttachments, Pods and StorageClasses.
func (c *Reader) ReadVolumes(ctx context.Context) (audit.Cluster, []storagev1.StorageClass, error) {
	r := c.newReading()
	var classes []storagev1.StorageClass
	err := r.all(ctx, []part{
		r.claims(nil), r.volumes(ofOwners), r.attachments(), r.pods(),
		{"StorageClasses", ofOwners, list(c.Client.StorageV1().StorageClasses().List, metav1.ListOptions{}, lists.Keep(&classes))},
	})
	return r.facts, classes, err
}

// The findings that depend on what is being made, and on what is to be attached.
var (
	ofOwners      = []audit.Kind{audit.DiskWithoutVolume, audit.LeftoverCopy, audit.UnderWay}
	ofAttachments = []audit.Kind{audit.UnwantedAttachment}
)

// Attachments is what an Unread calls VolumeAttachments.
const Attachments = "VolumeAttachments"

// part is something to be read. Without kinds it is essential.
type part struct {
	what  string
	kinds []audit.Kind
	read  func(context.Context) error
}

// list returns what reads all objects of a kind and hands each to take.
func list[L lists.List, O any](page func(context.Context, metav1.ListOptions) (L, error), o metav1.ListOptions, take func(*O)) func(context.Context) error {
	return func(ctx context.Context) error { return lists.Each(ctx, page, o, take) }
}

// reading collects facts. Contents have two writers; every other field has one.
type reading struct {
	*Reader
	mu    sync.Mutex
	facts audit.Cluster
}

func (c *Reader) newReading() *reading {
	return &reading{Reader: c, facts: audit.Cluster{At: c.Now(), Driver: c.Driver}}
}

// all reads parts side by side.
func (r *reading) all(ctx context.Context, parts []part) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unread := make([]*audit.Unread, len(parts))
	var group sync.WaitGroup
	for i, p := range parts {
		group.Go(func() {
			err := p.read(ctx)
			switch {
			case err == nil:
			case p.kinds != nil && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || errors.Is(err, errNoNamespace)):
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

// readJournal reads the requests of disk-provisioner. One of a later version is known by its claim's UID.
func (r *reading) readJournal(ctx context.Context) error {
	namespaces, err := r.journalNamespaces(ctx)
	if err != nil {
		return err
	}
	for _, namespace := range namespaces {
		records, err := journal.New(r.Client, nil, namespace, request.JournalName(r.Driver), func() {}).Load(ctx)
		if err != nil {
			return err
		}
		for uid, record := range records {
			of := audit.Request{ClaimUID: uid}
			if decoded, err := request.Decode(record); err == nil {
				of.Name, of.Claim = decoded.Create.GetName(), decoded.Claim.Namespace+"/"+decoded.Claim.Name
			}
			r.facts.Requests = append(r.facts.Requests, of)
		}
	}
	return nil
}

// errNoNamespace says that it is not known where the journal is.
var errNoNamespace = errors.New("set --topodisk-namespace")

// journalNamespaces returns where a disk-provisioner has its Lease: of all namespaces or, without the right to list those, of the one where
// it usually runs.
func (r *reading) journalNamespaces(ctx context.Context) ([]string, error) {
	if r.JournalNamespace != "" {
		return []string{r.JournalNamespace}, nil
	}
	var found []string
	name := request.ObjectName(r.Driver)
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
	find := func(namespace string) error {
		return lists.Each(ctx, r.Client.CoordinationV1().Leases(namespace).List, options, func(l *coordinationv1.Lease) {
			if l.Name == name {
				found = append(found, l.Namespace)
			}
		})
	}
	err := find(metav1.NamespaceAll)
	if apierrors.IsForbidden(err) && find(metav1.NamespaceSystem) == nil && len(found) > 0 {
		err = nil
	}
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, fmt.Errorf("no Lease of disk-provisioner says in which namespace it is; %w", errNoNamespace)
	case len(found) > 1: // whoever may create Leases in a namespace may write a journal there, too
		slices.Sort(found)
		return nil, fmt.Errorf("namespaces %s each have a Lease %s, as disk-provisioner's has; %w", strings.Join(found, ", "), name, errNoNamespace)
	}
	return found, nil
}

func (r *reading) claims(kinds []audit.Kind) part {
	selected := metav1.ListOptions{LabelSelector: r.Selector}
	return part{"PersistentVolumeClaims", kinds, list(r.Client.CoreV1().PersistentVolumeClaims(r.Namespace).List, selected, lists.Keep(&r.facts.Claims))}
}

func (r *reading) volumes(kinds []audit.Kind) part {
	return part{"PersistentVolumes", kinds, list(r.Client.CoreV1().PersistentVolumes().List, metav1.ListOptions{}, lists.Keep(&r.facts.Volumes))}
}

func (r *reading) attachments() part {
	all := r.Client.StorageV1().VolumeAttachments().List
	return part{Attachments, ofAttachments, list(all, metav1.ListOptions{}, lists.Keep(&r.facts.Attachments))}
}

// pods keeps of a Pod its node, its volumes and its phase: neither environment nor commands.
func (r *reading) pods() part {
	placed := metav1.ListOptions{FieldSelector: "spec.nodeName!="}
	return part{"Pods", ofAttachments, list(r.Client.CoreV1().Pods(r.Namespace).List, placed, func(p *corev1.Pod) {
		if len(podclaims.InUse(p)) > 0 {
			r.facts.Pods = append(r.facts.Pods, corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
				Spec:       corev1.PodSpec{NodeName: p.Spec.NodeName, Volumes: p.Spec.Volumes}, Status: corev1.PodStatus{Phase: p.Status.Phase},
			})
		}
	})}
}

// contents reads the contents of the driver; of says what a content is.
func (r *reading) contents(what, group, resource string, of func(map[string]any) audit.Content) part {
	return part{what, []audit.Kind{audit.SnapshotWithoutContent}, func(ctx context.Context) error {
		return lists.EachOfSnapshots(ctx, r.Dynamic, group, resource, func(u *unstructured.Unstructured) {
			if text(u.Object, "spec", "driver") == r.Driver {
				content := of(u.Object)
				content.Name = u.GetName()
				r.mu.Lock()
				defer r.mu.Unlock()
				r.facts.Contents = append(r.facts.Contents, content)
			}
		})
	}}
}

func text(object map[string]any, path ...string) string {
	value, _, _ := unstructured.NestedString(object, path...) // another type is none
	return value
}
