// Package install holds the tests of what users meet: the image, the chart as helm installs it, and the life of an
// installation. They run on a lab with real nodes where all of topodisk and the sidecars are Pods, and need root and the
// build tag e2einstall:
//
//	make e2e-install
package install
