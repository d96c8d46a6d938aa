package disk

import (
	"fmt"
	"maps"
	"strings"
	"unicode/utf8"
)

// The tags that the driver puts on every disk it makes.
const (
	ManagedTag        = "k8s.aliyun.com"                          // "true": the disk belongs to a Kubernetes cluster
	ClusterTag        = "ack.aliyun.com"                          // the cluster's ID
	CreatedByTag      = "createdby"                               // the program that made the disk
	VolumeNameTag     = "csi.alibabacloud.com/volume-name"        // the CSI volume name, by which the disk is found again
	ClaimNameTag      = "kubernetes.io/created-for/pvc/name"      // the claim that the disk was made for
	ClaimNamespaceTag = "kubernetes.io/created-for/pvc/namespace" // and its namespace
	Creator           = "topodisk"                                // the value of CreatedByTag
)

// ECS's limits for tags (TagResources).
const (
	longestTag   = 128 // characters of a key or a value
	mostTags     = 20  // of one disk
	mostUserTags = mostTags - 6
)

// allTags returns the driver's tags and the user's. A claim's name that is too
// long for a tag is cut: it is for people, nothing is found by it.
func allTags(user Tags, volume, cluster, claim, namespace string) Tags {
	all := maps.Clone(user)
	if all == nil {
		all = Tags{}
	}
	all[ManagedTag] = "true"
	all[ClusterTag] = cluster
	all[CreatedByTag] = Creator
	all[VolumeNameTag] = volume
	if claim != "" {
		all[ClaimNameTag] = claim[:min(len(claim), longestTag)]
	}
	if namespace != "" {
		all[ClaimNamespaceTag] = namespace[:min(len(namespace), longestTag)]
	}
	return all
}

// checkTag says whether ECS takes a tag and the driver doesn't need its key.
func checkTag(key, value string) error {
	switch key {
	case "":
		return fmt.Errorf("a tag's key is empty")
	case ManagedTag, ClusterTag, CreatedByTag, VolumeNameTag, ClaimNameTag, ClaimNamespaceTag:
		return fmt.Errorf("the driver itself sets the tag %s", key)
	}
	switch {
	case utf8.RuneCountInString(key) > longestTag || utf8.RuneCountInString(value) > longestTag:
		return fmt.Errorf("a tag's key and value have at most %d characters", longestTag)
	case strings.HasPrefix(key, "aliyun") || !taggable(key) || !taggable(value):
		return fmt.Errorf("a tag can't start with acs:, its key not with aliyun either, and neither can hold http:// or https://")
	}
	return nil
}

// taggable says whether ECS takes the text as a tag's value.
func taggable(text string) bool {
	return !strings.HasPrefix(text, "acs:") && !strings.Contains(text, "http://") && !strings.Contains(text, "https://")
}
