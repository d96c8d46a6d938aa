package ecssim_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdkerrors "github.com/aliyun/alibaba-cloud-sdk-go/sdk/errors"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

// walker does random things to few disks and instances, so that they collide.
type walker struct {
	t     *testing.T
	s     *ecssim.Server
	c     *ecs.Client
	r     *rand.Rand
	disks []string
	shots []string
}

var walkInstances = []string{"i-1", "i-2", "i-3", "i-nvme1", "i-nvme2", "i-tiny"}

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

// step does one thing. ECS may refuse it, and nothing else may go wrong.
func (w *walker) step() {
	disk, instance := pick(w.r, append(w.disks, "d-none")), pick(w.r, walkInstances)
	var err error
	switch what := w.r.IntN(16); what {
	case 0, 1:
		var reply *ecs.CreateDiskResponse
		reply, err = w.c.CreateDisk(newCreate(pick(w.r, []func(*ecs.CreateDiskRequest){nil, shared, regional, ephemeral, inZoneI, ofKind("cloud_ssd", "", "40"), w.fromSnapshot})))
		if err == nil {
			w.disks = append(w.disks, reply.DiskId)
		}
	case 2, 3, 4, 5:
		err = attach(w.c, instance, disk, pick(w.r, []attachChange{func(*ecs.AttachDiskRequest) {}, withInstance, byForce}))
	case 6, 7, 8:
		if d := pick(w.r, append(w.s.Disks(), ecssim.DiskState{ID: disk})); len(d.Attachments) > 0 {
			instance, disk = d.Attachments[0].Instance, d.ID
		}
		err = detach(w.c, instance, disk)
	case 9:
		err = resize(w.c, disk, 20+w.r.IntN(200), pick(w.r, []func(*ecs.ResizeDiskRequest){func(*ecs.ResizeDiskRequest) {}, online}))
	case 10:
		err = second(modify(w.c, disk, toCategory(pick(w.r, []string{"cloud_auto", "cloud_essd", "cloud_regional_disk_auto"})), toZone(zoneH)))
	case 11:
		var id string
		if id, err = snap(w.c, disk); err == nil {
			w.shots = append(w.shots, id)
		}
	case 12:
		if len(w.shots) > 0 {
			err = deleteSnapshot(w.c, pick(w.r, w.shots), w.r.IntN(2) == 0)
		}
	case 13:
		if len(w.disks) > 4 {
			err = remove(w.c, disk)
		}
	case 14:
		err = w.shake(instance)
	case 15:
		w.s.Unstick(disk)
	}
	var refused *sdkerrors.ServerError
	var none *ecssim.ConfigError
	if err != nil && (!errors.As(err, &refused) || refused.HttpStatus() >= 500) && !errors.As(err, &none) {
		w.t.Errorf("step failed with %v", err)
	}
}

func (w *walker) fromSnapshot(r *ecs.CreateDiskRequest) {
	if len(w.shots) > 0 {
		r.SnapshotId, r.Size = pick(w.r, w.shots), ""
	}
}

// shake stops, starts, releases or adds an instance.
func (w *walker) shake(instance string) error {
	switch w.r.IntN(8) {
	case 0:
		return w.s.RemoveInstance(instance)
	case 1, 2:
		return w.s.SetInstance(instance, ecssim.InstanceChange{Status: ptr("Stopped")})
	case 3, 4:
		return w.s.SetInstance(instance, ecssim.InstanceChange{Status: ptr("Running")})
	}
	zone, kind := zoneH, "ecs.g7se.large"
	if instance == "i-2" {
		zone, kind = zoneI, "ecs.g6se.26xlarge"
	}
	return w.s.AddInstance(ecssim.Instance{ID: instance, Zone: zone, Type: kind})
}

// Whatever is done, in whatever order and at the same time, the state stays
// sound, and what is under way comes to an end.
func TestStateStaysSoundWhateverIsDone(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fleet(t, func(c *ecssim.Config) {
					timed(c)
					shotTimes(c)
					c.Latency.AttachShown, c.Latency.Available, c.Latency.Modify = time.Second, time.Second, time.Minute
					if seed%2 == 0 {
						c.Queues = ecssim.Parallel
					}
				})
				for _, action := range []string{"AttachDisk", "DetachDisk"} {
					for _, do := range []string{ecssim.FaultStuck, ecssim.FaultFails} {
						addFault(t, s, ecssim.Fault{Action: action, Do: do, Skip: 2, Count: 2})
					}
				}
				var walks sync.WaitGroup
				for n := range uint64(3) {
					w := &walker{t: t, s: s, c: newClient(t, s), r: rand.New(rand.NewPCG(seed, n))}
					walks.Go(func() {
						for range 120 {
							w.step()
							time.Sleep(time.Duration(w.r.IntN(3000)) * time.Millisecond)
							if err := s.Check(); err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
				walks.Wait()
				s.Unstick("")
				time.Sleep(time.Hour)
				ok(t, s.Check())
				for _, d := range s.Disks() {
					if d.Status != "Available" && d.Status != "In_use" {
						t.Errorf("disk %s is %s in the end", d.ID, d.Status)
					}
				}
				st := s.State()
				for _, action := range []string{"CreateDisk", "AttachDisk", "DetachDisk", "ResizeDisk", "DeleteDisk", "CreateSnapshot"} {
					if st.Calls[action][""] == 0 {
						t.Errorf("no %s has succeeded: the walk goes nowhere", action)
					}
				}
			})
		})
	}
}
