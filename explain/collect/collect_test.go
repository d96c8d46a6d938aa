package collect

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/topodisk/topodisk/explain"
)

// unplaced is what is read of a Pod without a node, and of its claim.
const unplaced = `Nodes: node-1 node-2 node-3
CSINodes: node-1 node-2 node-3
CSIDriver: diskplugin.csi.alibabacloud.com
Classes: disks files
Attributes: fast
Capacities: disks-all
Claims: copy-db-1 data-db-1
Volumes: d-0 d-7
Attachments: va-0 va-7 va-8
Pods: db-0 db-1 till-0 till-1
Snapshot: nightly nightly content diskplugin.csi.alibabacloud.com 20Gi false too many snapshots
Events: data-db-1.provisioningfailed
Leases: diskplugin-csi-alibabacloud-com
Journal: uid-data-db-1 shop/data-db-1 node-2
`

// subjects of the scene, with what is read of each.
var subjects = []struct {
	ref  explain.Ref
	want string
}{
	{explain.Ref{Kind: Pod, Namespace: "shop", Name: "db-0"}, `Nodes: node-1 node-2 node-3
CSINodes: node-1 node-2 node-3
CSIDriver: diskplugin.csi.alibabacloud.com
Classes: disks files
Capacities: disks-all
Claims: data-db-0
Volumes: d-0 d-7
Attachments: va-0 va-7 va-8
Pods: db-0 till-0
Events: node-1.nodenotready db-0.failedattachvolume
Leases: diskplugin-csi-alibabacloud-com
`},
	{explain.Ref{Kind: Pod, Namespace: "shop", Name: "db-1"}, unplaced},
	{explain.Ref{Kind: Claim, Namespace: "shop", Name: "data-db-0"}, `Nodes: node-1
CSIDriver: diskplugin.csi.alibabacloud.com
Classes: disks files
Capacities: disks-all
Claims: data-db-0
Volumes: d-0
Attachments: va-0
Pods: db-0
Events: node-1.nodenotready db-0.failedattachvolume
Leases: diskplugin-csi-alibabacloud-com
`},
	{explain.Ref{Kind: Claim, Namespace: "shop", Name: "data-db-1"}, unplaced},
	{explain.Ref{Kind: Claim, Namespace: "shop", Name: "clone"}, `Nodes: node-1 node-2 node-3
CSINodes: node-1 node-2 node-3
CSIDriver: diskplugin.csi.alibabacloud.com
Classes: disks files
Capacities: disks-all
Claims: clone data-db-0
Leases: diskplugin-csi-alibabacloud-com
`},
	{explain.Ref{Kind: Volume, Name: "d-0"}, `Nodes: node-1
CSIDriver: diskplugin.csi.alibabacloud.com
Classes: disks files
Claims: data-db-0
Volumes: d-0 d-0-twin
Attachments: va-0
Events: node-1.nodenotready
Leases: diskplugin-csi-alibabacloud-com
`},
	{explain.Ref{Kind: Node, Name: "node-1"}, `Nodes: node-1
CSINodes: node-1
CSIDriver: diskplugin.csi.alibabacloud.com
Volumes: d-0 d-7
Attachments: va-0 va-7
Pods: db-0 till-0
Events: node-1.nodenotready
Leases: node-1
`},
	{explain.Ref{Kind: VolumeAttachment, Name: "va-0"}, `Nodes: node-1
CSINodes: node-1
Claims: data-db-0
Volumes: d-0
Attachments: va-0 va-7
Pods: db-0
Events: node-1.nodenotready db-0.failedattachvolume
`},
}

func TestEachSubjectGetsItsFacts(t *testing.T) {
	for _, subject := range subjects {
		f := facts(t, newScene(t), subject.ref)
		if diff := cmp.Diff(subject.want, names(f)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", subject.ref, diff)
		}
	}
}

// The room of a few nodes is worked out from the Pods on them; of many it would take too long.
func TestTheRoomOfManyNodesIsNotRead(t *testing.T) {
	s := newScene(t)
	for n := range explain.MaxRoomNodes {
		for _, o := range []runtime.Object{node(fmt.Sprintf("more-%d", n)), csiNodeOf(fmt.Sprintf("more-%d", n))} {
			if err := s.kube.Tracker().Add(o); err != nil {
				t.Fatal(err)
			}
		}
	}
	f := facts(t, s, explain.Ref{Kind: Pod, Namespace: "shop", Name: "db-1"})
	const want = "the Pods on 103 nodes that may take the Pod were not read, for they are more than 100"
	if len(f.Unread) != 1 || f.Unread[0] != (explain.Unread{Kind: Pod, Reason: want}) || len(f.Pods) != 1 || len(f.Volumes) > 0 {
		t.Errorf("unread %v, pods %v, volumes %v", f.Unread, of(f.Pods), of(f.Volumes))
	}
}

// The events of a claim are read however many Pods use it.
func TestTheEventsOfAClaimOfManyPodsAreRead(t *testing.T) {
	s := newScene(t)
	for i := range 2 * maxInvolved {
		if err := s.kube.Tracker().Add(pod(fmt.Sprintf("web-%d", i), "", "data-db-1")); err != nil {
			t.Fatal(err)
		}
	}
	f := facts(t, s, explain.Ref{Kind: Claim, Namespace: "shop", Name: "data-db-1"})
	if len(f.Unread) > 0 || len(f.Pods) < 2*maxInvolved || !slices.ContainsFunc(f.Events, func(e corev1.Event) bool { return e.Reason == "ProvisioningFailed" }) {
		t.Errorf("%d Pods, events %v, unread %v", len(f.Pods), f.Events, f.Unread)
	}
}

func TestNothingButGetAndListIsDone(t *testing.T) {
	for _, subject := range subjects {
		s := newScene(t)
		facts(t, s, subject.ref)
		for _, request := range s.requests() {
			if !strings.HasPrefix(request, "get ") && !strings.HasPrefix(request, "list ") || strings.Contains(request, "secrets") {
				t.Errorf("%v: %s", subject.ref, request)
			}
		}
	}
}

// errorsOf are ways in which a request fails.
var errorsOf = map[string]func(schema.GroupVersionResource) error{
	"forbidden": func(of schema.GroupVersionResource) error {
		return apierrors.NewForbidden(of.GroupResource(), "", errors.New("no right"))
	},
	"no such kind": func(of schema.GroupVersionResource) error {
		return apierrors.NewGenericServerResponse(http.StatusNotFound, "get", of.GroupResource(), "", "404 page not found", 0, true)
	},
	"broken": func(of schema.GroupVersionResource) error { return apierrors.NewInternalError(errors.New("broken")) },
}

var kindOfResource = map[string]string{
	"pods": Pod, "persistentvolumeclaims": Claim, "persistentvolumes": Volume, "nodes": Node, "volumeattachments": VolumeAttachment,
	"csinodes": csiNode, "csidrivers": csiDriver, "storageclasses": storageClass, "volumeattributesclasses": attributesClass,
	"csistoragecapacities": capacity, "volumesnapshots": snapshot, "volumesnapshotcontents": snapshotContent, "events": event, "leases": lease,
	"configmaps": configMap,
}

// Whatever can't be read is named, and all else read all the same; only the subject must be readable.
func TestWhatCantBeReadIsNoted(t *testing.T) {
	for _, subject := range subjects {
		s := newScene(t)
		facts(t, s, subject.ref)
		for _, request := range s.requests() {
			for how, failure := range errorsOf {
				if request == "get configmaps" && how == "no such kind" {
					continue // every API server has them
				}
				t.Run(fmt.Sprintf("%s %s %s %s", subject.ref.Name, request, how, subject.ref.Kind), func(t *testing.T) {
					checkNoted(t, subject.ref, request, failure)
				})
			}
		}
	}
}

func checkNoted(t *testing.T, subject explain.Ref, request string, failure func(schema.GroupVersionResource) error) {
	t.Helper()
	verb, resource, _ := strings.Cut(request, " ")
	s := newScene(t)
	s.refuse(func(a clienttesting.Action) error {
		if a.GetVerb() != verb || a.GetResource().Resource != resource {
			return nil
		}
		return failure(a.GetResource())
	})
	f, err := Read(t.Context(), s.clients(), subject, driver, "")
	kind := kindOfResource[resource]
	if kind == subject.Kind && verb == "get" {
		if err == nil || !strings.Contains(err.Error(), subject.Name) {
			t.Errorf("the subject can't be read, and the error is %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	another := slices.ContainsFunc(f.Unread, func(u explain.Unread) bool { return u.Kind != kind || u.Reason == "" })
	if another || len(f.Unread) == 0 {
		t.Errorf("unread: %v, want %s alone", f.Unread, kind)
	}
}

func TestTheSubjectMustBeThere(t *testing.T) {
	for _, subject := range subjects {
		subject.ref.Name = "absent"
		_, err := Read(t.Context(), newScene(t).clients(), subject.ref, driver, "")
		if !apierrors.IsNotFound(err) || !strings.HasPrefix(err.Error(), subject.ref.Kind+" ") {
			t.Errorf("%v: %v", subject.ref, err)
		}
	}
	if _, err := Read(t.Context(), newScene(t).clients(), explain.Ref{Kind: "Job", Name: "x"}, driver, ""); err == nil || !strings.Contains(err.Error(), "allowed are Pod, ") {
		t.Errorf("a Job: %v", err)
	}
}

// A user who has rights in a namespace alone gets what there is in it, and is told what else there may be.
func TestRightsInANamespaceSuffice(t *testing.T) {
	s := newScene(t)
	s.refuse(func(a clienttesting.Action) error {
		if a.GetNamespace() == "shop" {
			return nil
		}
		return errorsOf["forbidden"](a.GetResource())
	})
	f := facts(t, s, explain.Ref{Kind: Pod, Namespace: "shop", Name: "db-0"})
	want := `Claims: data-db-0
Pods: db-0
Events: db-0.failedattachvolume
Unread: CSIDriver  csidrivers.storage.k8s.io is forbidden: no right
Unread: CSINode  csinodes.storage.k8s.io is forbidden: no right
Unread: CSIStorageCapacity  csistoragecapacities.storage.k8s.io is forbidden: no right; only namespace shop was read
Unread: Lease  leases.coordination.k8s.io is forbidden: no right
Unread: Node  nodes is forbidden: no right
Unread: PersistentVolume  persistentvolumes is forbidden: no right
Unread: Pod  pods is forbidden: no right; only namespace shop was read
Unread: StorageClass  storageclasses.storage.k8s.io is forbidden: no right
Unread: VolumeAttachment  volumeattachments.storage.k8s.io is forbidden: no right
`
	if diff := cmp.Diff(want, names(f)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What the Lease's namespace is isn't known; that of most installations is tried.
func TestTheLeaseIsFoundWithoutRightsElsewhere(t *testing.T) {
	s := newScene(t)
	s.refuse(func(a clienttesting.Action) error {
		if a.GetResource().Resource == "leases" && a.GetNamespace() != "kube-system" {
			return errorsOf["forbidden"](a.GetResource())
		}
		return nil
	})
	f := facts(t, s, explain.Ref{Kind: Claim, Namespace: "shop", Name: "data-db-1"})
	if len(f.Leases) != 1 || len(f.Journal) != 1 || len(f.Unread) != 1 || !strings.HasSuffix(f.Unread[0].Reason, "; only namespace kube-system was read") {
		t.Errorf("leases %v, journal %v, unread %v", of(f.Leases), f.Journal, f.Unread)
	}
}

// Whoever may create Leases in a namespace could otherwise hide that no disk-provisioner leads, and write a journal.
func TestALeaseOfATenantDoesNotCount(t *testing.T) {
	of := explain.Ref{Kind: Claim, Namespace: "shop", Name: "data-db-1"}
	s := newScene(t)
	if err := s.kube.Tracker().Add(leaseOf("shop", "diskplugin-csi-alibabacloud-com")); err != nil {
		t.Fatal(err)
	}
	f := facts(t, s, of)
	want := "namespaces kube-system, shop each have a Lease diskplugin-csi-alibabacloud-com; set --topodisk-namespace to the one in which topodisk runs"
	if len(f.Leases) != 0 || len(f.Journal) != 0 || len(f.Unread) != 1 || f.Unread[0].Reason != want {
		t.Errorf("leases %v, journal %v, unread %v", f.Leases, f.Journal, f.Unread)
	}
	f, err := Read(t.Context(), s.clients(), of, driver, "kube-system")
	if err != nil || len(f.Leases) != 1 || f.Leases[0].Namespace != "kube-system" || len(f.Journal) != 1 || len(f.Unread) != 0 {
		t.Errorf("leases %v, journal %v, unread %v, %v", f.Leases, f.Journal, f.Unread, err)
	}
}

func TestListsAreReadInPages(t *testing.T) {
	s := newScene(t)
	var asked []metav1.ListOptions
	s.kube.PrependReactor("list", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		options := a.(clienttesting.ListActionImpl).ListOptions
		asked = append(asked, options)
		page := &corev1.NodeList{Items: []corev1.Node{*node(fmt.Sprintf("page-%d", len(asked)))}}
		if len(asked) < 3 {
			page.Continue = fmt.Sprintf("page %d", len(asked)+1)
		}
		return true, page, nil
	})
	f := facts(t, s, explain.Ref{Kind: Pod, Namespace: "shop", Name: "db-1"})
	if got := of(f.Nodes); !slices.Equal(got, []string{"page-1", "page-2", "page-3"}) {
		t.Errorf("nodes %q", got)
	}
	want := []metav1.ListOptions{
		{Limit: pageSize, ResourceVersion: "0"}, {Limit: pageSize, Continue: "page 2"}, {Limit: pageSize, Continue: "page 3"},
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
}

// A list from the cache doesn't replace what was read by name.
func TestWhatIsReadByNameIsNewer(t *testing.T) {
	s := newScene(t)
	s.kube.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		old := pod("db-0", "", "data-db-0")
		return true, &corev1.PodList{Items: []corev1.Pod{*old}}, nil
	})
	f := facts(t, s, explain.Ref{Kind: Pod, Namespace: "shop", Name: "db-0"})
	if len(f.Pods) != 1 || f.Pods[0].Spec.NodeName != "node-1" {
		t.Errorf("pods: %v", f.Pods)
	}
}

func TestReadEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("interrupted")
	s := newScene(t)
	s.kube.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel(why)
		return true, nil, ctx.Err()
	})
	if _, err := Read(ctx, s.clients(), explain.Ref{Kind: Pod, Namespace: "shop", Name: "db-0"}, driver, ""); !errors.Is(err, why) {
		t.Errorf("the error is %v", err)
	}
}

func TestOtherRecordsOfTheJournalDontCount(t *testing.T) {
	s := newScene(t)
	s.kube.PrependReactor("get", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.(clienttesting.GetAction).GetName() != "topodisk-journal-diskplugin-csi-alibabacloud-com-3" {
			return true, nil, apierrors.NewNotFound(a.GetResource().GroupResource(), "")
		}
		return true, &corev1.ConfigMap{Data: map[string]string{"uid-clone": "{", "uid-other": "{"}}, nil
	})
	f := facts(t, s, explain.Ref{Kind: Claim, Namespace: "shop", Name: "clone"})
	if len(f.Journal) > 0 || len(f.Unread) != 1 || !strings.Contains(f.Unread[0].Reason, "uid-clone") {
		t.Errorf("journal %v, unread %v", f.Journal, f.Unread)
	}
}

// Typed objects come as protobuf, which costs the API server less; VolumeSnapshots can't.
func TestTypedObjectsComeAsProtobuf(t *testing.T) {
	accepts := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accepts <- r.Header.Get("Accept")
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	clients, err := NewClients(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for want, get := range map[string]func() error{
		"application/vnd.kubernetes.protobuf,application/json": func() error {
			_, err := clients.Kube.CoordinationV1().Leases("x").Get(t.Context(), "y", metav1.GetOptions{})
			return err
		},
		"application/json": func() error {
			_, err := clients.Dynamic.Resource(coordinationv1.SchemeGroupVersion.WithResource("leases")).Get(t.Context(), "y", metav1.GetOptions{})
			return err
		},
	} {
		if err := get(); !apierrors.IsForbidden(err) {
			t.Errorf("the error is %v", err)
		}
		if got := <-accepts; got != want {
			t.Errorf("accepts %q, want %q", got, want)
		}
	}
}
