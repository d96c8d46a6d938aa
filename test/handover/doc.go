// Package handover ends one of two drivers at every moment of what ECS is at work on, and has the other take over. All are
// the shipped programs as real processes:
//
//	test --CSI--> disk-driver A, then B --HTTP--> ecs-simulator, where attaches take 20 s, detaches 45 s, and reads lag 4 s
//
// Whatever the second driver says must be so in ECS, and stay so. `make crash` runs it all (five minutes); `make e2e` runs
// what takes less than two (-short).
package handover
