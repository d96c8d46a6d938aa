package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/topodisk/topodisk/test/lab/controlplane"
	"github.com/topodisk/topodisk/test/lab/sandbox"
)

// cpuSlice is the CPU time in microseconds that a limited control plane gets at a time: the least that Linux allows, so that
// it is slow rather than fast and then halted.
const cpuSlice = 1000

// limitCPU gives etcd, the API server, the controller-manager and the scheduler that part of the machine's CPU time, until
// restore is called. It needs root.
func limitCPU(p *controlplane.Plane, part float64) (restore func() error, err error) {
	period, quota := cpuSlice, cpuSlice
	if cpus := part * float64(runtime.NumCPU()); cpus < 1 {
		period = int(cpuSlice / cpus)
	} else {
		quota = int(cpuSlice * cpus)
	}
	root := filepath.Join(sandbox.CgroupMounts, "cpu")
	limits := map[string]string{"cpu.cfs_period_us": strconv.Itoa(period), "cpu.cfs_quota_us": strconv.Itoa(quota)}
	if _, err := os.Stat(filepath.Join(sandbox.CgroupMounts, "cgroup.controllers")); err == nil { // version 2
		root, limits = sandbox.CgroupMounts, map[string]string{"cpu.max": fmt.Sprintf("%d %d", quota, period)}
	}
	group := filepath.Join(root, sandbox.Sandbox{Dir: p.Dir}.Name()+"-control-plane")
	if err := os.Mkdir(group, 0o755); err != nil {
		return nil, fmt.Errorf("make a cgroup for the control plane: %w", err)
	}
	restore = func() error { return errors.Join(moveTo(p, root), os.Remove(group)) }
	for name, value := range limits {
		if err := os.WriteFile(filepath.Join(group, name), []byte(value), 0); err != nil {
			return nil, errors.Join(fmt.Errorf("limit the control plane's CPU time: %w", err), os.Remove(group))
		}
	}
	if err := moveTo(p, group); err != nil {
		return nil, errors.Join(err, restore())
	}
	return restore, nil
}

// moveTo moves the control plane's programs to a cgroup.
func moveTo(p *controlplane.Plane, group string) error {
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(p.Group.Find(name).Pid())), 0); err != nil {
			return fmt.Errorf("move %s to a cgroup: %w", name, err)
		}
	}
	return nil
}
