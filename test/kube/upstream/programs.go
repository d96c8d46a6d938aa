//go:build programs

// Package upstream lists the program that its module builds, so that `go mod tidy` keeps it.
// The build tag is never set: a main package can't be imported, only required.
package upstream

import (
	_ "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner"
)
