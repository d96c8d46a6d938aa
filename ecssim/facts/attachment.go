package facts

import (
	"fmt"
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

// holders lists the instances that a disk's Attachments name.
func holders(d row) []string {
	var list []string
	for _, a := range d.rows("Attachments", "Attachment") {
		list = append(list, a.text("InstanceId"))
	}
	return list
}

// attachmentFacts are of AttachDisk and DetachDisk, of deleting and resizing
// what is attached.
func attachmentFacts() []Fact {
	return []Fact{
		one("AttachDisk", "the reply says accepted, and In_use comes later", page, Instance, func(p *Probe) {
			id := p.ready()
			p.attach(id)
			if d := p.show(id); !slices.Contains([]string{"Available", "Attaching", "In_use"}, d.text("Status")) {
				p.differs("status %q", d.text("Status"))
			}
			d := p.await(id, "In_use")
			if d.text("InstanceId") != p.Instance || !slices.Equal(holders(d), []string{p.Instance}) || d.text("AttachedTime") == "" || d.text("Device") == "" {
				p.differs("disk %v", d)
			}
		}),
		one("AttachDisk", "the disk may look Available for a moment after the reply", "alibaba-cloud-csi-driver pull request 1009", Simulator, func(p *Probe) {
			latency := p.realLatency()
			latency.AttachShown, latency.API["DescribeDisks"] = time.Second, 0
			p.must(p.Sim.SetLatency(latency))
			id := p.ready()
			p.attach(id)
			if d := p.show(id); d.text("Status") != "Available" {
				p.differs("at once: status %q", d.text("Status"))
			}
			p.sleep(time.Second)
			if d := p.show(id); d.text("Status") != "Attaching" {
				p.differs("a second later: status %q", d.text("Status"))
			}
		}),
		one("AttachDisk", "an instance that does not exist is InvalidInstanceId.NotFound", table, Disks, func(p *Probe) {
			p.refused(p.ask("AttachDisk", "DiskId", p.ready(), "InstanceId", noInstance), 404, "InvalidInstanceId.NotFound")
		}),
		one("AttachDisk", "a disk that does not exist is InvalidDiskId.NotFound", table, Instance, func(p *Probe) {
			p.refused(p.ask("AttachDisk", "DiskId", noDisk, "InstanceId", p.Instance), 404, "InvalidDiskId.NotFound")
		}),
		one("AttachDisk", "a disk of another zone is ResourcesNotInSameZone", table, Simulator, func(p *Probe) {
			p.refused(p.ask("AttachDisk", "DiskId", p.ready("ZoneId", p.otherZone()), "InstanceId", p.Instance), 403, "ResourcesNotInSameZone")
		}),
		one("AttachDisk", "one instance attaches one disk at a time, a second is InvalidOperation.Conflict", "alibaba-cloud-csi-driver pull request 930", Simulator, func(p *Probe) {
			one, two := p.ready(), p.ready()
			p.attach(one)
			p.refused(p.ask("AttachDisk", "DiskId", two, "InstanceId", p.Instance), 403, "InvalidOperation.Conflict")
			p.await(one, "In_use")
			p.attach(two)
		}),
		several("AttachDisk", "a second disk while the first is Attaching", "403 "+seen+"; 409 in tables of other actions; accepted for accounts that asked for it", Instance, attachAnother,
			Way{"the second is " + refusedWith("InvalidOperation.Conflict", 403), map[string]string{"queues": "serial", "conflict-status": "403"}},
			Way{"the second is " + refusedWith("InvalidOperation.Conflict", 409), map[string]string{"queues": "serial", "conflict-status": "409"}},
			way("both are accepted", "queues", "parallel")),
		several("AttachDisk", "a disk that is In_use on the same instance", table+", which has both", Instance, func(p *Probe) string {
			return p.ask("AttachDisk", "DiskId", p.attached(), "InstanceId", p.Instance).outcome()
		},
			way(refusedWith("IncorrectDiskStatus", 403), "in-use-code", "IncorrectDiskStatus"),
			way(refusedWith("InvalidDisk.InUse", 404), "in-use-code", "InvalidDisk.InUse")),
		several("AttachDisk", "a disk that is Detaching from the same instance", "accepted: alibaba-cloud-csi-driver pull request 1520; refused: API page", Instance, attachLeaving,
			way("accepted, but the disk is still detached", "refuse-attach-while-detaching", "false"),
			way(refusedWith("IncorrectDiskStatus", 403), "refuse-attach-while-detaching", "true")),
		several("AttachDisk", "the Attachments of a disk that is Attaching", seen+" for disks with MultiAttach; the API page has In_use and Detaching only", Instance, func(p *Probe) string {
			return p.shownWhile("Attaching", p.attach, func() string { return p.ready() })
		},
			way("leave the instance out", "list-attaching", "false"),
			way("name the instance", "list-attaching", "true")),
		one("AttachDisk", "where 32 are attached at a time, the 33rd is OperationConflict.DisksAttachingParallellyExceed", table, Simulator, func(p *Probe) {
			p.must(p.Sim.SetQueues(ecssim.Parallel))
			latency := p.realLatency()
			latency.Attach = time.Hour
			p.must(p.Sim.SetLatency(latency))
			for range 32 {
				p.ok(p.ask("AttachDisk", "DiskId", p.ready(), "InstanceId", denseInstance))
			}
			p.refused(p.ask("AttachDisk", "DiskId", p.ready(), "InstanceId", denseInstance), 400, "OperationConflict.DisksAttachingParallellyExceed")
		}),
		one("AttachDisk", "beyond the instance's DiskQuantity, system disk included, it is InstanceDiskLimitExceeded", table, Simulator, func(p *Probe) {
			for range 16 {
				p.attached()
			}
			p.refused(p.ask("AttachDisk", "DiskId", p.ready(), "InstanceId", p.Instance), 403, "InstanceDiskLimitExceeded")
		}),
		one("AttachDisk", "a type that does not take the category is InvalidInstanceType.NotSupportDiskCategory", table, Simulator, func(p *Probe) {
			p.refused(p.ask("AttachDisk", "DiskId", p.ready("DiskCategory", "cloud_essd_entry"), "InstanceId", p.Instance),
				403, "InvalidInstanceType.NotSupportDiskCategory")
		}),
		one("DetachDisk", "the disk is Detaching, and is Available in the end", page, Instance, func(p *Probe) {
			id := p.attached()
			p.detach(id)
			if s := p.show(id).text("Status"); s != "Detaching" && s != "Available" {
				p.differs("at once: status %q", s)
			}
			if d := p.await(id, "Available"); len(holders(d)) != 0 || d.text("InstanceId") != "" || d.text("Device") != "" {
				p.differs("disk %v", d)
			}
		}),
		one("DetachDisk", "a disk has a DetachedTime from its first detach on, and keeps it when it is attached again", page+" of DescribeDisks, which doesn't say for how long", Instance, func(p *Probe) {
			id := p.attached()
			if at := p.show(id).text("DetachedTime"); at != "" {
				p.differs("attached for the first time: detached at %q", at)
			}
			p.detach(id)
			at := p.await(id, "Available").text("DetachedTime")
			p.attach(id)
			if again := p.await(id, "In_use").text("DetachedTime"); at == "" || again != at {
				p.differs("detached at %q, and attached again at %q", at, again)
			}
		}),
		one("DetachDisk", "the DetachedTime of a later detach is later, and the times of a disk have seconds", page+" of DescribeDisks, which says minutes; its examples have seconds", Instance, func(p *Probe) {
			id := p.attached()
			p.detach(id)
			first := p.await(id, "Available").text("DetachedTime")
			p.attach(id)
			p.await(id, "In_use")
			p.sleep(time.Second) // which is what the times are in
			p.detach(id)
			if next := p.await(id, "Available").text("DetachedTime"); next <= first || len(next) != len("2006-01-02T15:04:05Z") {
				p.differs("detached at %q, and again at %q", first, next)
			}
		}),
		several("DetachDisk", "the Attachments of a disk that is Detaching", "API page of DescribeDisks: InstanceId and Device are there for In_use and Detaching; "+seen+": not always", Instance, func(p *Probe) string {
			return p.shownWhile("Detaching", p.detach, func() string { return p.attached() })
		},
			way("name the instance", "hide-detaching", "false"),
			way("leave the instance out", "hide-detaching", "true")),
		several("DetachDisk", "a disk that is attached to nothing", table+", which has all three", Instance, func(p *Probe) string {
			return p.ask("DetachDisk", "DiskId", p.ready(), "InstanceId", p.Instance).outcome()
		},
			way(refusedWith("InvalidDisk.AlreadyDetached", 404), "detached-code", "InvalidDisk.AlreadyDetached"),
			way(refusedWith("DependencyViolation", 403), "detached-code", "DependencyViolation"),
			way(refusedWith("IncorrectDiskStatus", 403), "detached-code", "IncorrectDiskStatus")),
		one("DetachDisk", "from another instance it is DependencyViolation", table, Simulator, func(p *Probe) {
			p.refused(p.ask("DetachDisk", "DiskId", p.attached(), "InstanceId", neighbour), 403, "DependencyViolation")
		}),
		one("DetachDisk", "where five are detached at a time, the sixth is DisksDetachingOnEcsExceeded", "alibaba-cloud-csi-driver pull request 1216; "+table, Simulator, func(p *Probe) {
			p.must(p.Sim.SetQueues(ecssim.Parallel))
			var all []string
			for range 6 {
				all = append(all, p.attached())
			}
			p.must(p.Sim.SetLatency(ecssim.Latency{Detach: time.Minute}))
			for _, id := range all[:5] {
				p.detach(id)
			}
			p.refused(p.ask("DetachDisk", "DiskId", all[5], "InstanceId", p.Instance), 400, "DisksDetachingOnEcsExceeded")
		}),
		one("DetachDisk", "a disk that does not exist is InvalidDiskId.NotFound", table, Instance, func(p *Probe) {
			p.refused(p.ask("DetachDisk", "DiskId", noDisk, "InstanceId", p.Instance), 404, "InvalidDiskId.NotFound")
		}),
		one("DeleteDisk", "an attached disk is refused with IncorrectDiskStatus or DiskStillAttached", table, Instance, func(p *Probe) {
			if a := p.ask("DeleteDisk", "DiskId", p.attached()); a.status != 403 || a.code() != "IncorrectDiskStatus" && a.code() != "DiskStillAttached" {
				p.differs("%s", a.outcome())
			}
		}),
		one("ResizeDisk", "online grows an attached disk of a running instance", page, Instance, func(p *Probe) {
			id := p.attached()
			p.ok(p.ask("ResizeDisk", "DiskId", id, "NewSize", "21", "Type", "online"))
			if d := p.show(id); d["Size"] != float64(21) || d.text("Status") != "In_use" {
				p.differs("size %v, status %q", d["Size"], d.text("Status"))
			}
		}),
		several("ResizeDisk", "online, a disk with MultiAttach", "accepted: newer API page; refused: its error codes", Instance, func(p *Probe) string {
			return p.ask("ResizeDisk", "DiskId", p.attached("MultiAttach", "Enabled"), "NewSize", "21", "Type", "online").outcome()
		},
			way(accepted, "refuse-shared-online-resize", "false"),
			way(refusedWith("InvalidOperation.MultiAttachDiskNotSupportResizeOnline", 403), "refuse-shared-online-resize", "true")),
		one("ResizeDisk", "online on a stopped instance is InvalidInstanceStatus.NotRunning", table, Simulator, func(p *Probe) {
			id, stopped := p.attached(), "Stopped"
			p.must(p.Sim.SetInstance(p.Instance, ecssim.InstanceChange{Status: &stopped}))
			p.refused(p.ask("ResizeDisk", "DiskId", id, "NewSize", "21", "Type", "online"), 403, "InvalidInstanceStatus.NotRunning")
		}),
		one("DetachDisk", "a system disk is detached from a Stopped instance, and from no other", page, Simulator, func(p *Probe) {
			list := p.ok(p.ask("DescribeDisks", "InstanceId", p.Instance, "DiskType", "system")).rows("Disks", "Disk")
			if len(list) != 1 {
				p.stop("%d system disks", len(list))
			}
			id, stopped := list[0].text("DiskId"), "Stopped"
			p.Made = append(p.Made, id) // the simulator made it with the instance
			p.refused(p.ask("DetachDisk", "DiskId", id, "InstanceId", p.Instance), 403, "DiskTypeViolation")
			p.must(p.Sim.SetInstance(p.Instance, ecssim.InstanceChange{Status: &stopped}))
			p.ok(p.ask("DetachDisk", "DiskId", id, "InstanceId", p.Instance))
		}),
	}
}

// Instances of the simulator besides the client's, in its zone.
const (
	neighbour     = "i-neighbour"
	denseInstance = "i-dense" // with room for more than 32 disks
)

// realLatency are the times of profile real, always the same.
func (p *Probe) realLatency() ecssim.Latency {
	latency, err := ecssim.Profile("real")
	p.must(err)
	latency.Spread = 0
	return latency
}

// attachAnother attaches two disks at the same moment.
func attachAnother(p *Probe) string {
	ids := []string{p.ready(), p.ready()}
	for range attempts {
		var answers [2]reply
		var failed [2]error
		done := make(chan bool)
		for i, id := range ids {
			go func() {
				answers[i], failed[i] = p.call(p.ctx, "AttachDisk", "DiskId", id, "InstanceId", p.Instance)
				done <- true
			}()
		}
		<-done
		<-done
		var taken []string
		for i, id := range ids {
			switch a := p.mustAnswer(answers[i], failed[i]); {
			case a.code() == "InvalidOperation.Conflict":
				return "the second is " + a.outcome()
			case a.code() == "IncorrectDiskStatus.Initializing":
			default:
				p.had("AttachDisk", a)
				p.await(id, "In_use")
				taken = append(taken, id)
			}
		}
		if len(taken) == len(ids) {
			return "both are accepted"
		}
		for _, id := range taken {
			p.detach(id)
			p.await(id, "Available")
		}
		p.sleep(time.Second)
	}
	p.skip("the disks can't be attached yet")
	return ""
}

// attachLeaving attaches a disk to the instance that it is Detaching from.
func attachLeaving(p *Probe) string {
	id := p.attached()
	for range attempts {
		p.detach(id)
		answer := p.ask("AttachDisk", "DiskId", id, "InstanceId", p.Instance)
		switch {
		case answer.code() == "InvalidOperation.Conflict":
			p.skip("the instance takes one attach or detach at a time")
		case answer.status != 200:
			return answer.outcome()
		}
		var d row
		settled := p.until(changeLimit, func() bool {
			d = p.show(id)
			return d.text("Status") == "In_use" || d.text("Status") == "Available" && !p.staysAttached(id)
		})
		switch {
		case !settled:
			return fmt.Sprintf("accepted, and the disk is %q after %v", d.text("Status"), changeLimit)
		case d.text("Status") == "Available":
			return "accepted, but the disk is still detached"
		}
	}
	return "accepted, and the disk is attached again"
}

// staysAttached tells whether a disk that looks Available is attached soon.
func (p *Probe) staysAttached(id string) bool {
	p.sleep(2 * time.Second)
	return p.show(id).text("Status") != "Available"
}

// shownWhile says what the Attachments of a disk show while it is in a state
// that passes.
func (p *Probe) shownWhile(state string, begin func(id string), prepare func() string) string {
	for range attempts {
		id := prepare()
		begin(id)
		shown := ""
		p.until(changeLimit, func() bool {
			d := p.show(id)
			switch {
			case d.text("Status") != state:
			case len(holders(d)) == 0:
				shown = "leave the instance out"
			case slices.Equal(holders(d), []string{p.Instance}):
				shown = "name the instance"
			default:
				shown = fmt.Sprintf("name %v", holders(d))
			}
			return shown != "" || d.text("Status") == map[string]string{"Attaching": "In_use", "Detaching": "Available"}[state]
		})
		if shown != "" {
			return shown
		}
	}
	p.skip("no read showed a disk that is %s", state)
	return ""
}
