// Package collect reads the facts that package explain judges from a cluster. It gets and lists, and does nothing else. What the
// user may not read, or the API server doesn't have, is noted in the facts; only the subject itself must be readable.
package collect

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/topodisk/topodisk/explain"
)

// The kinds of subjects.
const (
	Pod              = "Pod"
	Claim            = "PersistentVolumeClaim"
	Volume           = "PersistentVolume"
	Node             = "Node"
	VolumeAttachment = "VolumeAttachment"
)

// Other kinds.
const (
	csiNode         = "CSINode"
	csiDriver       = "CSIDriver"
	storageClass    = "StorageClass"
	attributesClass = "VolumeAttributesClass"
	capacity        = "CSIStorageCapacity"
	snapshot        = "VolumeSnapshot"
	snapshotContent = "VolumeSnapshotContent"
	event           = "Event"
	lease           = "Lease"
	configMap       = "ConfigMap"
)

// Kinds are the kinds of subjects, and whether they are in a namespace.
var Kinds = map[string]bool{Pod: true, Claim: true, Volume: false, Node: false, VolumeAttachment: false}

// Clients read a cluster.
type Clients struct {
	Kube    kubernetes.Interface
	Dynamic dynamic.Interface // for VolumeSnapshots

	clock *clock // nil: the reader's own
}

// NewClients returns clients that read in protobuf what can be, and don't limit their rate: a Read is bounded as a whole.
func NewClients(config *rest.Config) (Clients, error) {
	plain, server := rest.CopyConfig(config), &clock{}
	plain.QPS = -1
	plain.Wrap(server.wrap)
	objects, err := dynamic.NewForConfig(plain)
	if err != nil {
		return Clients{}, err
	}
	binary := rest.CopyConfig(plain)
	binary.ContentType = runtime.ContentTypeProtobuf
	binary.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	kube, err := kubernetes.NewForConfig(binary)
	if err != nil {
		return Clients{}, err
	}
	return Clients{kube, objects, server}, nil
}

// Read reads the facts that explain the subject, as explain.Facts lists them. It returns an error if the subject can't be read, or
// ctx ends. Long lists are read as the API server has them in its cache, which may lag behind the objects that are read by name.
// The namespace is the one that topodisk runs in; if it is empty, that is the only one that has its Lease. The time of the facts is that of the API server, where its answers tell it.
func Read(ctx context.Context, clients Clients, subject explain.Ref, driver, namespace string) (*explain.Facts, error) {
	r := newReader(clients, subject, driver, namespace)
	read, ok := map[string]func(context.Context) error{
		Pod: r.readPod, Claim: r.readClaim, Volume: r.readVolume, Node: r.readNode, VolumeAttachment: r.readAttachment,
	}[subject.Kind]
	if !ok {
		return nil, fmt.Errorf("kind %q can't be explained; allowed are %s, %s, %s, %s and %s", subject.Kind, Pod, Claim, Volume, Node, VolumeAttachment)
	}
	begin := time.Now()
	if err := read(ctx); err != nil {
		return nil, fmt.Errorf("%s %s: %w", subject.Kind, strings.TrimPrefix(subject.Namespace+"/"+subject.Name, "/"), err)
	}
	together(
		func() { r.readRoom(ctx) },
		func() { r.readEvents(ctx) },
		func() { r.readJournal(ctx) },
	)
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	facts := r.facts()
	facts.At = begin.Add(clients.clock.offset())
	return facts, nil
}
