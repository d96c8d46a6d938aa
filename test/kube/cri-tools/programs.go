//go:build programs

// Package critools lists the program that its module builds, so that `go mod tidy` keeps it.
// The build tag is never set: a main package can't be imported, only required.
package critools

import _ "sigs.k8s.io/cri-tools/cmd/crictl"
