package facts

import (
	"strconv"
	"time"
)

// snapshotFacts are of snapshots and groups of them.
func snapshotFacts() []Fact {
	list := []Fact{creating("CreateSnapshot")}
	for _, category := range []string{"cloud_essd", "cloud_auto", "cloud_essd_entry", "cloud_ssd", "cloud_efficiency"} {
		taken := way(accepted, "snapshot-unattached", "+"+category)
		refused := way(refusedWith("IncorrectDiskStatus.NeverAttached", 403), "snapshot-unattached", "-"+category)
		ways, source := []Way{refused, taken}, "API page"
		if category == "cloud_essd" || category == "cloud_auto" {
			ways, source = []Way{taken, refused}, "refused: API page; accepted: csi-sanity through alibaba-cloud-csi-driver on the real cloud"
		}
		list = append(list, several("CreateSnapshot", "a disk of "+category+" that was never attached", source, Disks, func(p *Probe) string {
			return p.ask("CreateSnapshot", "DiskId", p.ready("DiskCategory", category)).outcome()
		}, ways...))
	}
	return append(list, []Fact{
		one("CreateSnapshot", "a name that begins with auto is InvalidSnapshotName.Malformed", table, Instance, func(p *Probe) {
			p.refused(p.ask("CreateSnapshot", "DiskId", p.attached(), "SnapshotName", "auto1"), 400, "InvalidSnapshotName.Malformed")
		}),
		one("CreateSnapshot", "a snapshot of an ESSD is Available before it is accomplished, with its source's size as a string", page+"; alibaba-cloud-csi-driver pull request 1225", Simulator, snapshotOfESSD),
		several("DeleteSnapshot", "a snapshot that does not exist", "404: API page, error codes; accepted: API page", Nothing, func(p *Probe) string {
			return p.ask("DeleteSnapshot", "SnapshotId", noSnapshot).outcome()
		},
			way(refusedWith("InvalidSnapshotId.NotFound", 404), "forgive-unknown-snapshot", "false"),
			way(accepted, "forgive-unknown-snapshot", "true")),
		one("DescribeSnapshots", "101 IDs are InvalidSnapshotIds.Malformed", table, Nothing, func(p *Probe) {
			p.refused(p.ask("DescribeSnapshots", "SnapshotIds", idList(repeated(101, noSnapshot)...)), 403, "InvalidSnapshotIds.Malformed")
		}),
		one("CreateDisk", "a disk from an encrypted snapshot has the snapshot's key, unless another is named", page, Simulator, func(p *Probe) {
			id := p.snapshot(p.attached("Encrypted", "true", "KMSKeyId", "key-own"))
			p.sleep(10 * time.Minute)
			for key, pairs := range map[string][]string{"key-own": nil, "key-other": {"Encrypted", "true", "KMSKeyId", "key-other"}} {
				if d := p.show(p.ready(append([]string{"SnapshotId", id}, pairs...)...)); d.text("KMSKeyId") != key {
					p.differs("key %q, want %q", d.text("KMSKeyId"), key)
				}
			}
		}),
		one("CreateSnapshotGroup", "17 disks are refused", page, Simulator, func(p *Probe) {
			var pairs []string
			for i := range 17 {
				pairs = append(pairs, "DiskId."+strconv.Itoa(i+1), noDisk)
			}
			if a := p.ask("CreateSnapshotGroup", pairs...); a.status < 400 {
				p.differs("%s", a.outcome())
			}
		}),
	}...)
}

// snapshot takes a snapshot of a disk.
func (p *Probe) snapshot(disk string) string {
	return p.had("CreateSnapshot", p.ask("CreateSnapshot", "DiskId", disk)).body.text("SnapshotId")
}

// showSnapshot returns a snapshot as DescribeSnapshots shows it; nil if it
// does not.
func (p *Probe) showSnapshot(id string) row {
	if list := p.ok(p.ask("DescribeSnapshots", "SnapshotIds", idList(id))).rows("Snapshots", "Snapshot"); len(list) == 1 {
		return list[0]
	}
	return nil
}

func snapshotOfESSD(p *Probe) {
	disk := p.attached()
	latency := p.realLatency()
	latency.SnapshotCut, latency.SnapshotUsable, latency.SnapshotDone = 2*time.Second, 5*time.Second, 2*time.Minute
	p.must(p.Sim.SetLatency(latency))
	id := p.snapshot(disk)
	if n := p.showSnapshot(id); n.text("Status") != "progressing" || n.text("SourceDiskSize") != "20" || n.text("SourceDiskId") != disk ||
		n.text("CreationTime") != "" {
		p.differs("at once: %v", n)
	}
	p.sleep(15 * time.Second)
	if n := p.showSnapshot(id); n["Available"] != true || n.text("Status") != "progressing" || n.text("CreationTime") == "" {
		p.differs("soon: %v", n)
	}
	p.sleep(10 * time.Minute)
	if n := p.showSnapshot(id); n.text("Status") != "accomplished" || n.text("Progress") != "100%" {
		p.differs("in the end: %v", n)
	}
	made := p.ready("SnapshotId", id, "Size", "40")
	if d := p.show(made); d.text("SourceSnapshotId") != id || d["Size"] != float64(40) {
		p.differs("a disk of it: %v", d)
	}
}
