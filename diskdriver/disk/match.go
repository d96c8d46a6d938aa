package disk

import (
	"cmp"
	"fmt"
	"slices"
)

// Matches says whether an existing disk is the one asked for, and names the
// first difference if it is not. What the request leaves to ECS doesn't count:
// an encryption that the account forces, a KMS key, resource group or storage
// cluster that ECS fills in. Tags don't count either, for people edit them, but
// for the one that says of which disk it is a copy.
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
	case s.CloneOf != ID(d.Tags[CloneTag]):
		return differs(d, "source volume", d.Tags[CloneTag], s.CloneOf)
	case s.CloneOf == "" && s.SnapshotID != d.SnapshotID:
		return differs(d, "source snapshot", d.SnapshotID, s.SnapshotID)
	}
	return nil
}

// Among says whether an existing disk is one that the plan could have made, of
// a size that serves the request, and names the first difference if it is not:
// its zone, its type or its size.
func Among(plan []Attempt, want Wanted, d Disk) error {
	var zones []string
	var choices []Choice
	for _, try := range plan {
		if where := try.Zone.words(); !slices.Contains(zones, where) {
			zones = append(zones, where)
		}
		if try.Zone == d.Zone {
			choices = append(choices, Choice{try.Category, try.Level})
		}
	}
	if len(choices) == 0 {
		return differs(d, "zone", d.Zone.words(), List(zones))
	}
	if err := OneOf(choices, d); err != nil {
		return err
	}
	if !want.Holds(d.Size) {
		return differs(d, "size", fmt.Sprintf("%d GiB", d.Size), want)
	}
	return nil
}

// OneOf says whether an existing disk is one of the choices. A level that is
// not named is PL1, which ECS fills in.
func OneOf(choices []Choice, d Disk) error {
	is := Choice{d.Category, d.PerformanceLevel}
	same := func(c Choice) bool { return c.Category == is.Category && c.level() == is.level() }
	if !slices.ContainsFunc(choices, same) {
		return differs(d, "type", is, List(choices))
	}
	return nil
}

// differs is the error of a disk that is not the one asked for.
func differs(d Disk, what string, has, wanted any) error {
	word := func(value any) string { return cmp.Or(fmt.Sprint(value), "none") }
	return &Error{Disk: d.ID, Kind: Mismatch, Err: fmt.Errorf("the disk has %s %s; asked for is %s", what, word(has), word(wanted))}
}
