package disk

// Offers are the disks that can be had just now: by zone and category, in which
// sizes. The empty zone stands for regional disks. What is sold out is not in it.
type Offers map[Zone]map[Category]Range

// Sizes returns the smallest and the largest size of any disk that is to be had
// of the choices in the candidates, and whether there is one. A candidate without a
// zone is the whole region.
func (o Offers) Sizes(choices []Choice, candidates []ZoneCandidate, multiAttach bool) (Range, bool) {
	var all Range
	found := false
	for zone, offered := range o {
		for _, choice := range choices {
			sizes, ok := overlap(choice.Sizes(), offered[choice.Category])
			if !ok || !within(candidates, zone, choice.Category) || multiAttach && !categories[choice.Category].MultiAttach {
				continue
			}
			if !found {
				all, found = sizes, true
			}
			all = Range{min(all.Least, sizes.Least), max(all.Most, sizes.Most)}
		}
	}
	return all, found
}

// within says whether a disk of a zone can be reached from one of the candidates,
// whose nodes take its category. A regional disk can from everywhere.
func within(candidates []ZoneCandidate, zone Zone, c Category) bool {
	for _, p := range candidates {
		if (zone == "" || p.Zone == "" || p.Zone == zone) && p.takes(c) {
			return true
		}
	}
	return false
}

// overlap returns what two ranges have in common.
func overlap(a, b Range) (Range, bool) {
	both := Range{max(a.Least, b.Least), min(a.Most, b.Most)}
	return both, both.Least <= both.Most && both.Most > 0
}
