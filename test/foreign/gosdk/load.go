package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
)

// load has clients lead disks through their lives until the duration is over, and returns whether every call was as
// expected. Each client has an instance for itself if there are as many, and leaves no disk behind.
func load(p place, keys *credentials.AccessKeyCredential, clients int, duration time.Duration) bool {
	begin := time.Now()
	lives, all := make([]int, clients), make([]*calls, clients)
	var group sync.WaitGroup
	for n := range clients {
		l := &life{calls: &calls{pause: 10 * time.Millisecond}, place: p, client: p.open(keys),
			instance: p.instances[n%len(p.instances)], run: fmt.Sprintf("load-%d-%d", begin.UnixMilli(), n)}
		all[n] = l.calls
		group.Go(func() {
			for ; time.Since(begin) < duration && len(l.wrong) == 0; lives[n]++ {
				l.step(func() { l.briefly(lives[n]) })
			}
		})
	}
	group.Wait()
	took, made, wrong, lived := time.Since(begin), 0, 0, 0
	for n, c := range all {
		made, wrong, lived = made+c.made, wrong+len(c.wrong), lived+lives[n]
		for _, line := range c.wrong {
			fmt.Println(line)
		}
	}
	fmt.Printf("%d clients for %.1f s, %d disks made and deleted: %d calls, %d as expected\n", clients, took.Seconds(), lived, made, made-wrong)
	return wrong == 0
}

// briefly makes a disk, attaches it, finds it, detaches it and deletes it.
func (l *life) briefly(n int) {
	made, err := l.client.CreateDisk(l.order(fmt.Sprintf("%s-%d", l.run, n)))
	l.disk = ok(l.calls, "a disk is made", made, err).DiskId
	l.settle(l.disk, "Available")
	l.patiently("a disk is attached", initializing, func() error {
		r := ecs.CreateAttachDiskRequest()
		r.InstanceId, r.DiskId = l.instance, l.disk
		_, err := l.client.AttachDisk(r)
		return err
	})
	l.settle(l.disk, "In_use")
	r := ecs.CreateDescribeDisksRequest()
	r.Tag = &[]ecs.DescribeDisksTag{{Key: "run", Value: l.run}}
	found, err := l.client.DescribeDisks(r)
	ok(l.calls, "a search by tag", found, err, is("number of disks", len(found.Disks.Disk), 1))
	off := ecs.CreateDetachDiskRequest()
	off.InstanceId, off.DiskId = l.instance, l.disk
	detached, err := l.client.DetachDisk(off)
	ok(l.calls, "a disk is detached", detached, err)
	l.settle(l.disk, "Available")
	l.erase(l.disk)
}
