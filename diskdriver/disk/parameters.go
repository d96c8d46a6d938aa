package disk

import (
	"fmt"
	"slices"
)

// Parameters are the parameters of a StorageClass, as understood.
type Parameters struct {
	Choices          []Choice // in the order of preference
	Zones            []Zone   // parameter zoneId; empty: any
	Region           string   // parameter regionId; empty: the driver's
	Filesystem       string   // parameter fsType; empty: the capability says
	MkfsOptions      string
	XFSFeatures      XFSFeatures // empty: XFSLTS419
	Unchecked        bool        // parameter omitfsck: the node doesn't check a file system before it mounts it
	CategoryAffinity bool        // the PV's affinity names the category too
	AtLeast20        bool        // parameter volumeSizeAutoAvailable: raise a smaller claim to 20 GiB
	Encrypted        bool
	KMSKeyID         string
	MultiAttach      bool
	ProvisionedIOPS  int64
	Bursting         bool
	ResourceGroupID  string
	StorageClusterID string
	Tags             Tags // the user's
	SnapshotID       SnapshotID
	ClaimName        string   // the claim that the volume is for, if the provisioner says so
	ClaimNamespace   string   // and its namespace
	Warnings         []string // what was taken and does nothing, for the log

	categories  []Category
	levels      []Level
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
func Parse(class, mutable map[string]string, unknown Unknown) (Parameters, error) {
	p := Parameters{Tags: Tags{}}
	var err error
	if p.Warnings, err = take(&p, "parameter", class, classKeys, unknown); err != nil {
		return Parameters{}, err
	}
	change, warnings, err := parseChange(mutable, unknown)
	if err != nil {
		return Parameters{}, err
	}
	p.Warnings = append(p.Warnings, warnings...)
	p.overlay(change)
	if err := p.settle(); err != nil {
		return Parameters{}, err
	}
	return p, nil
}

// settle checks what one parameter demands of another and crosses categories
// with levels.
func (p *Parameters) settle() error {
	switch {
	case p.KMSKeyID != "" && !p.Encrypted:
		return Errorf(Invalid, `parameter kmsKeyId: %q needs parameter encrypted to be "true"`, p.KMSKeyID)
	case p.StorageClusterID != "" && len(p.levels) == 0:
		return Errorf(Invalid, "parameter storageClusterId: %q needs parameter performanceLevel", p.StorageClusterID)
	case p.Bursting && p.MultiAttach:
		return Errorf(Invalid, `parameter burstingEnabled: "true" is not allowed with multiAttach; allowed is "false"`)
	case len(p.Tags) > MostUserTags:
		return Errorf(Invalid, "parameter diskTags: %d tags; at most %d are allowed, for a disk has room for %d and the driver needs the rest",
			len(p.Tags), MostUserTags, MostTags)
	}
	if err := p.checkArchive(); err != nil {
		return err
	}
	if len(p.categories) == 0 {
		p.categories = defaultCategories
	}
	for _, c := range p.categories {
		if c != essd || len(p.levels) == 0 {
			p.Choices = append(p.Choices, Choice{Category: c})
			continue
		}
		for _, level := range p.levels {
			p.Choices = append(p.Choices, Choice{Category: c, Level: level})
		}
	}
	p.warnOfIdle(len(p.levels) > 0, "performanceLevel", func(t Traits) bool { return t.Levels != nil })
	p.warnOfIdle(p.ProvisionedIOPS > 0, "provisionedIops", func(t Traits) bool { return t.IOPS })
	p.warnOfIdle(p.Bursting, "burstingEnabled", func(t Traits) bool { return t.Bursting })
	return nil
}

// warnOfIdle says so if none of the class's types takes a parameter. The driver
// that topodisk replaces took such classes, so they stay good.
func (p *Parameters) warnOfIdle(given bool, name string, takes func(Traits) bool) {
	if given && !slices.ContainsFunc(p.categories, func(c Category) bool { return takes(categories[c]) }) {
		p.Warnings = append(p.Warnings, fmt.Sprintf("parameter %s does nothing: no disk type of the class takes it", name))
	}
}

// Want is Want with what the class says of sizes: volumeSizeAutoAvailable
// raises a smaller claim to 20 GiB, because the class asks for it.
func (p Parameters) Want(requiredBytes, limitBytes int64, filesystem string) (Wanted, error) {
	want, err := Want(requiredBytes, limitBytes, filesystem)
	if err != nil || !p.AtLeast20 || want.Least >= 20 {
		return want, err
	}
	if want.Most < 20 {
		return Wanted{}, Errorf(OutOfRange, "capacity_range: limit_bytes %d is below the 20 GiB that parameter volumeSizeAutoAvailable demands", limitBytes)
	}
	want.Least = 20
	return want, nil
}

// Spec returns the disk that the class asks for under a volume's name.
func (p Parameters) Spec(name, cluster string) Spec {
	tags := allTags(p.Tags, name, cluster, p.ClaimName, p.ClaimNamespace)
	tags.setCut(ArchiveTag, p.archiveTag())
	return Spec{
		Name:             name,
		Encrypted:        p.Encrypted,
		KMSKeyID:         p.KMSKeyID,
		MultiAttach:      p.MultiAttach,
		ProvisionedIOPS:  p.ProvisionedIOPS,
		Bursting:         p.Bursting,
		ResourceGroupID:  p.ResourceGroupID,
		StorageClusterID: p.StorageClusterID,
		Tags:             tags,
	}
}
