package topology

// maxViews bounds the views of an Index. A cluster has a few sets of driver
// keys and a few classes that describe nodes by label; beyond the bound the
// view that was not used for longest is made anew when it is next asked for.
const maxViews = 256

// view is the set of terms, in given keys, of the nodes that satisfy one of
// some conditions. It counts how many nodes carry each term and is kept by
// events, so reading it costs the same for ten nodes and for ten thousand.
type view struct {
	keys    []string
	match   []allowedTerm // empty: all nodes
	tallies map[string]*tally
	sorted  []term // what tallies say, unless stale
	stale   bool
	used    uint64 // the Index's clock at the last use
}

type tally struct {
	term  term
	nodes int
}

// count adds the node to the view (+1) or takes it out (-1).
func (v *view) count(n *node, by int) {
	if !n.ready() || len(v.match) > 0 && !matchesAny(v.match, n) {
		return
	}
	t, ok := n.project(v.keys)
	if !ok {
		return
	}
	found := v.tallies[t.spelling]
	if found == nil {
		found = &tally{term: t}
		v.tallies[t.spelling] = found
		v.stale = true
	}
	found.nodes += by
	if found.nodes == 0 {
		delete(v.tallies, t.spelling)
		v.stale = true
	}
}

// terms returns the view's terms in order, one for each identity. The caller
// must not change the slice.
func (v *view) terms() []term {
	if v.stale {
		all := make([]term, 0, len(v.tallies))
		for _, t := range v.tallies {
			all = append(all, t.term)
		}
		v.sorted, v.stale = merge(all), false
	}
	return v.sorted
}
