package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/adoption"
	"github.com/topodisk/topodisk/diskdriver/disk"
)

// adoptEvery is after how long adoption is tried again if it failed.
const adoptEvery = 5 * time.Minute

// adopt tags the disks that an earlier version made, once, in the background. Without an API server that tells of PersistentVolumes none is.
func adopt(ctx context.Context, o *options, ecs adoption.ECS) {
	if len(o.adopted) == 0 {
		return
	}
	client, without, err := o.optionalClient()
	if client == nil {
		klog.InfoS("Disks of earlier versions are not tagged, for there is no API server to ask for PersistentVolumes", "reason", cmp.Or(without, fmt.Sprint(err)))
		return
	}
	owner := disk.Owner{Region: o.region, Cluster: o.clusterID, Adopted: o.adopted}
	go func() {
		_ = retry(ctx, adoptEvery, "Disks of earlier versions are not tagged yet", func() error { return adoption.Run(ctx, client, o.driverName, owner, ecs) })
	}()
}
