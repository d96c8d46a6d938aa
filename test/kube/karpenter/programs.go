//go:build programs

// Package karpenter lists the program that its module builds, so that `go mod tidy` keeps it: Karpenter with the cloud provider for
// nodes that kwok keeps. The build tag is never set: a main package can't be imported, only required.
package karpenter

import (
	_ "sigs.k8s.io/karpenter/kwok"
)
