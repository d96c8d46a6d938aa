package nodefacts

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// metadata is a merge patch of a Node. A nil value takes the key away.
type metadata struct {
	UID         types.UID          `json:"uid"` // of another Node by the same name is a conflict
	Labels      map[string]*string `json:"labels,omitempty"`
	Annotations map[string]string  `json:"annotations,omitempty"`
}

// patchOf returns what makes a Node say its facts, in labels only if these are the
// driver's, and false if it says them already. A label goes only if the instance is known not to take the category.
// A label with another value than available was set by somebody else, who may
// want to keep disks of that category off the node, and is left alone.
func patchOf(node *corev1.Node, f Facts, labels bool) (patch []byte, needed bool) {
	m := metadata{UID: node.UID, Labels: map[string]*string{}}
	takes, refuses := f.Takes, f.Refuses
	if !labels {
		takes, refuses = nil, nil
	}
	for _, c := range takes {
		if key := disk.NodeTypeLabel + string(c); node.Labels[key] == "" && categoryForm.MatchString(string(c)) {
			value := available
			m.Labels[key] = &value
		}
	}
	for _, c := range refuses {
		if key := disk.NodeTypeLabel + string(c); node.Labels[key] == available {
			m.Labels[key] = nil
		}
	}
	if text := f.text(); node.Annotations[Annotation] != text {
		m.Annotations = map[string]string{Annotation: text}
	}
	if len(m.Labels) == 0 && m.Annotations == nil {
		return nil, false
	}
	patch, err := json.Marshal(map[string]metadata{"metadata": m})
	return patch, err == nil
}
