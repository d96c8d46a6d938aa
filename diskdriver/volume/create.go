package volume

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/capability"
	"github.com/topodisk/topodisk/diskdriver/creation"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/params"
)

// order is a volume as asked for, fully understood.
type order struct {
	class      params.Class
	options    disk.MkfsOptions
	spec       disk.Spec
	want       disk.Wanted // which a disk that there is has to hold
	sized      disk.Wanted // of a new one, which holds the source, too
	candidates []disk.ZoneCandidate
	plan       []disk.Attempt
}

// CreateVolume makes the disk of a volume name, or answers with the one that
// was made before (CSI spec, CreateVolume: it is idempotent by name). It goes
// from zone to zone and from disk type to disk type as long as ECS says that it
// has none to give there, or that the type doesn't take what is asked for; any
// other answer ends it. Package creation says what a final code promises.
func (c *Controller) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := c.checkCreate(req); err != nil {
		return nil, err
	}
	c.creations.Called(ctx, req.GetName())
	var made disk.Disk
	o, err := c.parse(ctx, req)
	if err == nil {
		err = c.place(&o, req.GetAccessibilityRequirements())
	}
	if err == nil {
		made, err = c.findOrMake(ctx, o)
	}
	if err == nil {
		made, err = c.finished(ctx, o.spec.Name, made)
	}
	if err != nil {
		return nil, c.conclude(ctx, req.GetName(), err)
	}
	c.creations.Update(o.spec.Name, time.Now(), func(r *creation.Record) { r.Returned(string(made.ID)) })
	return c.answer(o, made, req.GetVolumeContentSource()), nil
}

// checkCreate refuses a request that no driver can ever have made a disk for.
// None gives up a mutable parameter that it has taken, but a call of this process
// for the same name may have had others. Of earlier processes that isn't asked:
// disk-provisioner repeats a request that it has sent as it was.
func (c *Controller) checkCreate(req *csi.CreateVolumeRequest) error {
	if err := disk.CheckName(req.GetName()); err != nil {
		return err
	}
	if err := capability.Check(req.GetVolumeCapabilities()); err != nil {
		return err
	}
	_, err := params.ParseChange(req.GetMutableParameters())
	if err != nil && c.config.Unknown == params.Refuse && !c.creations.Knows(req.GetName()) {
		return err
	}
	return checkSource(req.GetVolumeContentSource())
}

// parse understands what a request asks for.
func (c *Controller) parse(ctx context.Context, req *csi.CreateVolumeRequest) (o order, err error) {
	if o.class, err = c.parameters(req); err != nil {
		return o, err
	}
	filesystem, options, err := c.config.format(o.class, req.GetVolumeCapabilities())
	if err != nil {
		return o, err
	}
	o.options = options
	if o.want, err = o.class.Want(req.GetCapacityRange().GetRequiredBytes(), req.GetCapacityRange().GetLimitBytes(), filesystem); err != nil {
		return o, err
	}
	if err := disk.CheckFormat(o.want.Least, filesystem, options); err != nil {
		return o, err
	}
	o.spec = o.class.Spec(req.GetName(), c.config.Owner.Cluster)
	o.spec.Tags = o.spec.Tags.And(c.config.ExtraTags)
	if err := c.fill(ctx, req, &o); err != nil {
		return o, err
	}
	if o.spec.Origin() == disk.OriginEmpty {
		o.spec.Tags[disk.HistoryTag] = string(disk.HistoryNew)
	}
	return o, nil
}

// parameters understands the class and holds the capabilities against it.
func (c *Controller) parameters(req *csi.CreateVolumeRequest) (params.Class, error) {
	class, err := params.Parse(req.GetParameters(), req.GetMutableParameters(), c.config.Unknown)
	if err != nil {
		return class, err
	}
	for _, warning := range class.Warnings {
		klog.InfoS("A parameter does nothing", "volume", req.GetName(), "warning", warning)
	}
	if class.Region != "" && class.Region != c.config.Owner.Region {
		return class, disk.Errorf(disk.Invalid, "parameter regionId: %q is not allowed: this driver makes disks in %s only", class.Region, c.config.Owner.Region)
	}
	if class.SnapshotID != "" && !c.config.AllowSnapshotParameter {
		return class, disk.Errorf(disk.Invalid, "parameter %s: %q is not allowed: a class names a snapshot only with --allow-snapshot-parameter; a claim can have a VolumeSnapshot as its dataSource",
			params.SnapshotParameter, class.SnapshotID)
	}
	if err := disk.CheckRoom("diskTags", class.Disk.Tags, c.config.ExtraTags); err != nil {
		return class, err
	}
	return class, capability.Shareable(req.GetVolumeCapabilities(), class.Disk.MultiAttach)
}

// format returns the file system that a volume will carry, empty for a block volume, and its options of mkfs as the node gets them.
// Options of mkfs or mount that no new volume may have are Invalid.
func (c Config) format(class params.Class, capabilities []*csi.VolumeCapability) (filesystem string, options disk.MkfsOptions, err error) {
	if filesystem, err = capability.Filesystem(capabilities, class.Filesystem); err != nil {
		return "", options, err
	}
	if err := capability.CheckMountOptions(capabilities, filesystem, c.Allowed); err != nil {
		return "", options, err
	}
	options, err = class.MkfsOptionsFor(cmp.Or(filesystem, class.Filesystem), c.Allowed)
	return filesystem, options, err
}

// place lays out what to try: the class's disk types in the zones allowed.
func (c *Controller) place(o *order, requirement *csi.TopologyRequirement) error {
	fits, err := disk.Fits(o.class.Choices, o.sized, o.spec)
	if err != nil {
		return err
	}
	if o.candidates, err = c.config.candidates(requirement, o.class.Zones); err != nil {
		return err
	}
	if o.plan, err = disk.Plan(fits, o.candidates); disk.KindOf(err) == disk.OutOfStock {
		return &disk.Error{Kind: disk.OutOfStock, MoreFrom: o.moreFrom(), Err: err}
	}
	return err
}

// findOrMake finds the disk of the name or makes it, and sees that it is the one asked for. What an earlier call has left
// elsewhere goes first. A disk that is returned with an error has the name, and is not the one asked for.
func (c *Controller) findOrMake(ctx context.Context, o order) (disk.Disk, error) {
	for left := disk.ID(""); ; {
		made, err := c.maker(o).Obtain(ctx)
		if err != nil {
			return disk.Disk{}, err
		}
		mismatch := o.matches(made)
		record := c.creations.Of(o.spec.Name, time.Now())
		switch {
		case mismatch == nil && time.Now().Before(record.GoesBy(made.ID)):
			return made, disk.Errorf(disk.Pending, "disk %s was to be deleted by an earlier call for this volume, which may yet reach ECS for %s", made.ID, creation.Remaining(record.GoesBy(made.ID)))
		case c.config.Owner.IsOthers(made.Tags):
			c.creations.Update(o.spec.Name, time.Now(), (*creation.Record).Gone)
			return disk.Disk{}, disk.Errorf(disk.Pending, "disk %s, which was made for this volume, is another cluster's by its tag %s; the next call makes another", made.ID, disk.OwnerTag)
		case mismatch == nil:
			if o.spec.CloneOf != "" {
				c.releaseTemporary(ctx, made)
			}
			return made, nil
		case made.ID == left: // a read lags behind
			return made, disk.Errorf(disk.Pending, "disk %s has just been deleted, and ECS still shows it", left)
		case left != "", !c.isMisplaced(o, made):
			return made, mismatch
		}
		if err := c.removeMisplaced(ctx, o, made); err != nil {
			return made, err
		}
		left = made.ID
	}
}

// matches says whether a disk is the one asked for: a token or a name can bring
// up one that is not.
func (o order) matches(d disk.Disk) error {
	err := o.spec.Matches(d)
	if err == nil {
		err = disk.Among(o.plan, o.want, d)
	}
	if err != nil {
		return fmt.Errorf("the volume has a disk already, which is not the one asked for: %w", err)
	}
	return nil
}

// maker makes the disk of an order by one attempt after the other under one client token, until ECS makes a disk or answers anything but
// OutOfStock or Unfit; that of a copy from a temporary snapshot. What is Unfit in one zone is in all.
func (c *Controller) maker(o order) creation.Maker[disk.Disk] {
	left, refusals := o.plan, []error(nil)
	maker := c.finder(o.spec.Name)
	maker.Make = func(ctx context.Context, token disk.Token) (disk.Disk, creation.Answer, error) {
		try := left[0]
		d, err := c.ecs.Create(ctx, o.spec, try, token)
		if err == nil {
			return d, creation.Made, nil
		}
		err = fmt.Errorf("%s: %w", try, err)
		switch disk.KindOf(err) {
		case disk.OutOfStock:
			c.offers.refuse(try)
			left = left[1:]
		case disk.Unfit:
			left = slices.DeleteFunc(slices.Clone(left), func(other disk.Attempt) bool { return other.Category == try.Category && other.Level == try.Level })
		default:
			return disk.Disk{}, creation.AnswerOf(err), o.ifSourceGrew(err)
		}
		refusals = append(refusals, err)
		if len(left) == 0 {
			return disk.Disk{}, creation.Refused, noneLeft(o, refusals)
		}
		return disk.Disk{}, creation.Refused, nil
	}
	if o.spec.CloneOf != "" {
		maker.Prepare = func(ctx context.Context) error {
			shot, err := c.takeTemporary(ctx, disk.Temporary(o.spec.Name, c.config.Owner.Cluster, o.spec.CloneOf))
			o.spec.SnapshotID = string(shot.ID)
			return err
		}
	}
	return maker
}

// ifSourceGrew makes a refusal of the size Pending if it is that of the source, as it was read, and no other is asked for: the source has
// grown before it was copied, and the next call asks for its size then.
func (o order) ifSourceGrew(err error) error {
	if disk.KindOf(err) == disk.OutOfRange && o.spec.CloneOf != "" && o.want.Least == 0 {
		return &disk.Error{Kind: disk.Pending, Err: fmt.Errorf("the source has grown since its size was read: %w", err)}
	}
	return err
}

// noneLeft is the answer when every attempt was refused: each with what ECS said
// to it. Only if none failed for want of stock would no other zone help.
func noneLeft(o order, refusals []error) error {
	if slices.ContainsFunc(refusals, func(err error) bool { return disk.KindOf(err) == disk.OutOfStock }) {
		return &disk.Error{
			Kind: disk.OutOfStock, Zones: o.zones(), MoreFrom: o.moreFrom(), Err: fmt.Errorf("no zone and disk type allowed has a disk to give: %w", joined(refusals)),
		}
	}
	return &disk.Error{Kind: disk.Unfit, Err: fmt.Errorf("no disk type of the class takes %s, in any zone: %w", o.spec.Settings(), joined(refusals))}
}

// moreFrom returns the size from which more of the class's disk types are possible.
func (o order) moreFrom() disk.GiB { return disk.MoreFrom(o.class.Choices, o.sized, o.spec) }

// zones returns those of the plan.
func (o order) zones() (zones []string) {
	for _, try := range o.plan {
		if try.Zone != "" && !slices.Contains(zones, string(try.Zone)) {
			zones = append(zones, string(try.Zone))
		}
	}
	return zones
}

// joined are errors in one line.
type joined []error

func (j joined) Error() string {
	words := make([]string, len(j))
	for i, err := range j {
		words[i] = err.Error()
	}
	return strings.Join(words, "; ")
}

func (j joined) Unwrap() []error { return j }

// finder is a creation.Maker of the volume's disk that makes none.
func (c *Controller) finder(name string) creation.Maker[disk.Disk] {
	return creation.Maker[disk.Disk]{Records: c.creations, Name: name, Find: func(ctx context.Context, proof bool) (disk.Disk, bool, error) {
		return c.named(ctx, name, proof)
	}}
}

// named returns the one disk that carries the volume's name. Failing to read
// leaves open whether there is one.
func (c *Controller) named(ctx context.Context, name string, proof bool) (disk.Disk, bool, error) {
	disks, err := c.ecs.Named(ctx, name, proof)
	record := c.creations.Of(name, time.Now())
	disks = slices.DeleteFunc(disks, func(d disk.Disk) bool { return record.IsDeleted(d.ID) || c.config.Owner.IsOthers(d.Tags) })
	switch {
	case err != nil:
		return disk.Disk{}, false, creation.NotRead(err)
	case len(disks) == 0:
		return disk.Disk{}, false, nil
	case len(disks) == 1:
		if err := c.config.Owner.CheckDisk(disks[0]); err != nil {
			return disk.Disk{}, false, err
		}
		return disks[0], true, nil
	}
	var ids []string
	for _, d := range disks {
		ids = append(ids, string(d.ID))
	}
	return disk.Disk{}, false, disk.Errorf(disk.Mismatch, "%d disks carry the name of this volume: %s; delete those that hold no data", len(disks), strings.Join(ids, ", "))
}

// finished returns a disk when ECS has finished making it: until then it may
// fail, and ECS takes such a disk away. ECS alone says that it is gone, and then
// the next call makes another.
func (c *Controller) finished(ctx context.Context, name string, d disk.Disk) (disk.Disk, error) {
	made, err := c.awaitMade(ctx, d)
	if disk.KindOf(err) != disk.NotFound {
		return made, err
	}
	switch gone, asked := c.isGone(ctx, d.ID); {
	case gone:
		c.creations.Update(name, time.Now(), (*creation.Record).Gone)
		return made, disk.Errorf(disk.Pending, "ECS began to make disk %s and gave it up; the next call makes another", d.ID)
	case asked != nil:
		return made, disk.Errorf(disk.Pending, "ECS is making disk %s and doesn't show it, and whether it is gone can't be told: %w", d.ID, asked)
	}
	return made, disk.Errorf(disk.Pending, "ECS is making disk %s, and reads don't show it", d.ID)
}

// awaitMade returns a disk, when ECS has made it.
func (c *Controller) awaitMade(ctx context.Context, d disk.Disk) (disk.Disk, error) {
	if d.State != disk.Creating {
		return d, nil
	}
	return c.ecs.Await(ctx, d.ID, func(d disk.Disk) (bool, error) { return d.State != disk.Creating, nil })
}

// answer says where the disk is and what it is.
func (c *Controller) answer(o order, d disk.Disk, source *csi.VolumeContentSource) *csi.CreateVolumeResponse {
	volume := kindOfDisk(d)
	volume[disk.OriginKey] = string(o.spec.Origin())
	if o.class.Filesystem != "" {
		volume[disk.FilesystemKey] = o.class.Filesystem
	}
	if options := o.options.String(); options != "" {
		volume[disk.MkfsOptionsKey] = options
	}
	if o.class.XFSFeatures != "" {
		volume[disk.XFSFeaturesKey] = string(o.class.XFSFeatures)
	}
	if o.class.Unchecked {
		volume[disk.UncheckedKey] = "true"
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId:           string(d.ID),
		CapacityBytes:      d.Size.Bytes(),
		VolumeContext:      volume,
		ContentSource:      source,
		AccessibleTopology: []*csi.Topology{c.config.topology(d, o.candidates, o.class.CategoryAffinity)},
	}}
}

// conclude returns the error of a create as it may be told. One whose code is
// final waits until it is proven that no disk of the name exists or comes to
// exist, unless it names the disk that does.
func (c *Controller) conclude(ctx context.Context, name string, refused error) error {
	record := c.creations.Of(name, time.Now())
	if !c.config.IsFinal(ctx, refused) || disk.KindOf(refused) == disk.Mismatch || !record.MayExist() {
		return refused
	}
	d, found, err := c.finder(name).Look(ctx)
	record = c.creations.Of(name, time.Now())
	switch {
	case err != nil:
		return fmt.Errorf("%w (%w)", err, refused)
	case found:
		return disk.Errorf(disk.Pending, "disk %s was made for this volume, and the call is refused: %w", d.ID, refused)
	case record.MayExist():
		return disk.Errorf(disk.Pending, "an earlier call may have made a disk that ECS doesn't show yet; if it doesn't within %s, none was made (%w)", creation.Remaining(record.Provable()), refused)
	}
	return refused
}
