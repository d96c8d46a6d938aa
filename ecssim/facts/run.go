package facts

import (
	"context"
	"errors"
	"time"
)

// Limits bound a run.
type Limits struct {
	Budget *Budget
	Total  time.Duration // after it no fact is begun
	Fact   time.Duration // for one fact
	Quick  time.Duration // for a fact that is one call, which is refused
}

// DefaultLimits returns limits that all facts fit into.
func DefaultLimits() Limits {
	return Limits{
		Budget: &Budget{Disks: 100, AtATime: 4, Snapshots: 20, GiBMinutes: 6000},
		Total:  30 * time.Minute, Fact: 7 * time.Minute, Quick: 45 * time.Second,
	}
}

// Run asks the facts one after the other and removes what each has made; told
// is called with each result. When ctx ends, what is left is not asked. The
// error names what could not be removed.
func Run(ctx context.Context, c *Client, all []Fact, limits Limits, told func(Result)) (Report, error) {
	c.Limit = limits.Budget
	report := Report{Format: reportFormat, Run: c.Run, Endpoint: c.Endpoint, Region: c.Region, Zone: c.Zone, Instance: c.Instance,
		Started: time.Now().UTC(), BoundGiBMinutes: limits.Budget.GiBMinutes}
	ends := time.Now().Add(limits.Total)
	var left []string
	for _, f := range all {
		result := Result{Fact: f.Name(), Outcome: NotAsked}
		switch {
		case ctx.Err() != nil:
			result.Why = "interrupted"
		case time.Now().After(ends):
			result.Why = "the time of " + limits.Total.String() + " is over"
		default:
			if result.Why = c.lacks(f.Needs); result.Why == "" {
				result, left = c.askAndRemove(ctx, f, limits, left)
			}
		}
		report.Facts = append(report.Facts, result)
		told(result)
	}
	err := c.finish(context.WithoutCancel(ctx), left)
	report.Disks, report.Snapshots, report.GiBMinutes = limits.Budget.Used()
	report.Seconds = time.Since(report.Started).Seconds()
	return report, err
}

// lacks says what a fact needs that is not there.
func (c *Client) lacks(n Need) string {
	switch {
	case n == Simulator:
		return "only a simulator can be set up for it"
	case n == Instance && c.Instance == "":
		return "no instance is given"
	}
	return ""
}

// askAndRemove asks a fact and removes what it made, and what those before
// left.
func (c *Client) askAndRemove(ctx context.Context, f Fact, limits Limits, left []string) (Result, []string) {
	limit := limits.Fact
	if f.quick {
		limit = limits.Quick
	}
	own, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	result, made := Ask(own, f, c, nil)
	left = append(left, made...)
	if c.remove(context.WithoutCancel(ctx), left) == nil {
		return result, nil
	}
	return result, left
}

// remove gives the removal of what was made its time.
func (c *Client) remove(ctx context.Context, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, CleanUp)
	defer cancel()
	return c.Remove(ctx, ids)
}

// finish removes what is left, what it knows of and what carries the tag of
// the run.
func (c *Client) finish(ctx context.Context, left []string) error {
	err := c.remove(ctx, left)
	quiet := time.Duration(0)
	if c.Limit.Lost() {
		quiet = time.Minute // ECS may still be at it
	}
	ctx, cancel := context.WithTimeout(ctx, CleanUp+quiet)
	defer cancel()
	for ends := time.Now().Add(quiet); ; time.Sleep(time.Second) {
		_, swept := c.Sweep(ctx, c.Run)
		switch {
		case swept != nil && ctx.Err() != nil:
			return errors.Join(err, swept)
		case swept == nil && time.Now().After(ends):
			return err
		}
	}
}
