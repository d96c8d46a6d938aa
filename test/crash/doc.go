// Package crash kills the provisioner and the driver between any two calls they make, and holds what is left against
// what must be: a disk for each PersistentVolume, a PersistentVolume for each claim and each disk, nothing made twice.
// Both programs are real processes on the real control plane of test/lab; every call that they make comes through a
// gate, which stops at the one that a test names:
//
//	disk-provisioner --HTTP--> gate --> kube-apiserver
//	disk-provisioner --CSI---> gate --> disk-driver --HTTP--> gate --> ecs-simulator
//
// With -provisioner csi-provisioner Kubernetes' own provisioner is in front of the driver, and the tests are those whose
// names begin with TestNothingIsLost. The driver is then held against what it must promise to any caller: a code of
// CreateVolume that csi-provisioner takes for final means that no disk of that name exists. What csi-provisioner is known
// to forget by itself is told apart by the calls that it has made, and counted (leaks_test.go).
//
// `make crash` runs every boundary once and a hundred random schedules (-seeds, -seed for a single one); `make e2e`
// runs a few of each (-short).
package crash
