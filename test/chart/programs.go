//go:build programs

package chart

// The program helm is built from this module (test/lab/programs), so that `go mod tidy` keeps what it needs.
// The build tag is never set: a main package can't be imported, only required.
import _ "helm.sh/helm/v3/cmd/helm"
