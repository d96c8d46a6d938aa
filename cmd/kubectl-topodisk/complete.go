package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/topodisk/topodisk/explain/collect"
)

// completeSubject completes TYPE and NAME on the command line.
func (f *factory) completeSubject(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	text, _, slash := strings.Cut(begun, "/")
	switch {
	case len(args) == 0 && slash:
		if k, ok := findKind(text); ok {
			return prefixed(text+"/", f.names(cmd, k)), directive
		}
	case len(args) == 0:
		var names []string
		for _, k := range kinds {
			names = append(names, k.singular)
		}
		return names, directive
	case len(args) == 1 && !strings.Contains(args[0], "/"):
		if k, ok := findKind(args[0]); ok {
			return f.names(cmd, k), directive
		}
	}
	return nil, directive
}

func prefixed(prefix string, names []string) []string {
	for i := range names {
		names[i] = prefix + names[i]
	}
	return names
}

// maxCompletions is how many names of objects are completed.
const maxCompletions = 500

// names returns the names of the objects of a kind, of the namespace that is asked for.
func (f *factory) names(cmd *cobra.Command, k kind) []string {
	namespace := ""
	if collect.Kinds[k.name] {
		var err error
		if namespace, err = f.namespace(); err != nil {
			return nil
		}
	}
	return f.namesIn(cmd, k.resource, namespace)
}

// namesIn returns the names of objects, as far as they can be read: a completion can't show an error.
func (f *factory) namesIn(cmd *cobra.Command, resource schema.GroupVersionResource, namespace string) []string {
	config, err := f.restConfig()
	if err != nil {
		return nil
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil
	}
	list, err := client.Resource(resource).Namespace(namespace).List(cmd.Context(), metav1.ListOptions{Limit: maxCompletions, ResourceVersion: "0"})
	if err != nil {
		return nil
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.Name)
	}
	return names[:min(len(names), maxCompletions)]
}

// completeGlobalFlags completes the values of kubectl's flags that people type.
func (f *factory) completeGlobalFlags(root *cobra.Command) {
	complete := map[string]func(*cobra.Command) []string{
		"namespace": func(cmd *cobra.Command) []string {
			return f.namesIn(cmd, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "")
		},
		"context": func(*cobra.Command) []string {
			config, err := f.config.ToRawKubeConfigLoader().RawConfig()
			if err != nil {
				return nil
			}
			return slices.Sorted(maps.Keys(config.Contexts))
		},
	}
	for name, values := range complete {
		_ = root.RegisterFlagCompletionFunc(name, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) { // the flag is there
			return values(cmd), cobra.ShellCompDirectiveNoFileComp
		})
	}
}
