package disk

import (
	"fmt"
	"slices"
	"strings"
)

// Fits returns the choices that can serve the request, in order, each as an attempt with its
// size and without a zone. A choice whose limits the size or a setting of the spec breaks is left
// out. If none is left the error names every choice and its limits: OutOfRange
// if a size would help, else Invalid.
func Fits(choices []Choice, want Wanted, spec Spec) ([]Attempt, error) {
	var fits []Attempt
	var refused []string
	kind := Invalid
	for _, c := range choices {
		size, ok := want.within(c.Sizes())
		if ok && want.Least == 0 {
			size = c.sufficient(size, want.Most, spec)
		}
		slow := c.takes(size, spec)
		switch {
		case spec.MultiAttach && !categories[c.Category].MultiAttach:
			refused = append(refused, fmt.Sprintf("%s can't be attached to several nodes", c))
		case !ok:
			kind = OutOfRange
			refused = append(refused, fmt.Sprintf("%s takes %s", c, c.Sizes()))
		case slow != nil:
			kind = OutOfRange
			refused = append(refused, slow.Error())
		default:
			fits = append(fits, Attempt{Category: c.Category, Level: c.Level, Size: size})
		}
	}
	if len(fits) == 0 {
		return nil, Errorf(kind, "no disk type of the class can serve %s: %s", want, strings.Join(refused, "; "))
	}
	return fits, nil
}

// MoreFrom returns the smallest size from which more of the choices can serve a request than can serve this one; 0: there is none.
func MoreFrom(choices []Choice, want Wanted, spec Spec) (from GiB) {
	want.Most = anySize
	for _, c := range choices {
		sizes := c.Sizes()
		if size, fits := want.within(sizes); fits && c.takes(size, spec) == nil || spec.MultiAttach && !categories[c.Category].MultiAttach {
			continue
		}
		size := c.sufficient(max(sizes.Least, want.Least+1), sizes.Most, spec)
		if size <= sizes.Most && c.takes(size, spec) == nil && (from == 0 || size < from) {
			from = size
		}
	}
	return from
}

// takes says whether a disk of the size can have the performance that the spec
// asks for.
func (c Choice) takes(size GiB, spec Spec) error {
	traits := categories[c.Category]
	if most := mostIOPS(size); traits.IOPS && spec.ProvisionedIOPS > most {
		return fmt.Errorf("parameter provisionedIops: %d is not allowed for %s of %d GiB; allowed are 0 to %d", spec.ProvisionedIOPS, c, size, most)
	}
	if traits.Bursting && spec.Bursting && size < LeastToBurst {
		return fmt.Errorf(`parameter burstingEnabled: "true" is not allowed for %s of %d GiB; it takes %d`, c, size, LeastToBurst)
	}
	return nil
}

// allTakenFrom is a size that can have all the performance that any size can.
const allTakenFrom GiB = 100

// sufficient returns the smallest size from least to most that can have the
// performance that the spec asks for. If none can it is one that can have the
// most.
func (c Choice) sufficient(least, most GiB, spec Spec) GiB {
	size := least
	for most = min(most, allTakenFrom); size < most && c.takes(size, spec) != nil; {
		size++
	}
	return size
}

// ZoneCandidate is a zone where the disk may live, and what the nodes there take.
type ZoneCandidate struct {
	Zone  Zone       // empty: no zone is known, which does for regional disks
	Takes []Category // nil: not known, so no constraint
	Keys  []string   // of the topology, under which the zone is named
}

// takes says whether the nodes of the candidate can attach the category.
func (p ZoneCandidate) takes(c Category) bool { return p.Takes == nil || slices.Contains(p.Takes, c) }

// Plan returns the attempts in their order: zone by zone as the candidates come,
// within a zone the fits in their order. A regional disk is tried once, where
// it comes up first. If the nodes take none of the fits the error is
// OutOfStock, for other nodes may; if there is no zone it is Invalid.
func Plan(fits []Attempt, candidates []ZoneCandidate) ([]Attempt, error) {
	var plan []Attempt
	var refused []string
	for _, candidate := range candidates {
		for _, try := range fits {
			if !try.Category.Regional() {
				try.Zone = candidate.Zone
			}
			switch {
			case try.Zone == "" && !try.Category.Regional(): // it needs one
			case !candidate.takes(try.Category):
				refused = append(refused, fmt.Sprintf("%s in zone %s", try.Category, candidate.Zone))
			case !slices.Contains(plan, try):
				plan = append(plan, try)
			}
		}
	}
	switch {
	case len(plan) > 0:
		return plan, nil
	case len(refused) > 0:
		return nil, Errorf(OutOfStock, "the node takes none of the disk types: %s (its labels %s* say what it takes)", strings.Join(refused, ", "), NodeTypeLabel)
	}
	return nil, Errorf(Invalid, "no zone is given: neither accessibility_requirements nor parameter zoneId names one")
}

// String returns the attempt in words: cloud_essd PL1 of 20 GiB in cn-hangzhou-h.
func (a Attempt) String() string {
	return fmt.Sprintf("%s of %d GiB in %s", Choice{a.Category, a.Level}, a.Size, a.Zone.words())
}

// words returns the zone for an error message.
func (z Zone) words() string {
	if z == "" {
		return "the whole region"
	}
	return string(z)
}
