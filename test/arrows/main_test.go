package main

import (
	"strings"
	"testing"
)

func TestAnArrowThatPointsTheWrongWayIsNamed(t *testing.T) {
	tests := map[string]struct {
		p    goPackage
		want string // in the only line; empty for none
	}{
		"the vocabulary imports the standard library": {p: goPackage{ImportPath: module + "/diskdriver/disk", Imports: []string{"fmt", "slices"}}},
		"the vocabulary imports klog":                 {p: goPackage{ImportPath: module + "/diskdriver/disk", Imports: []string{klog}}, want: "imports k8s.io/klog/v2"},
		"the adapter imports gRPC":                    {p: goPackage{ImportPath: module + "/diskdriver/ecs", Imports: []string{grpc + "/codes"}}, want: "imports google.golang.org/grpc/codes"},
		"the adapter reaches gRPC":                    {p: goPackage{ImportPath: module + "/diskdriver/ecs", Deps: []string{grpc}}, want: "reaches google.golang.org/grpc"},
		"a new package":                               {p: goPackage{ImportPath: module + "/utils"}, want: "has no row"},
		"a test imports Kubernetes":                   {p: goPackage{ImportPath: module + "/test/e2e", Deps: []string{kubernetes + "/pkg/apis"}}, want: "reaches k8s.io/kubernetes"},
		"a name that only begins alike":               {p: goPackage{ImportPath: module + "/diskdriver/ecs", Imports: []string{module + "/diskdriver/disks"}}, want: "imports"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := check(test.p)
			if test.want == "" && len(got) > 0 || test.want != "" && (len(got) != 1 || !strings.Contains(got[0], test.want)) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
