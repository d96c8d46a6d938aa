package diskdriver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/params"
)

// order is a volume as asked for, fully understood.
type order struct {
	class  params.Class
	spec   disk.Spec
	want   disk.Wanted // which a disk that there is has to hold
	places []place
	plan   []disk.Attempt
}

// CreateVolume makes the disk of a volume name, or answers with the one that
// was made before (CSI spec, CreateVolume: it is idempotent by name). It goes
// from zone to zone and from disk type to disk type as long as ECS says that
// nothing was made; after any other answer a disk may exist, and it stops.
func (c *controller) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := checkCreate(req); err != nil {
		return nil, err
	}
	class, err := c.parameters(req)
	if err != nil {
		return nil, err
	}
	want, err := size(req, class)
	if err != nil {
		return nil, err
	}
	from, err := c.source(ctx, req, class)
	if err != nil {
		return nil, err
	}
	sized, err := c.fitted(ctx, req.GetName(), from, want)
	if err != nil {
		return nil, err
	}
	o, err := c.zones(req, class, sized)
	if err != nil {
		return nil, err
	}
	from.into(&o, want)
	made, err := c.volumeOf(ctx, o)
	if err != nil {
		return nil, err
	}
	response := c.answer(o, made)
	response.Volume.ContentSource = req.GetVolumeContentSource()
	return response, nil
}

// volumeOf finds or makes the disk of an order, empty, from a snapshot or as a
// copy. What an earlier call has left elsewhere goes first.
func (c *controller) volumeOf(ctx context.Context, o order) (disk.Disk, error) {
	obtain := c.obtain
	if o.spec.CloneOf != "" {
		obtain = c.clone
	}
	made, err := obtain(ctx, o)
	if err == nil || !c.isStray(o, made) {
		return made, err
	}
	if err := c.clear(ctx, o, made); err != nil {
		return made, err
	}
	left := made.ID
	if made, err = obtain(ctx, o); err != nil && made.ID == left { // a read lags behind
		err = disk.Errorf(disk.Pending, "disk %s has just been deleted, and ECS still shows it", left)
	}
	return made, err
}

// obtain finds the disk of the name or makes it. A disk that is returned with
// an error has the name, and is not the one asked for.
func (c *controller) obtain(ctx context.Context, o order) (disk.Disk, error) {
	d, found, err := c.existing(ctx, o)
	if err == nil && !found {
		d, err = c.attempts(ctx, o)
	}
	if err != nil {
		return disk.Disk{}, err
	}
	return d, o.prove(d)
}

// checkCreate refuses what no parameter could make right.
func checkCreate(req *csi.CreateVolumeRequest) error {
	if err := disk.CheckName(req.GetName()); err != nil {
		return err
	}
	return checkCapabilities(req.GetVolumeCapabilities())
}

// parameters understands the class and holds the capabilities against it.
func (c *controller) parameters(req *csi.CreateVolumeRequest) (params.Class, error) {
	class, err := params.Parse(req.GetParameters(), req.GetMutableParameters(), c.config.Unknown)
	if err != nil {
		return class, err
	}
	for _, warning := range class.Warnings {
		klog.InfoS("A parameter does nothing", "volume", req.GetName(), "warning", warning)
	}
	if class.Region != "" && class.Region != c.config.Region {
		return class, disk.Errorf(disk.Invalid, "parameter regionId: %q is not allowed: this driver makes disks in %s only", class.Region, c.config.Region)
	}
	if err := disk.CheckRoom("diskTags", class.Tags, c.config.ExtraTags); err != nil {
		return class, err
	}
	return class, shareable(req.GetVolumeCapabilities(), class.MultiAttach)
}

// size is the capacity in GiB, with room for the file system.
func size(req *csi.CreateVolumeRequest, class params.Class) (disk.Wanted, error) {
	filesystem, err := filesystemOf(req.GetVolumeCapabilities(), class.Filesystem)
	if err != nil {
		return disk.Wanted{}, err
	}
	return class.Want(req.GetCapacityRange().GetRequiredBytes(), req.GetCapacityRange().GetLimitBytes(), filesystem)
}

// zones lays out what to try: the class's disk types in the zones allowed.
func (c *controller) zones(req *csi.CreateVolumeRequest, class params.Class, want disk.Wanted) (order, error) {
	o := order{class: class, want: want, spec: class.Spec(req.GetName(), c.config.ClusterID)}
	o.spec.Tags = o.spec.Tags.And(c.config.ExtraTags)
	fits, err := disk.Fits(class.Choices, want, o.spec)
	if err != nil {
		return o, err
	}
	if o.places, err = c.area().places(req.GetAccessibilityRequirements(), class.Zones); err != nil {
		return o, err
	}
	o.plan, err = disk.Plan(fits, disksPlaces(o.places))
	return o, err
}

// existing looks for the disk by its name if an earlier call may have made it,
// by whatever process, and the client token may not tell. While a used-up token's
// disk may still come into sight nothing else is done.
func (c *controller) existing(ctx context.Context, o order) (disk.Disk, bool, error) {
	name := o.spec.Name
	if isFirstCall(ctx) && !c.history.of(name).mayHaveDisk() {
		c.history.looked(name, time.Now(), false)
	}
	p := c.history.of(name)
	if !p.unsure && p.tokenTells() {
		return disk.Disk{}, false, nil
	}
	d, found, err := c.named(ctx, name)
	p = c.history.of(name)
	switch {
	case found:
		return d, true, nil
	case p.unseenSince.IsZero() && (err == nil || sightless(err)):
		return disk.Disk{}, false, nil // the same token will tell
	case err != nil:
		return disk.Disk{}, false, err
	case time.Since(p.unseenSince) < visibilityHorizon:
		return disk.Disk{}, false, notInSight(p)
	}
	c.history.keep(name, p.next())
	return disk.Disk{}, false, nil
}

// attempts makes one attempt after the other, all under one client token, until
// ECS makes a disk or answers anything but OutOfStock or Unfit. What is Unfit in
// one zone is in all. A token that is used up gives way to the next generation.
func (c *controller) attempts(ctx context.Context, o order) (disk.Disk, error) {
	name := o.spec.Name
	p := c.history.of(name)
	asking := false
	defer func() {
		if asking { // the call has panicked
			c.history.keep(name, p.doubted(time.Now()))
		}
	}()
	var refusals []error
	for left := o.plan; len(left) > 0; {
		try := left[0]
		asking = true
		d, err := c.disks.Create(ctx, o.spec, try, disk.NewToken(name, p.generation))
		asking = false
		switch kind := disk.KindOf(err); {
		case err == nil:
			return d, nil
		case kind == disk.OutOfStock || kind == disk.Unfit:
			refusals = append(refusals, fmt.Errorf("%s: %w", try, err))
			if left = left[1:]; kind == disk.Unfit {
				left = disk.Without(left, disk.Choice{Category: try.Category, Level: try.Level})
			} else {
				c.offers.refuse(try)
			}
			p.outOfStock = !p.mayHaveDisk()
			c.history.keep(name, p)
		case kind == disk.Mismatch || kind == disk.NotFound:
			d, found, err := c.usedUp(ctx, name, &p, err)
			if err != nil || found {
				return d, err
			}
		case mayHaveMade(kind):
			c.history.keep(name, p.doubted(time.Now()))
			return disk.Disk{}, fmt.Errorf("%s: %w", try, err)
		default:
			return disk.Disk{}, fmt.Errorf("%s: %w", try, err)
		}
	}
	if p.mayHaveDisk() {
		return c.unproven(ctx, name, p, noneLeft(o, refusals))
	}
	return disk.Disk{}, noneLeft(o, refusals)
}

// unproven decides what refusals for want of stock are worth if an earlier call
// may have made a disk: ECS may look at its stock before it looks at the token.
// Only a disk's absence for longer than it could stay out of sight proves that
// there is none.
func (c *controller) unproven(ctx context.Context, name string, p past, refused error) (disk.Disk, error) {
	d, found, err := c.named(ctx, name)
	if err != nil || found {
		return d, err
	}
	if left := visibilityHorizon - time.Since(p.unsureSince); left > 0 {
		return disk.Disk{}, disk.Errorf(disk.Pending, "an earlier call may have made a disk that ECS doesn't show yet; if it doesn't within %s, none was made (%w)", left.Round(time.Second), refused)
	}
	p.unsure, p.unsureSince, p.answered = false, time.Time{}, false
	c.history.keep(name, p)
	return disk.Disk{}, refused
}

// usedUp decides what to do about a token that has made a disk before, be it
// with other parameters or one that no read finds: take the disk of that name;
// if there is none, wait until it can't come into sight any more, then go on
// with the next token. If ECS was out of stock under the token just before,
// it has made nothing, and there is nothing to wait for.
func (c *controller) usedUp(ctx context.Context, name string, p *past, cause error) (disk.Disk, bool, error) {
	d, found, err := c.named(ctx, name)
	if err == nil && found {
		return d, true, nil
	}
	if p.outOfStock {
		if err == nil {
			*p = p.next()
			c.history.keep(name, *p)
		}
		return disk.Disk{}, false, err
	}
	*p = p.doubted(time.Now())
	if p.unseenSince.IsZero() {
		p.unseenSince = time.Now()
	}
	c.history.keep(name, *p)
	if err == nil {
		err = fmt.Errorf("%w (%w)", notInSight(*p), cause)
	}
	return disk.Disk{}, false, err
}

// notInSight is the answer while the disk of a used-up token may show up yet.
func notInSight(p past) error {
	return disk.Errorf(disk.Pending, "a disk was made for this volume before, and ECS doesn't show it; if it doesn't within %s, a new one is made",
		(visibilityHorizon - time.Since(p.unseenSince)).Round(time.Second))
}

// mayHaveMade says whether a failed create may have made a disk: not if ECS
// refused the request or never got it.
func mayHaveMade(kind disk.Kind) bool {
	switch kind {
	case disk.Invalid, disk.OutOfRange, disk.Denied, disk.Unauthenticated, disk.OutOfStock, disk.Unfit, disk.Quota, disk.Throttled, disk.Unreachable:
		return false
	default:
		return true
	}
}

// named returns the one disk that carries the volume's name. Failing to read
// is UnknownOutcome, whatever the reason: whoever asks knows that a disk may
// exist.
func (c *controller) named(ctx context.Context, name string) (disk.Disk, bool, error) {
	asked := time.Now()
	disks, err := c.disks.Named(ctx, name)
	if err == nil {
		c.history.looked(name, asked, len(disks) > 0)
	}
	switch {
	case err != nil:
		return disk.Disk{}, false, &disk.Error{Kind: disk.UnknownOutcome, Err: fmt.Errorf("a disk may exist for this volume, and looking for it failed: %w", err)}
	case len(disks) == 0:
		return disk.Disk{}, false, nil
	case len(disks) == 1:
		return disks[0], true, nil
	}
	var ids []string
	for _, d := range disks {
		ids = append(ids, string(d.ID))
	}
	return disk.Disk{}, false, disk.Errorf(disk.Mismatch, "%d disks carry the name of this volume: %s; delete those that hold no data", len(disks), strings.Join(ids, ", "))
}

// sightless says whether looking for a disk by name failed because the account
// may see none.
func sightless(err error) bool {
	var e *disk.Error
	return errors.As(err, &e) && disk.KindOf(e.Err) == disk.Denied
}

// noneLeft is the answer when every attempt was refused: each with what ECS said
// to it. Only if none failed for want of stock would no other zone help.
func noneLeft(o order, refusals []error) error {
	if slices.ContainsFunc(refusals, func(err error) bool { return disk.KindOf(err) == disk.OutOfStock }) {
		return &disk.Error{Kind: disk.OutOfStock, Err: fmt.Errorf("no zone and disk type allowed has a disk to give: %w", joined(refusals))}
	}
	return &disk.Error{Kind: disk.Unfit, Err: fmt.Errorf("no disk type of the class takes %s, in any zone: %w", o.spec.Settings(), joined(refusals))}
}

// joined puts errors into one line.
func joined(errs []error) error {
	words := make([]string, len(errs))
	for i, err := range errs {
		words[i] = err.Error()
	}
	return errors.New(strings.Join(words, "; "))
}

// prove makes sure that a disk is the one asked for: a token or a name can
// bring up one that is not.
func (o order) prove(d disk.Disk) error {
	err := o.spec.Matches(d)
	if err == nil {
		err = disk.Among(o.plan, o.want, d)
	}
	if err != nil {
		return fmt.Errorf("the volume has a disk already, which is not the one asked for: %w", err)
	}
	return nil
}

// answer says where the disk is and what it is.
func (c *controller) answer(o order, d disk.Disk) *csi.CreateVolumeResponse {
	c.history.answer(o.spec.Name)
	volume := kindOfDisk(d)
	volume[disk.OriginKey] = string(o.spec.Origin())
	if o.class.Filesystem != "" {
		volume[disk.FilesystemKey] = o.class.Filesystem
	}
	if o.class.MkfsOptions != "" {
		volume[disk.MkfsOptionsKey] = o.class.MkfsOptions
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
		AccessibleTopology: []*csi.Topology{c.area().topology(d, o.places, o.class.CategoryAffinity)},
	}}
}
