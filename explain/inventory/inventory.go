// Package inventory lists claims with their volume's zone, node, type, size, use, cost and state. It does no I/O.
package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/topodisk/topodisk/internal/audit"
	"github.com/topodisk/topodisk/internal/podclaims"
	"github.com/topodisk/topodisk/provisioner/request"
)

// Facts are what a list is made from. Volumes may be empty if the user may not read them.
type Facts struct {
	Driver      string
	Claims      []corev1.PersistentVolumeClaim
	Volumes     []corev1.PersistentVolume
	Attachments []storagev1.VolumeAttachment
	// AttachmentsUnread says that the user may not read VolumeAttachments, so that nothing tells which node has a volume.
	AttachmentsUnread bool

	Classes []storagev1.StorageClass
	Pods    []corev1.Pod // with a node
	// Used has the bytes that claims use, by namespace/name.
	Used map[string]int64
	// PerMonth says what a disk costs a month; nil: no prices are known.
	PerMonth func(category, level, zone string, gib int64) (float64, bool)
}

// Row is a claim of the driver.
type Row struct {
	Namespace string   `json:"namespace"`
	Claim     string   `json:"claim"`
	State     State    `json:"state"`
	Volume    string   `json:"volume,omitempty"`
	Zones     []string `json:"zones,omitempty"`
	Nodes     []string `json:"nodes,omitempty"`
	// Type is the category and Level the performance level that the disk was made with; both are empty if a VolumeAttributesClass has
	// changed them since.
	Type            string    `json:"type,omitempty"`
	Level           string    `json:"performanceLevel,omitempty"`
	Class           string    `json:"storageClass,omitempty"`
	AttributesClass string    `json:"volumeAttributesClass,omitempty"`
	GiB             int64     `json:"sizeGiB,omitempty"`
	UsedBytes       *int64    `json:"usedBytes,omitempty"`
	CostPerMonth    *float64  `json:"costPerMonth,omitempty"`
	Pods            []string  `json:"pods,omitempty"`
	Created         time.Time `json:"created"`
}

// State says what a claim is at.
type State string

// The states. Bound means that no node has the volume, and Unknown that a bound claim's volume may be on one or not; Deleted is only what
// Gone says.
const (
	Pending     State = "Pending"
	Lost        State = "Lost"
	Bound       State = "Bound"
	Attaching   State = "Attaching"
	Attached    State = "Attached"
	Detaching   State = "Detaching"
	Resizing    State = "Resizing"
	Modifying   State = "Modifying"
	Terminating State = "Terminating"
	Deleted     State = "Deleted"
	Unknown     State = "Unknown"
)

// Rows returns the claims of the driver, by namespace and name.
func Rows(f Facts) []Row {
	volumes := map[string]*corev1.PersistentVolume{}
	for i := range f.Volumes {
		volumes[f.Volumes[i].Name] = &f.Volumes[i]
	}
	provisioners := map[string]string{}
	for i := range f.Classes {
		provisioners[f.Classes[i].Name] = f.Classes[i].Provisioner
	}
	attachments := map[string][]storagev1.VolumeAttachment{}
	for _, a := range f.Attachments {
		if name := a.Spec.Source.PersistentVolumeName; name != nil {
			attachments[*name] = append(attachments[*name], a)
		}
	}
	pods := podsByClaim(f.Pods)
	var rows []Row
	for i := range f.Claims {
		claim := &f.Claims[i]
		pv := volumes[claim.Spec.VolumeName]
		if !isOurs(f.Driver, claim, pv, provisioners) {
			continue
		}
		row := rowOf(claim, pv, attachments[claim.Spec.VolumeName])
		if row.State == Bound && f.AttachmentsUnread {
			row.State = Unknown
		}
		row.Pods = pods[row.key()]
		if used, known := f.Used[row.key()]; known {
			row.UsedBytes = &used
		}
		row.price(f.PerMonth)
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.key(), b.key()) })
	return rows
}

// key identifies a row.
func (r *Row) key() string { return r.Namespace + "/" + r.Claim }

// podsByClaim returns the names of Pods by the claims that they use.
func podsByClaim(pods []corev1.Pod) map[string][]string {
	users := map[string][]string{}
	for i := range pods {
		for _, claim := range podclaims.InUse(&pods[i]) {
			key := pods[i].Namespace + "/" + claim
			users[key] = append(users[key], pods[i].Name)
		}
	}
	for _, names := range users {
		slices.Sort(names)
	}
	return users
}

// isOurs says whether a claim is the driver's: by its volume, or else by who provisions it.
func isOurs(driver string, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, provisioners map[string]string) bool {
	if pv != nil {
		return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == driver
	}
	return cmp.Or(request.ProvisionerOf(claim), provisioners[request.ClassName(claim)]) == driver
}

func rowOf(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, attachments []storagev1.VolumeAttachment) Row {
	row := Row{
		Namespace: claim.Namespace, Claim: claim.Name, Created: claim.CreationTimestamp.Time, Volume: claim.Spec.VolumeName,
		State: stateOf(claim, attachments), GiB: gibOf(claim, pv), Class: request.ClassName(claim),
	}
	if name := claim.Status.CurrentVolumeAttributesClassName; name != nil {
		row.AttributesClass = *name
	}
	for _, a := range attachments {
		row.Nodes = append(row.Nodes, a.Spec.NodeName)
	}
	slices.Sort(row.Nodes)
	if pv != nil {
		row.Zones = audit.ZonesOf(pv)
		if attributes := pv.Spec.CSI.VolumeAttributes; row.AttributesClass == "" {
			row.Type, row.Level = attributes["type"], attributes["performanceLevel"]
		}
	}
	return row
}

// gibOf returns the volume's capacity, or else what the claim asks for, in GiB.
func gibOf(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) int64 {
	capacity := claim.Status.Capacity.Storage().Value()
	if pv != nil {
		capacity = pv.Spec.Capacity.Storage().Value()
	}
	if capacity == 0 {
		capacity = claim.Spec.Resources.Requests.Storage().Value()
	}
	return (capacity + 1<<30 - 1) >> 30
}

// stateOf returns the first of these that is true: the claim is being deleted, isn't bound, is being changed, is on its way to or from a
// node, is on one.
func stateOf(claim *corev1.PersistentVolumeClaim, attachments []storagev1.VolumeAttachment) State {
	state := State(cmp.Or(claim.Status.Phase, corev1.ClaimPending))
	if claim.DeletionTimestamp != nil {
		return Terminating
	}
	if state != Bound {
		return state
	}
	for _, c := range claim.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == corev1.PersistentVolumeClaimResizing || c.Type == corev1.PersistentVolumeClaimFileSystemResizePending:
			return Resizing
		case c.Type == corev1.PersistentVolumeClaimVolumeModifyingVolume:
			return Modifying
		}
	}
	for _, a := range attachments {
		switch {
		case a.DeletionTimestamp != nil:
			return Detaching
		case !a.Status.Attached:
			return Attaching
		}
		state = Attached
	}
	return state
}

// price sets what the disk costs, if its type and price are known.
func (r *Row) price(of func(category, level, zone string, gib int64) (float64, bool)) {
	if of == nil || r.Type == "" {
		return
	}
	zone := ""
	if len(r.Zones) == 1 {
		zone = r.Zones[0]
	}
	if cost, known := of(r.Type, r.Level, zone, r.GiB); known {
		r.CostPerMonth = &cost
	}
}

// orders compare rows, by the name of what they are sorted by. What is large comes first.
var orders = map[string]func(a, b Row) int{
	"name":  func(Row, Row) int { return 0 },
	"zone":  func(a, b Row) int { return slices.Compare(a.Zones, b.Zones) },
	"node":  func(a, b Row) int { return slices.Compare(a.Nodes, b.Nodes) },
	"type":  func(a, b Row) int { return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Level, b.Level)) },
	"state": func(a, b Row) int { return cmp.Compare(a.State, b.State) },
	"size":  func(a, b Row) int { return cmp.Compare(b.GiB, a.GiB) },
	"used":  func(a, b Row) int { return comparePointers(b.UsedBytes, a.UsedBytes) },
	"cost":  func(a, b Row) int { return comparePointers(b.CostPerMonth, a.CostPerMonth) },
	"age":   func(a, b Row) int { return a.Created.Compare(b.Created) },
}

// Orders are what rows can be sorted by.
func Orders() []string {
	return []string{"name", "zone", "node", "type", "state", "size", "used", "cost", "age"}
}

// Sort sorts rows, and those that are alike by namespace and name. The error names what is allowed.
func Sort(rows []Row, by string) error {
	order, known := orders[by]
	if !known {
		return fmt.Errorf("%q is not allowed: allowed are %s", by, strings.Join(Orders(), ", "))
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Or(order(a, b), cmp.Compare(a.key(), b.key())) })
	return nil
}

// comparePointers compares values; none is less than any.
func comparePointers[T cmp.Ordered](a, b *T) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return cmp.Compare(*a, *b)
}

// Changed returns the rows that are new or not as they were; one of which that can't be told isn't among them.
func Changed(before, now []Row) (changed []Row) {
	was := map[string]string{}
	for _, r := range before {
		was[r.key()] = r.text()
	}
	for _, r := range now {
		if text, there := was[r.key()]; !there || text != r.text() && r.State != Unknown {
			changed = append(changed, r)
		}
	}
	return changed
}

// Gone returns the rows whose claims are no longer among all claims, as deleted.
func Gone(before []Row, all []corev1.PersistentVolumeClaim) (gone []Row) {
	there := map[string]bool{}
	for i := range all {
		there[all[i].Namespace+"/"+all[i].Name] = true
	}
	for _, r := range before {
		if !there[r.key()] {
			r.State = Deleted
			gone = append(gone, r)
		}
	}
	return gone
}

// text is everything of a row that changes, but for the bytes that are used.
func (r *Row) text() string {
	return fmt.Sprint(r.State, r.Volume, r.Zones, r.Nodes, r.Type, r.Level, r.AttributesClass, r.GiB, r.Pods)
}
