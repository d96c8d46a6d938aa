package nodefacts

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// Annotation is the annotation of a Node that holds its Facts, as JSON.
const Annotation = "topodisk.io/ecs-facts"

// available is the value of a label disk.NodeTypeLabel + category.
const available = "available"

// Facts are what ECS says of a node's instance and Kubernetes doesn't know. A
// field that is left out isn't known.
type Facts struct {
	// Instance and Boot say of what the rest is true: an instance changes its
	// type only while it is stopped, and the kernel's boot ID is another then.
	Instance disk.InstanceID `json:"instance"`
	Boot     string          `json:"boot,omitempty"`

	Type      disk.InstanceType `json:"type"`
	Zone      disk.Zone         `json:"zone"`                // of ECS, whatever the Node's labels say
	DataDisks int               `json:"dataDisks,omitempty"` // disks that the instance can have besides its system disk
	Takes     []disk.Category   `json:"takes,omitempty"`     // it can attach; sorted
	Refuses   []disk.Category   `json:"refuses,omitempty"`   // it can't, though its zone has them; sorted
}

// Of returns the facts that a Node carries, and false if it has none, or none
// that are about its instance as it runs now.
func Of(node *corev1.Node) (Facts, bool) {
	f, ok := published(node)
	return f, ok && f.Boot == node.Status.NodeInfo.BootID
}

// published returns the facts that a Node carries, perhaps of an earlier boot.
func published(node *corev1.Node) (f Facts, ok bool) {
	text, ok := node.Annotations[Annotation]
	if !ok || json.Unmarshal([]byte(text), &f) != nil {
		return Facts{}, false
	}
	id, _ := identify(node)
	return f, f.Instance == id && f.Type != "" && f.Zone != ""
}

// instance returns the facts as package disk knows them.
func (f Facts) instance() disk.Instance {
	return disk.Instance{Type: f.Type, Zone: f.Zone, DataDisks: f.DataDisks, Takes: f.Takes, Refuses: f.Refuses}
}

// isComplete says whether nothing is missing.
func (f Facts) isComplete() bool { return f.DataDisks > 0 && len(f.Takes) > 0 }

// text returns the facts as the annotation holds them.
func (f Facts) text() string {
	text, err := json.Marshal(f)
	if err != nil {
		panic(fmt.Sprintf("facts of strings and numbers: %v", err))
	}
	return string(text)
}

// updated returns the facts of an instance by what is known of its type now.
// What isn't known now but was before, of the same type in the same zone, stays.
func (f Facts) updated(id disk.InstanceID, boot string, now disk.Instance) Facts {
	if f.Instance != id || f.Type != now.Type || f.Zone != now.Zone {
		f = Facts{Instance: id, Type: now.Type, Zone: now.Zone}
	}
	f.Boot = boot
	if now.DataDisks > 0 {
		f.DataDisks = now.DataDisks
	}
	if len(now.Takes) > 0 {
		f.Takes, f.Refuses = now.Takes, now.Refuses
	}
	return f
}

// categoryForm is what fits into a label's name.
var categoryForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9_-]{0,50}[a-z0-9])?$`)

// identify returns the ECS instance that a Node stands for, and its region if
// the Node says so; empty if it stands for none.
func identify(node *corev1.Node) (id disk.InstanceID, region string) {
	return disk.InstanceOfNode(node.Spec.ProviderID, node.Labels[disk.InstanceLabel])
}

// trim drops what isn't looked at here before a Node enters the cache.
func trim(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil // a tombstone
	}
	kept := &corev1.Node{}
	kept.Name, kept.UID, kept.ResourceVersion = node.Name, node.UID, node.ResourceVersion
	kept.Spec.ProviderID = node.Spec.ProviderID
	kept.Status.NodeInfo.BootID = node.Status.NodeInfo.BootID
	if text, ok := node.Annotations[Annotation]; ok {
		kept.Annotations = map[string]string{Annotation: text}
	}
	kept.Labels = make(map[string]string)
	for key, value := range node.Labels {
		if key == disk.InstanceLabel || strings.HasPrefix(key, disk.NodeTypeLabel) {
			kept.Labels[key] = value
		}
	}
	return kept, nil
}
