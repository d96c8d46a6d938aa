package explain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/internal/podclaims"
	"github.com/topodisk/topodisk/internal/shell"
	"github.com/topodisk/topodisk/provisioner/request"
)

// The kinds, as in a manifest.
const (
	kindPod        = "Pod"
	kindClaim      = "PersistentVolumeClaim"
	kindVolume     = "PersistentVolume"
	kindNode       = "Node"
	kindCSINode    = "CSINode"
	kindClass      = "StorageClass"
	kindCapacity   = "CSIStorageCapacity"
	kindCSIDriver  = "CSIDriver"
	kindAttachment = "VolumeAttachment"
	kindSnapshot   = "VolumeSnapshot"
	kindEvent      = "Event"
	kindLease      = "Lease"
	kindConfigMap  = "ConfigMap"
)

// cluster is Facts with indexes.
type cluster struct {
	*Facts

	pods        map[string]*corev1.Pod
	claims      map[string]*corev1.PersistentVolumeClaim
	volumes     map[string]*corev1.PersistentVolume
	nodes       map[string]*corev1.Node
	csiNodes    map[string]*storagev1.CSINode
	classes     map[string]*storagev1.StorageClass
	attachments map[string]*storagev1.VolumeAttachment

	podsOfClaim         map[string][]*corev1.Pod // the oldest first
	podsOfNode          map[string][]*corev1.Pod
	volumeOfClaim       map[string]*corev1.PersistentVolume
	attachmentsOfVolume map[string][]*storagev1.VolumeAttachment
	attachmentsOfNode   map[string][]*storagev1.VolumeAttachment

	missed []Unread // what was asked for and not read
}

func newCluster(f *Facts) *cluster {
	c := &cluster{
		Facts: f,
		pods:  byName(f.Pods), claims: byName(f.Claims),
		volumes: byName(f.Volumes), nodes: byName(f.Nodes),
		csiNodes: byName(f.CSINodes), classes: byName(f.Classes),
		attachments: byName(f.Attachments),
		podsOfClaim: map[string][]*corev1.Pod{}, podsOfNode: map[string][]*corev1.Pod{}, volumeOfClaim: map[string]*corev1.PersistentVolume{},
		attachmentsOfVolume: map[string][]*storagev1.VolumeAttachment{}, attachmentsOfNode: map[string][]*storagev1.VolumeAttachment{},
	}
	for i := range f.Pods {
		pod := &f.Pods[i]
		for _, claim := range podclaims.Names(pod) {
			at := key(pod.Namespace, claim)
			c.podsOfClaim[at] = append(c.podsOfClaim[at], pod)
		}
		if pod.Spec.NodeName != "" {
			c.podsOfNode[pod.Spec.NodeName] = append(c.podsOfNode[pod.Spec.NodeName], pod)
		}
	}
	for _, all := range c.podsOfClaim {
		slices.SortFunc(all, func(a, b *corev1.Pod) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
		})
	}
	for i := range f.Volumes {
		if ref := f.Volumes[i].Spec.ClaimRef; ref != nil && f.Volumes[i].Status.Phase == corev1.VolumeBound { // not an earlier claim's of the name
			c.volumeOfClaim[key(ref.Namespace, ref.Name)] = &f.Volumes[i]
		}
	}
	for i := range f.Attachments {
		a := &f.Attachments[i]
		c.attachmentsOfNode[a.Spec.NodeName] = append(c.attachmentsOfNode[a.Spec.NodeName], a)
		if volume := a.Spec.Source.PersistentVolumeName; volume != nil {
			c.attachmentsOfVolume[*volume] = append(c.attachmentsOfVolume[*volume], a)
		}
	}
	for _, of := range []map[string][]*storagev1.VolumeAttachment{c.attachmentsOfNode, c.attachmentsOfVolume} {
		for _, all := range of {
			slices.SortFunc(all, func(a, b *storagev1.VolumeAttachment) int { return strings.Compare(a.Name, b.Name) })
		}
	}
	return c
}

func byName[T any, P interface {
	*T
	metav1.Object
}](objects []T) map[string]*T {
	named := make(map[string]*T, len(objects))
	for i := range objects {
		object := P(&objects[i])
		named[key(object.GetNamespace(), object.GetName())] = object
	}
	return named
}

func key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// isRead says whether all objects of a kind in a namespace were read; an empty namespace stands for all.
func (c *cluster) isRead(kind, namespace string) bool {
	all := true
	for _, u := range c.Unread {
		if !u.covers(kind, namespace) {
			continue
		}
		if all = false; !slices.Contains(c.missed, u) {
			c.missed = append(c.missed, u)
		}
	}
	return all
}

func (u Unread) covers(kind, namespace string) bool {
	return u.Kind == kind && (u.Namespace == "" || namespace == "" || u.Namespace == namespace)
}

// missing returns what was not read and has objects of the kinds that are needed.
func (c *cluster) missing(needed ...Ref) []Unread {
	var found []Unread
	for _, u := range c.Unread {
		if slices.ContainsFunc(needed, func(n Ref) bool { return u.covers(n.Kind, n.Namespace) }) {
			found = append(found, u)
		}
	}
	return found
}

// unreadOf returns the kinds that were not read, of those given.
func (c *cluster) unreadOf(kinds ...string) []Ref {
	var found []Ref
	for _, kind := range kinds {
		if !c.isRead(kind, "") {
			found = append(found, Ref{Kind: kind})
		}
	}
	return found
}

// podsUsing returns the Pods that use a claim and have not ended, the oldest first.
func (c *cluster) podsUsing(claim Ref) []*corev1.Pod {
	var using []*corev1.Pod
	for _, pod := range c.podsOfClaim[key(claim.Namespace, claim.Name)] {
		if !podclaims.HasEnded(pod) {
			using = append(using, pod)
		}
	}
	return using
}

// consumerOf returns the Pod for which a claim without a node is to get one: the oldest that isn't going, if there is such a one; nil if none
// uses the claim.
func (c *cluster) consumerOf(claim Ref) *corev1.Pod {
	using := c.podsUsing(claim)
	if at := slices.IndexFunc(using, func(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil }); at > 0 {
		return using[at]
	}
	if len(using) == 0 {
		return nil
	}
	return using[0]
}

// eventsOf returns the events that involve an object, the latest first.
func (c *cluster) eventsOf(object Ref) []*corev1.Event {
	var found []*corev1.Event
	for i := range c.Events {
		if e := &c.Events[i]; e.InvolvedObject.Kind == object.Kind && e.InvolvedObject.Namespace == object.Namespace &&
			e.InvolvedObject.Name == object.Name {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b *corev1.Event) int {
		return cmp.Or(timeOf(b).Compare(timeOf(a)), strings.Compare(a.Name, b.Name))
	})
	return found
}

// timeOf returns when an event happened last.
func timeOf(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

// latest returns the object's latest event of one of the reasons, or nil.
func (c *cluster) latest(object Ref, reasons ...string) *corev1.Event {
	for _, e := range c.eventsOf(object) {
		if slices.Contains(reasons, e.Reason) {
			return e
		}
	}
	return nil
}

// since says for how long something has been so, in words; empty if that isn't known.
func (c *cluster) since(t metav1.Time) string {
	if t.IsZero() || c.At.Before(t.Time) {
		return ""
	}
	return " for " + c.At.Sub(t.Time).Round(time.Second).String()
}

// leadership says whether the holder of a Lease leads.
type leadership int

const (
	nobodyLeads leadership = iota
	mayLead                // the Lease says so, and its holder has not been heard of
	leads
)

// leader returns the Lease of disk-provisioner that was renewed last, and whether its holder leads. A holder that is gone leads no more,
// however long its Lease is valid; so it counts only for as long as a holder that is alive takes to renew it.
func (c *cluster) leader() (*coordinationv1.Lease, leadership) {
	var last *coordinationv1.Lease
	for i := range c.Leases {
		if l := &c.Leases[i]; l.Name == request.ObjectName(c.Driver) && (last == nil || renewed(l).After(renewed(last))) {
			last = l
		}
	}
	if last == nil || last.Spec.HolderIdentity == nil || *last.Spec.HolderIdentity == "" {
		return last, nobodyLeads
	}
	valid := defaultLease
	if seconds := last.Spec.LeaseDurationSeconds; seconds != nil {
		valid = time.Duration(*seconds) * time.Second
	}
	switch ago := c.At.Sub(renewed(last)); {
	case ago > valid+clockOffset:
		return last, nobodyLeads
	case ago < -clockOffset, ago > longestRenewal+clockOffset:
		return last, mayLead
	}
	return last, leads
}

const (
	defaultLease = 15 * time.Second
	// longestRenewal is how long the renewal of a Lease takes at most, but where it was set to be slower.
	longestRenewal = time.Minute
	// clockOffset is how much the clock by which the facts were read and that of the leader may differ.
	clockOffset = 15 * time.Second
)

func renewed(l *coordinationv1.Lease) time.Time {
	if l.Spec.RenewTime == nil {
		return time.Time{}
	}
	return l.Spec.RenewTime.Time
}

// controllerNamespace returns the namespace in which disk-provisioner runs.
func (c *cluster) controllerNamespace() string {
	if lease, _ := c.leader(); lease != nil {
		return lease.Namespace
	}
	for i := range c.Capacities { // disk-provisioner makes them where it runs
		if class := c.classes[c.Capacities[i].StorageClassName]; class != nil && class.Provisioner == c.Driver {
			return c.Capacities[i].Namespace
		}
	}
	return metav1.NamespaceSystem
}

func refOf(kind string, object metav1.Object) Ref {
	return Ref{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()}
}

// seen is the evidence of a field; a value that is no text is shown as JSON.
func seen(object Ref, field string, value any) Evidence {
	return Evidence{Object: object, Field: field, Value: cmp.Or(textOf(value), None)}
}

func textOf(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case nil:
		return ""
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	if string(text) == "null" {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(string(text), `"`), `"`)
}

// command returns a kubectl command about an object.
func command(verb string, object Ref, more ...string) shell.Command {
	words := []string{verb, resources[object.Kind], object.Name}
	if strings.HasPrefix(object.Name, "-") { // no object has such a name, and kubectl would take it for a flag
		words = []string{verb, resources[object.Kind] + "/" + object.Name}
	}
	words = append(words, more...)
	if object.Namespace != "" {
		words = append(words, "--namespace", object.Namespace)
	}
	return kubectl(words...)
}

// kubectl returns a kubectl command.
func kubectl(words ...string) shell.Command {
	return shell.New(append([]string{"kubectl"}, words...)...)
}

var resources = map[string]string{
	kindPod: "pod", kindClaim: "pvc", kindVolume: "persistentvolume", kindNode: "node", kindCSINode: "csinode", kindClass: "storageclass",
	kindAttachment: "volumeattachment", kindCSIDriver: "csidriver", kindSnapshot: "volumesnapshot",
}

// storage is one claim of a Pod, with what it needs.
type storage struct {
	claim  *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume // nil: it isn't bound
	class  *storagev1.StorageClass  // nil: there is none, or it isn't known
}

// isOurs says whether the driver serves the claim.
func (s storage) isOurs(driver string) bool {
	if s.volume != nil {
		return isOfDriver(s.volume, driver)
	}
	return s.class != nil && s.class.Provisioner == driver
}

func isOfDriver(pv *corev1.PersistentVolume, driver string) bool {
	return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == driver
}

// storageOf returns a Pod's claims that the Facts have, each once.
func (c *cluster) storageOf(pod *corev1.Pod) []storage {
	var needs []storage
	for _, name := range podclaims.Names(pod) {
		claim := c.claims[key(pod.Namespace, name)]
		if claim != nil && !slices.ContainsFunc(needs, func(s storage) bool { return s.claim == claim }) {
			needs = append(needs, storage{claim, c.boundTo(claim), c.classes[request.ClassName(claim)]})
		}
	}
	return needs
}

// boundTo returns the volume that a claim has or names, nil if there is none.
func (c *cluster) boundTo(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	if claim.Spec.VolumeName == "" {
		return nil
	}
	return c.volumes[claim.Spec.VolumeName]
}

// isBound says whether a claim has a volume, which is its own.
func (c *cluster) isBound(claim *corev1.PersistentVolumeClaim) bool {
	pv := c.boundTo(claim)
	return pv != nil && claim.Status.Phase == corev1.ClaimBound && mayBeBound(pv, claim)
}
