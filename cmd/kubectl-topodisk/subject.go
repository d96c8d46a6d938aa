package main

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/topodisk/topodisk/explain/collect"
)

// kind is a kind of objects that can be explained, with its names as kubectl has them.
type kind struct {
	name     string // as in a manifest
	resource schema.GroupVersionResource
	singular string
	short    string // empty: there is none
}

// kinds are in the order in which people ask.
var kinds = []kind{
	{collect.Pod, schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "pod", "po"},
	{collect.Claim, schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}, "persistentvolumeclaim", "pvc"},
	{collect.Volume, schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}, "persistentvolume", "pv"},
	{collect.Node, schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "node", "no"},
	{collect.VolumeAttachment, schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "volumeattachments"}, "volumeattachment", ""},
}

// kindsText names the kinds for people.
func kindsText() string {
	var names []string
	for _, k := range kinds {
		if k.short == "" {
			names = append(names, k.singular)
		} else {
			names = append(names, k.singular+" ("+k.short+")")
		}
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// findKind finds a kind by one of its names, such as pods, po or volumeattachment.storage.k8s.io.
func findKind(text string) (kind, bool) {
	text = strings.ToLower(text)
	for _, k := range kinds {
		name := text
		if k.resource.Group != "" {
			name = strings.TrimSuffix(name, "."+k.resource.Group)
		}
		if slices.Contains([]string{k.singular, k.resource.Resource, k.short}, name) && name != "" {
			return k, true
		}
	}
	return kind{}, false
}

// parseSubject parses TYPE NAME or TYPE/NAME.
func parseSubject(args []string) (kind, string, error) {
	if len(args) == 0 {
		return kind{}, "", usagef("no object is named; name one as TYPE NAME or TYPE/NAME, TYPE being one of %s", kindsText())
	}
	text, name, slash := strings.Cut(args[0], "/")
	k, ok := findKind(text)
	switch {
	case !ok:
		return kind{}, "", usagef("TYPE %q is not allowed: allowed are %s", text, kindsText())
	case !slash && len(args) == 1:
		return kind{}, "", usagef("the %s has no NAME; name one, such as: why %s NAME", k.singular, text)
	case !slash:
		name, args = args[1], args[1:]
	}
	if len(args) > 1 {
		return kind{}, "", usagef("argument %q is one too many: allowed is one object, as TYPE NAME or TYPE/NAME", args[1])
	}
	if wrong := content.IsPathSegmentName(name); name == "" || len(wrong) > 0 {
		return kind{}, "", usagef("NAME %q is not allowed: it is to be the name of a %s", name, k.singular)
	}
	return k, name, nil
}
