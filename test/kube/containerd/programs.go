//go:build programs

// Package containerd lists the programs that its module builds, so that `go mod tidy` keeps them.
// The build tag is never set: a main package can't be imported, only required.
package containerd

import (
	_ "github.com/containerd/containerd/v2/cmd/containerd"
	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"
	_ "github.com/containerd/containerd/v2/cmd/ctr"
)
