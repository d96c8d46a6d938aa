//go:build programs

// Package etcd lists the programs that its module builds, so that `go mod tidy` keeps them.
// The build tag is never set: a main package can't be imported, only required.
package etcd

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
