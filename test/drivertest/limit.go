package drivertest

import (
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

// steps is how long ECS took for each call of one disk's lifecycle until all of it was over: until the reply, or until the change was
// done that goes on after it. The driver tags a disk when it records its first attach.
type steps struct {
	instance                                    string
	create, tag, attach, resize, detach, remove time.Duration
}

// alone is the shortest time of a lifecycle, with one read to see that the attach is over and one for the detach.
func (s steps) alone(read time.Duration) time.Duration {
	return s.untilDetach(read) + s.detach + read + s.remove
}

func (s steps) untilDetach(read time.Duration) time.Duration {
	return s.create + s.tag + s.attach + read + s.resize
}

// LifecycleLimit is the shortest time in which a driver that knows everything could have run the lifecycles: the longest of what
// each disk takes alone, and of what each instance takes that attaches and detaches one at a time (serial), or detaches five.
// calls are those of the lifecycles. The end of an attach or a detach is seen by a read that takes as long as those among them on
// average: where ECS's times vary, so do these.
func LifecycleLimit(calls []ecssim.Call, serial bool) time.Duration {
	read := readTime(calls)
	byInstance := map[string][]steps{}
	for _, s := range stepsOf(calls) {
		byInstance[s.instance] = append(byInstance[s.instance], *s)
	}
	var limit time.Duration
	for _, all := range byInstance {
		limit = max(limit, queueLimit(all, read, serial))
		for _, s := range all {
			limit = max(limit, s.alone(read))
		}
	}
	return limit
}

// queueLimit is the shortest time of the lifecycles on one instance.
func queueLimit(all []steps, read time.Duration, serial bool) time.Duration {
	first, ready, last := all[0].create+all[0].tag, all[0].untilDetach(read), all[0].remove
	var attaches, detaches time.Duration
	for _, s := range all {
		first, ready, last = min(first, s.create+s.tag), min(ready, s.untilDetach(read)), min(last, s.remove)
		attaches += s.attach + read
		detaches += s.detach
	}
	if serial {
		return first + attaches + detaches + time.Duration(len(all))*read + last
	}
	return ready + detaches/time.Duration(ecssim.Parallel.Detach) + read + last
}

// readTime is how long a read of disks took on average.
func readTime(calls []ecssim.Call) time.Duration {
	var sum, n time.Duration
	for _, c := range calls {
		if c.Action == "DescribeDisks" && c.Code == "" {
			sum, n = sum+c.Took, n+1
		}
	}
	return sum / max(n, 1)
}

// stepsOf finds the successful calls of each disk.
func stepsOf(calls []ecssim.Call) map[string]*steps {
	disks := map[string]*steps{}
	for _, c := range calls {
		if c.Code != "" || c.Disk == "" {
			continue
		}
		s := disks[c.Disk]
		if s == nil {
			s = &steps{}
			disks[c.Disk] = s
		}
		all := max(c.Took, c.Settles)
		switch c.Action {
		case "CreateDisk":
			s.create = all
		case "TagResources":
			s.tag = all
		case "AttachDisk":
			s.attach, s.instance = all, c.Params["InstanceId"]
		case "ResizeDisk":
			s.resize = all
		case "DetachDisk":
			s.detach = all
		case "DeleteDisk":
			s.remove = all
		}
	}
	return disks
}

// DrainLimit is the shortest time in which disks could have been moved from one instance, which detaches five at a time, to
// others: all detaches, a read that sees the end of the last one, and the shortest attach. calls are those of the drain. It is
// zero if nothing was detached.
func DrainLimit(calls []ecssim.Call) time.Duration {
	var detaches, attach time.Duration
	for _, s := range stepsOf(calls) {
		detaches += s.detach
		if s.attach > 0 && (attach == 0 || s.attach < attach) {
			attach = s.attach
		}
	}
	if detaches == 0 {
		return 0
	}
	return detaches/time.Duration(ecssim.Parallel.Detach) + readTime(calls) + attach
}
