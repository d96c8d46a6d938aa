package request

import (
	"maps"
	"regexp"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/internal/escape"
)

// longestName is longer than the name of an object may be.
const longestName = 254

// CutName returns a name as it is, and of a text that is too long for one the beginning, which is too long still.
func CutName(text string) string { return escape.Cut(text, longestName) }

// TrimClaim leaves of a claim without a volume what a request is made from, so that its owner can't fill the memory of this process. A text
// that is too long for what it is stays too long.
func (o Options) TrimClaim(claim *v1.PersistentVolumeClaim) {
	claim.Annotations = o.trim(claim.Annotations, namingAnnotations, o.ClaimAnnotations)
	claim.Labels = o.trim(claim.Labels, nil, o.ClaimLabelTags)
	claim.OwnerReferences, claim.Finalizers = nil, nil
	spec := entrySpec(claim.Spec)
	if spec.Selector != nil {
		spec.Selector = &metav1.LabelSelector{} // which is refused whatever it selects
	}
	if source := spec.DataSource; source != nil {
		source.Name, source.Kind = CutName(source.Name), CutName(source.Kind)
	}
	if source := spec.DataSourceRef; source != nil {
		source.Name, source.Kind = CutName(source.Name), CutName(source.Kind)
	}
	claim.Spec, claim.Status = spec, v1.PersistentVolumeClaimStatus{Phase: claim.Status.Phase}
}

// trim keeps names and values that are passed on, and of the keys for which a claim is refused one.
func (o Options) trim(all map[string]string, names, passed []string) map[string]string {
	var kept map[string]string
	keep := func(key, value string) {
		if kept == nil {
			kept = map[string]string{}
		}
		kept[key] = value
	}
	refused := ""
	for key, value := range all {
		_, hasEffect := effectOf(key)
		switch {
		case slices.Contains(names, key):
			keep(key, CutName(value))
		case slices.Contains(passed, key):
			keep(key, escape.Cut(value, maxEntry))
		case hasEffect && (refused == "" || key < refused):
			refused = key
		}
	}
	if refused != "" {
		keep(refused, "")
	}
	return kept
}

// inTemplate is an annotation of the claim in the template of a Secret's name.
var inTemplate = regexp.MustCompile(`\$\{pvc\.annotations\['([^']+)'\]\}`)

// TemplateAnnotations returns the annotations of a claim that the class's Secrets are named by, which TrimClaim does not know of.
func TemplateAnnotations(class *storagev1.StorageClass) []string {
	var keys []string
	for _, value := range slices.Sorted(maps.Values(class.Parameters)) {
		for _, match := range inTemplate.FindAllStringSubmatch(value, -1) {
			keys = append(keys, match[1])
		}
	}
	return keys
}
