package disk

import (
	"fmt"
	"slices"
)

// Matches says whether an existing disk is the one asked for, and names the
// first difference if it is not. What the request leaves to ECS doesn't count:
// an encryption that the account forces, a KMS key, resource group or storage
// cluster that ECS fills in. Tags don't count either: people edit them.
func (s Spec) Matches(d Disk) error {
	traits := categories[d.Category]
	switch {
	case s.Encrypted && !d.Encrypted:
		return differs(d, "encrypted", false, true)
	case s.KMSKeyID != "" && s.KMSKeyID != d.KMSKeyID:
		return differs(d, "KMS key", d.KMSKeyID, s.KMSKeyID)
	case s.MultiAttach != d.MultiAttach:
		return differs(d, "multi-attach", d.MultiAttach, s.MultiAttach)
	case traits.IOPS && s.ProvisionedIOPS != d.ProvisionedIOPS:
		return differs(d, "provisioned IOPS", d.ProvisionedIOPS, s.ProvisionedIOPS)
	case traits.Bursting && s.Bursting != d.Bursting:
		return differs(d, "bursting", d.Bursting, s.Bursting)
	case s.ResourceGroupID != "" && s.ResourceGroupID != d.ResourceGroupID:
		return differs(d, "resource group", d.ResourceGroupID, s.ResourceGroupID)
	case s.StorageClusterID != "" && s.StorageClusterID != d.StorageClusterID:
		return differs(d, "storage cluster", d.StorageClusterID, s.StorageClusterID)
	case s.SnapshotID != d.SnapshotID:
		return differs(d, "source snapshot", d.SnapshotID, s.SnapshotID)
	}
	return nil
}

// Allows says whether an existing disk is of a kind and size that the request
// allows, and names the first difference if it is not.
func Allows(choices []Choice, want Wanted, d Disk) error {
	same := func(c Choice) bool {
		return c.Category == d.Category && c.level() == Choice{d.Category, d.PerformanceLevel}.level()
	}
	if !slices.ContainsFunc(choices, same) {
		return differs(d, "type", Choice{d.Category, d.PerformanceLevel}, list(choices))
	}
	if !want.Holds(d.Size) {
		return differs(d, "size", fmt.Sprintf("%d GiB", d.Size), want)
	}
	return nil
}

// Reaches says whether an existing disk is where it may be, and names its
// zone if it is not. A regional disk is everywhere.
func Reaches(places []Place, d Disk) error {
	if d.Category.Regional() && d.Zone == "" {
		return nil
	}
	var zones []Zone
	for _, p := range places {
		zones = append(zones, p.Zone)
	}
	if !slices.Contains(zones, d.Zone) {
		return differs(d, "zone", d.Zone, list(zones))
	}
	return nil
}

// differs is the error of a disk that is not the one asked for.
func differs(d Disk, what string, has, wanted any) error {
	return &Error{Disk: d.ID, Kind: Mismatch, Err: fmt.Errorf("the disk of this name has %s %v; asked for is %v", what, has, wanted)}
}
