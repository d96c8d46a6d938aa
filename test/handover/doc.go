// Package handover ends one of two drivers at every moment of what ECS is at work on, and has the other take over. All are
// the shipped programs as real processes:
//
//	test --CSI--> disk-driver A, then B --HTTP--> ecs-simulator, where attaches take 20 s, detaches 45 s, and reads lag 4 s
//
// Whatever the second driver says must be so in ECS, and stay so.
//
// TestLeaderIsLost does it with what the chart installs: three Pods, each of disk-driver and csi-attacher with its Lease, on
// the control plane of test/lab, and an ECS that takes its time. The one that leads is killed, or stopped for longer than its
// Lease, during 100 attaches and detaches; Kubernetes is told of no attachment what ECS contradicts.
//
// TestRandomCallers asks for anything, of drivers that are killed and replaced, over a network that loses, delays and repeats, from an ECS
// that refuses, lags and hides.
//
// `make crash` runs it all (forty minutes); `make e2e` runs what takes less than five (-short).
package handover
