package request

import (
	"slices"
	"strings"
)

// Parameters that name a disk's tags.
const (
	tagsKey   = "diskTags" // key:value,key:value
	tagPrefix = tagsKey + "/"
)

// addTags adds the allowed labels of the claim and its namespace to the parameters,
// as tags of the disk. A tag of the class takes precedence, then one of the claim,
// then one of the namespace.
func (o Options) addTags(parameters, claim, namespace map[string]string) {
	tags := map[string]string{}
	pick(tags, namespace, o.NamespaceLabelTags)
	pick(tags, claim, o.ClaimLabelTags)
	for key, value := range tags {
		if !hasTag(parameters, key) {
			parameters[tagPrefix+key] = value
		}
	}
}

// pick copies the labels of an allow-list.
func pick(tags, labels map[string]string, allowed []string) {
	for _, key := range allowed {
		if value, ok := labels[key]; ok {
			tags[key] = value
		}
	}
}

// hasTag says whether the parameters name a tag of that key.
func hasTag(parameters map[string]string, key string) bool {
	if _, ok := parameters[tagPrefix+key]; ok {
		return true
	}
	return slices.ContainsFunc(strings.Split(parameters[tagsKey], ","), func(tag string) bool {
		name, _, _ := strings.Cut(strings.TrimSpace(tag), ":")
		return name == key
	})
}
