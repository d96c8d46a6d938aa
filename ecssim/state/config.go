package state

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/topodisk/topodisk/ecssim/config"
)

var (
	regionForm   = regexp.MustCompile(`^[a-z]{2}(-[a-z0-9]+)+$`)
	instanceForm = regexp.MustCompile(`^i-[a-z0-9]+$`)
)

// Check refuses what no region can be made from. The error is a *config.Error.
func (c Config) Check() error {
	for _, check := range []func() error{c.checkPlaces, c.checkOffers, c.checkTypes, c.checkInstances} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c Config) checkPlaces() error {
	if !regionForm.MatchString(c.Region) {
		return config.Invalid("Region", c.Region, "the ID of one region, such as cn-hangzhou")
	}
	if len(c.Zones) == 0 {
		return config.Invalid("Zones", "", "one zone ID or more, such as "+c.Region+"-h")
	}
	for i, z := range c.Zones {
		if !strings.HasPrefix(z, c.Region) || len(z) == len(c.Region) {
			return config.Invalid("Zones", z, "a zone ID of region "+c.Region+", such as "+c.Region+"-h")
		}
		if slices.Contains(c.Zones[:i], z) {
			return config.Invalid("Zones", z, "each zone once")
		}
	}
	return nil
}

func (c Config) checkOffers() error {
	for _, zone := range slices.Sorted(maps.Keys(c.Offers)) {
		if zone != "" && !slices.Contains(c.Zones, zone) {
			return config.Invalid("Offers", zone, "a zone of "+config.List(c.Zones)+`, or "" for the region`)
		}
		for _, name := range c.Offers[zone] {
			if spec, ok := Categories[name]; !ok || spec.Regional != (zone == "") {
				return config.Invalid("Offers", name, "a category of "+config.List(CategoryNames(zone == "")))
			}
		}
	}
	if c.SoldOutCode != "" && !slices.Contains(SoldOutCodes, c.SoldOutCode) {
		return config.Invalid("SoldOutCode", c.SoldOutCode, config.OneOf(SoldOutCodes))
	}
	return nil
}

func (c Config) checkInstances() error {
	seen, known := map[string]bool{}, c.types()
	for _, i := range c.Instances {
		switch {
		case !instanceForm.MatchString(i.ID):
			return config.Invalid("Instances", i.ID, "an instance ID of the form i- and then letters and digits")
		case seen[i.ID]:
			return config.Invalid("Instances", i.ID, "each instance once")
		case !slices.Contains(c.Zones, i.Zone):
			return config.Invalid("Instances", i.Zone, "a zone of "+config.List(c.Zones))
		case i.Status != "" && !slices.Contains(InstanceStates, i.Status):
			return config.Invalid("Instances", i.Status, "a status of "+config.List(InstanceStates))
		}
		seen[i.ID] = true
		if err := checkKnown(i.Type, known); err != nil {
			return err
		}
	}
	return nil
}

// checkTypes checks the types that are declared.
func (c Config) checkTypes() error {
	seen := map[string]bool{}
	for _, t := range c.InstanceTypes {
		if err := t.check(); err != nil {
			return err
		}
		if seen[t.ID] {
			return config.Invalid("InstanceTypes", t.ID, "each type once")
		}
		seen[t.ID] = true
	}
	return nil
}

// types returns the types that instances may have, by ID.
func (c Config) types() map[string]InstanceType {
	known := map[string]InstanceType{}
	for _, t := range slices.Concat(InstanceTypes(), c.InstanceTypes) {
		known[t.ID] = t
	}
	return known
}
