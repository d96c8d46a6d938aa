// Package params translates the parameters of StorageClasses,
// VolumeAttributesClasses, VolumeSnapshotClasses and VolumeGroupSnapshotClasses
// into the properties of a disk or snapshot. Whatever it refuses is Invalid, and
// names the parameter, its value and what is allowed.
package params

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// Class is the parameters of a StorageClass, as understood.
type Class struct {
	Choices          []disk.Choice // in the order of preference
	Zones            []disk.Zone   // parameter zoneId; empty: any
	Region           string        // parameter regionId; empty: the driver's
	Filesystem       string        // parameter fsType; empty: the capability says
	MkfsOptions      string
	XFSFeatures      disk.XFSFeatures // empty: XFSLTS419
	Unchecked        bool             // parameter omitfsck: the node doesn't check a file system before it mounts it
	CategoryAffinity bool             // the PV's affinity names the category too
	AtLeast20        bool             // parameter volumeSizeAutoAvailable: raise a smaller claim to 20 GiB
	Disk             disk.Spec        // without a name, and with the user's tags alone
	SnapshotID       disk.SnapshotID
	ClaimName        string   // the claim that the volume is for, if the provisioner says so
	ClaimNamespace   string   // and its namespace
	Warnings         []string // what was taken and does nothing, for the log

	categories  []disk.Category
	levels      []disk.Level
	archive     *bool // parameter archiveOnDelete
	archiveDays int64 // 0: without an end
}

// Unknown says what to do with a parameter whose name is not known.
type Unknown string

// The ways to treat an unknown parameter.
const (
	Refuse Unknown = "refuse"
	Warn   Unknown = "warn"
)

// Parse understands the parameters of a StorageClass and, over them, those of
// a VolumeAttributesClass. An empty value is the same as none. A bad value, a
// feature that the driver doesn't have and, unless they are only to be warned
// of, an unknown name are Invalid; the error names the parameter, its value
// and what is allowed.
func Parse(class, mutable map[string]string, unknown Unknown) (Class, error) {
	p := Class{Disk: disk.Spec{Tags: disk.Tags{}}}
	var err error
	if p.Warnings, err = take(&p, "parameter", class, classKeys, unknown); err != nil {
		return Class{}, err
	}
	change, warnings, err := parseChange(mutable, unknown)
	if err != nil {
		return Class{}, err
	}
	p.Warnings = append(p.Warnings, warnings...)
	p.overlay(change)
	if err := p.settle(); err != nil {
		return Class{}, err
	}
	return p, nil
}

// settle checks what one parameter demands of another and crosses categories
// with levels.
func (p *Class) settle() error {
	switch {
	case p.Disk.KMSKeyID != "" && !p.Disk.Encrypted:
		return disk.Errorf(disk.Invalid, `parameter kmsKeyId: %q needs parameter encrypted to be "true"`, p.Disk.KMSKeyID)
	case p.Disk.StorageClusterID != "" && len(p.levels) == 0:
		return disk.Errorf(disk.Invalid, "parameter storageClusterId: %q needs parameter performanceLevel", p.Disk.StorageClusterID)
	case p.Disk.Bursting && p.Disk.MultiAttach:
		return disk.Errorf(disk.Invalid, `parameter burstingEnabled: "true" is not allowed with multiAttach; allowed is "false"`)
	}
	if err := disk.CheckRoom("diskTags", p.Disk.Tags, nil); err != nil {
		return err
	}
	if p.archiveDays > 0 && p.archive != nil && !*p.archive { // a lifetime for what is not wanted
		return disk.Errorf(disk.Invalid, `parameter volumeDeleteSnapshotRetentionDays: "%d" contradicts archiveOnDelete "false"`, p.archiveDays)
	}
	if len(p.categories) == 0 {
		p.categories = disk.DefaultCategories()
	}
	for _, c := range p.categories {
		if c != disk.ESSD || len(p.levels) == 0 {
			p.Choices = append(p.Choices, disk.Choice{Category: c})
			continue
		}
		for _, level := range p.levels {
			p.Choices = append(p.Choices, disk.Choice{Category: c, Level: level})
		}
	}
	p.warnOfIdle(len(p.levels) > 0, "performanceLevel", func(t disk.Traits) bool { return t.Levels != nil })
	p.warnOfIdle(p.Disk.ProvisionedIOPS > 0, "provisionedIops", func(t disk.Traits) bool { return t.IOPS })
	p.warnOfIdle(p.Disk.Bursting, "burstingEnabled", func(t disk.Traits) bool { return t.Bursting })
	return nil
}

// warnOfIdle says so if none of the class's types takes a parameter. The driver
// that topodisk replaces took such classes, so they stay good.
func (p *Class) warnOfIdle(given bool, name string, takes func(disk.Traits) bool) {
	if given && !slices.ContainsFunc(p.categories, func(c disk.Category) bool {
		traits, _ := c.Traits()
		return takes(traits)
	}) {
		p.Warnings = append(p.Warnings, fmt.Sprintf("parameter %s does nothing: no disk type of the class takes it", name))
	}
}

// Want is Want with what the class says of sizes: volumeSizeAutoAvailable
// raises a smaller claim to 20 GiB, because the class asks for it.
func (p Class) Want(requiredBytes, limitBytes int64, filesystem string) (disk.Wanted, error) {
	want, err := disk.Want(requiredBytes, limitBytes, filesystem)
	if err != nil || !p.AtLeast20 || want.Least >= 20 {
		return want, err
	}
	if want.Most < 20 {
		return disk.Wanted{}, disk.Errorf(disk.OutOfRange, "capacity_range: limit_bytes %d is below the 20 GiB that parameter volumeSizeAutoAvailable demands", limitBytes)
	}
	want.Least = 20
	return want, nil
}

// Spec returns the disk that the class asks for under a volume's name.
func (p Class) Spec(name, cluster string) disk.Spec {
	spec := p.Disk
	spec.Name = name
	spec.Tags = disk.VolumeTags(p.Disk.Tags, name, cluster, p.ClaimName, p.ClaimNamespace)
	spec.Tags.SetCut(disk.ArchiveTag, p.archiveTag())
	return spec
}

// archiveTag is what a disk of the class says of its archive; empty for none.
// It is kept on the disk, for a deletion has no parameters and the class may be
// gone by then.
func (p *Class) archiveTag() string {
	switch {
	case p.archiveDays > 0:
		return strconv.FormatInt(p.archiveDays, 10)
	case p.archive != nil && *p.archive:
		return disk.ArchiveForever
	}
	return ""
}

// MkfsOptionsFor understands parameter mkfsOptions for the file system of a volume; what is wrong is Invalid. For a volume without a
// file system, options are right that some file system takes: its class may be for other volumes, too.
func (p Class) MkfsOptionsFor(filesystem string, allowed disk.AllowedOptions) (options disk.MkfsOptions, err error) {
	filesystems := []string{filesystem}
	if filesystem == "" {
		filesystems = []string{"ext4", "ext3", "xfs"}
	}
	for i, of := range filesystems {
		o, refused := disk.ParseMkfsOptions(of, p.MkfsOptions, allowed)
		if refused == nil {
			return o, nil
		}
		if i == 0 {
			err = disk.Errorf(disk.Invalid, "parameter mkfsOptions: %w", refused)
		}
	}
	return options, err
}
