package audit

import (
	"context"
	"slices"
	"time"
)

// Lag bounds how late a read of ECS shows what has changed.
const Lag = time.Minute

// Source is where an audit reads.
type Source interface {
	// Listing reads ECS.
	Listing(ctx context.Context) (Listing, error)
	// Cluster reads the API server, nothing of it from a cache: the requests and claims first, then everything else.
	Cluster(ctx context.Context) (Cluster, error)
}

// Run reads and compares. If there are findings that need an action it pauses, and reads and compares again: only those that are found
// twice remain, and the report says so. A pause of less than Lag doesn't suffice for that. The error is a Source's, or Compare's.
func Run(ctx context.Context, source Source, o Options, pause func(ctx context.Context, found int) error) (*Report, error) {
	first, err := readAndCompare(ctx, source, o)
	if err != nil {
		return nil, err
	}
	first.Confirmed = true
	if first.Clean() {
		return first, nil
	}
	if err := pause(ctx, first.Count()); err != nil {
		return nil, err
	}
	second, err := readAndCompare(ctx, source, o)
	if err != nil {
		return nil, err
	}
	return Confirm(first, second), nil
}

// readAndCompare reads ECS and then the cluster, and compares them.
func readAndCompare(ctx context.Context, source Source, o Options) (*Report, error) {
	listing, err := source.Listing(ctx)
	if err != nil {
		return nil, err
	}
	cluster, err := source.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	return Compare(listing, cluster, o)
}

// Confirm returns the second of two reports without those findings that need an action and that the first doesn't have.
func Confirm(first, second *Report) *Report {
	confirmed := *second
	confirmed.Findings = slices.DeleteFunc(slices.Clone(second.Findings), func(f Finding) bool {
		return f.Kind.NeedsAction() && !slices.ContainsFunc(first.Findings, f.isSame)
	})
	for _, u := range first.Unread {
		if !slices.ContainsFunc(confirmed.Unread, func(o Unread) bool { return o.What == u.What }) {
			confirmed.Unread = append(slices.Clone(confirmed.Unread), u)
		}
	}
	confirmed.Confirmed = true
	return &confirmed
}

// isSame says whether another comparison has found the same.
func (f Finding) isSame(o Finding) bool {
	return f.Kind == o.Kind && f.ID == o.ID && f.since == o.since
}
