package topology

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Index knows the topology of a cluster's nodes from the events of a Node and
// a CSINode informer. What it answers follows from the objects that exist,
// never from the order of the events. It is safe for concurrent use.
//
// Ask it only after both informers have synced: it cannot tell a node that
// does not exist from one that it has not been told of.
type Index struct {
	driver string

	mu         sync.Mutex
	nodes      map[string]*node
	driverKeys map[string]int     // topology keys of the driver, by number of CSINodes with them
	keySets    map[string]*keySet // sets of driver keys, by name
	conflicts  map[string]error   // nodes with the driver that are left out, by name
	views      map[string]*view
	clock      uint64

	onMislabelled func() // see OnMislabelled
}

// keySet is a set of driver keys and the number of ready nodes that use it.
type keySet struct {
	keys  []string
	nodes int
}

// NewIndex returns an empty Index for the CSI driver of that name.
func NewIndex(driver string) *Index {
	return &Index{
		driver:     driver,
		nodes:      map[string]*node{},
		driverKeys: map[string]int{},
		keySets:    map[string]*keySet{},
		conflicts:  map[string]error{},
		views:      map[string]*view{},
	}
}

// SetNode takes in a Node that was added or updated. The Index keeps the
// Node's label map and relies on it not being changed, as informers promise.
func (x *Index) SetNode(obj *corev1.Node) {
	if obj == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if old := x.nodes[obj.Name]; old != nil && old.exists && maps.Equal(old.labels, obj.Labels) {
		old.labels = obj.Labels // so that the informer's old object can be freed
		return
	}
	x.replace(obj.Name, func(n *node) { n.exists, n.labels = true, obj.Labels })
}

// DeleteNode takes in that a Node is gone.
func (x *Index) DeleteNode(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.replace(name, func(n *node) { n.exists, n.labels = false, nil })
}

// SetCSINode takes in a CSINode that was added or updated, and says whether that may change an answer.
func (x *Index) SetCSINode(obj *storagev1.CSINode) (changed bool) {
	if obj == nil {
		return false
	}
	keys := driverKeysOf(obj, x.driver)
	x.mu.Lock()
	defer x.mu.Unlock()
	if old := x.nodes[obj.Name]; old != nil && old.hasCSINode && slices.Equal(old.keys, keys) {
		return false
	}
	x.replace(obj.Name, func(n *node) { n.hasCSINode, n.keys = true, keys })
	return true
}

// DeleteCSINode takes in that a CSINode is gone.
func (x *Index) DeleteCSINode(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.replace(name, func(n *node) { n.hasCSINode, n.keys = false, nil })
}

// driverKeysOf returns the topology keys of the driver, sorted; none if the
// driver is not registered on the node.
func driverKeysOf(obj *storagev1.CSINode, driver string) []string {
	var keys []string
	for _, d := range obj.Spec.Drivers {
		if d.Name == driver {
			keys = append(keys, d.TopologyKeys...)
		}
	}
	slices.Sort(keys)
	return slices.DeleteFunc(slices.Compact(keys), func(k string) bool { return k == "" })
}

// replace changes what is known of one node, in every count that it is part of.
func (x *Index) replace(name string, change func(*node)) {
	after := &node{name: name}
	before := x.nodes[name]
	if before != nil {
		*after = *before
	}
	change(after)
	after.derive()
	if before != nil {
		x.count(before, -1)
		delete(x.conflicts, name)
	}
	if after.exists || after.hasCSINode {
		x.nodes[name] = after
		x.count(after, +1)
	} else {
		delete(x.nodes, name)
	}
	if after.exists && after.conflict != nil {
		x.conflicts[name] = after.conflict
	}
	if x.onMislabelled != nil && after.mislabelled() != before.mislabelled() {
		x.onMislabelled()
	}
}

// OnMislabelled has changed called whenever Mislabelled has another answer. It may not ask the Index. Set it before the first event.
func (x *Index) OnMislabelled(changed func()) { x.onMislabelled = changed }

// Mislabelled returns the nodes for which no volume can be made, because their zone labels contradict each other (NodeMislabelled): the
// values of their label kubernetes.io/hostname, sorted. A node without that label is not among them.
func (x *Index) Mislabelled() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var hostnames []string
	for name := range x.conflicts {
		if hostname := x.nodes[name].mislabelled(); hostname != "" {
			hostnames = append(hostnames, hostname)
		}
	}
	slices.Sort(hostnames)
	return slices.Compact(hostnames)
}

// count adds the node to all counts (+1) or takes it out of them (-1).
func (x *Index) count(n *node, by int) {
	for _, k := range n.keys {
		if x.driverKeys[k] += by; x.driverKeys[k] == 0 {
			delete(x.driverKeys, k)
		}
	}
	if n.ready() {
		set := x.keySets[n.keySet]
		if set == nil {
			set = &keySet{keys: n.keys}
			x.keySets[n.keySet] = set
		}
		if set.nodes += by; set.nodes == 0 {
			delete(x.keySets, n.keySet)
		}
	}
	for _, v := range x.views {
		v.count(n, by)
	}
}

// usualKeys returns the set of driver keys that most ready nodes use, of equals
// the first in alphabetical order; none if no node is ready.
func (x *Index) usualKeys() []string {
	var usual *keySet
	var usualName string
	for name, set := range x.keySets {
		if usual == nil || set.nodes > usual.nodes || set.nodes == usual.nodes && name < usualName {
			usual, usualName = set, name
		}
	}
	if usual == nil {
		return nil
	}
	return usual.keys
}

// view returns the view of those keys and conditions, made on first use.
func (x *Index) view(keys []string, match []allowedTerm) *view {
	x.clock++
	name := strings.Join(keys, "\x00") + "\n" + spellTerms(match)
	v := x.views[name]
	if v == nil {
		x.makeRoom()
		v = &view{keys: keys, match: match, tallies: map[string]*tally{}}
		for _, n := range x.nodes {
			v.count(n, +1)
		}
		x.views[name] = v
	}
	v.used = x.clock
	return v
}

// makeRoom drops the view that was not used for longest if there are enough.
func (x *Index) makeRoom() {
	if len(x.views) < maxViews {
		return
	}
	oldest := ""
	for name, v := range x.views {
		if oldest == "" || v.used < x.views[oldest].used {
			oldest = name
		}
	}
	delete(x.views, oldest)
}

// Carried reports whether some node with the driver lies in the topology. A
// class may allow topologies of which that is not (or not yet) so; a claim's
// owner should be told. An empty topology is carried by no node.
func (x *Index) Carried(t *csi.Topology) bool {
	if len(t.GetSegments()) == 0 {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	wanted := termOf(t.GetSegments())
	keys := slices.Sorted(maps.Keys(t.GetSegments()))
	_, found := slices.BinarySearchFunc(x.view(keys, nil).terms(), wanted, term.compare)
	return found
}
