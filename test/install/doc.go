// Package install holds the tests of what users meet: a release's image, its chart as helm installs it, the life of an
// installation, and the upgrade from the release before and back. They run on a lab with real nodes where all of topodisk and
// the sidecars are Pods, and need root and the build tag e2einstall:
//
//	make e2e-install
package install
