// Package e2e holds topodisk's end-to-end tests: a real Kubernetes control plane, both programs with the flags and
// permissions that deploy/topodisk.yaml installs, and the simulated ECS (see test/lab). They need the build tag e2e:
//
//	go test -tags e2e ./test/e2e
//
// The first run builds Kubernetes, in silence; `go run ./test/build` does it before and shows how far it is.
package e2e
