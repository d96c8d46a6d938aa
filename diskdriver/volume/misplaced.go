package volume

import (
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/creation"
	"github.com/topodisk/topodisk/diskdriver/disk"
)

// isMisplaced says whether a disk was left behind by an earlier call for the same
// volume, which was then rescheduled: it is what the class makes, only not
// where the disk may live now, or not of a type that the node takes that was
// selected since. It is ours by all its tags, and nobody can have written to
// it, for it was never attached; of one for several instances, where a read
// doesn't tell, nobody must know the ID. Then nothing is lost with it, while a
// volume with two disks, or one that can never be made, would be.
func (c *Controller) isMisplaced(o order, d disk.Disk) bool {
	record := c.creations.Of(o.spec.Name, time.Now())
	ours := d.Tags[disk.ClusterTag] == c.config.Owner.Cluster && d.Tags[disk.CreatedByTag] == disk.Creator && d.Tags[disk.VolumeNameTag] == o.spec.Name
	unwritten := d.Unwritten() || d.NeverAttached && record.Unheard(d.Created)
	untouched := unwritten && len(d.Attachments) == 0 && (d.State == disk.Available || d.State == disk.Creating)
	asked := o.spec.Matches(d) == nil && disk.OneOf(o.class.Choices, d) == nil && o.want.Holds(d.Size)
	elsewhere := disk.Among(o.plan, o.want, d) != nil
	return d.ID != "" && ours && untouched && asked && elsewhere
}

// removeMisplaced deletes a misplaced disk, and with it uses up its client token.
func (c *Controller) removeMisplaced(ctx context.Context, o order, d disk.Disk) error {
	klog.InfoS("Deleting the disk of an earlier call, for the volume has to be elsewhere now and the disk was never attached",
		"volume", o.spec.Name, "disk", d.ID, "zone", d.Zone, "type", d.Category)
	if err := c.remove(ctx, d.ID, d.State == disk.Creating); err != nil {
		if disk.KindOf(err) == disk.UnknownOutcome {
			c.creations.Update(o.spec.Name, time.Now(), func(r *creation.Record) { r.MayGo(time.Now(), d.ID) })
		}
		return fmt.Errorf("an earlier call for this volume has left disk %s in %s, which must go first: %w", d.ID, d.Zone, err)
	}
	c.creations.Update(o.spec.Name, time.Now(), func(r *creation.Record) { r.Removed(d.ID) })
	return nil
}
