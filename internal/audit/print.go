package audit

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/topodisk/topodisk/internal/escape"
)

// Print writes the report as text: what was compared, a line for each finding, other clusters, and what was not checked. now is for ages.
func (r *Report) Print(out io.Writer, now time.Time) error {
	shown := *r
	shown.Currency = escape.Text(r.Currency)
	r, out = &shown, escape.NewWriter(out)
	fmt.Fprintln(out, escape.Text(r.summary()))
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	if len(r.Findings) > 0 {
		fmt.Fprintln(table, strings.Join(r.header(), "\t"))
	}
	for _, f := range r.Findings {
		cells := r.cells(f, now)
		for i := range cells {
			cells[i] = escape.Text(cells[i])
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	r.printTotals(out)
	r.printOthers(out)
	r.printTagCommands(out)
	for _, u := range r.Unread {
		fmt.Fprintf(out, "not read: %s: %s%s\n", escape.Text(u.What), escape.Text(u.Reason), notChecked(u.Kinds))
	}
	if len(r.Findings) == 0 && len(r.Unread) == 0 {
		fmt.Fprintln(out, "every disk has its PersistentVolume, every PersistentVolume its disk, and nothing is under way")
	}
	if !r.Confirmed && !r.Clean() {
		fmt.Fprintln(out, "not confirmed: what is just being made or deleted may be among the findings")
	}
	return nil
}

// printTagCommands says whether all has the tag of its owner, and how it gets it.
func (r *Report) printTagCommands(out io.Writer) {
	switch {
	case r.Checked(WithoutOwner) && r.Checked(SnapshotWithoutContent) && r.Count(WithoutOwner) == 0 && r.Volumes > 0:
		fmt.Fprintf(out, "every disk of a PersistentVolume and every snapshot of a VolumeSnapshotContent has the tag %s\n", ownerTag)
	case len(r.TagCommands) > 0:
		fmt.Fprintf(out, "what belongs to this cluster and has no tag %s gets it by (a disk that has all the tags that ECS allows needs one removed first):\n", ownerTag)
		for _, command := range r.TagCommands {
			fmt.Fprintln(out, "  "+command.String())
		}
	}
}

// summary says what was compared.
func (r *Report) summary() string {
	if !r.Checked(DiskWithoutVolume) {
		return fmt.Sprintf("%d PersistentVolumes", r.Volumes)
	}
	return fmt.Sprintf("cluster %s: %d disks, %d snapshots, %d PersistentVolumes; %d disks are of no cluster or have no volume name and are not judged",
		strings.Join(r.Clusters, ", "), r.Disks, r.Snapshots, r.Volumes, r.Unnamed)
}

func notChecked(kinds []Kind) string {
	var words []string
	for _, k := range kinds {
		words = append(words, k.Text())
	}
	if words == nil {
		return ""
	}
	return "; not checked: " + strings.Join(words, ", ")
}

func (r *Report) header() []string {
	all := []string{"FINDING", "ID", "TYPE", "ZONE", "SIZE", "AGE"}
	if r.Currency != "" {
		all = append(all, r.Currency+"/MONTH")
	}
	return append(all, "ABOUT")
}

func (r *Report) cells(f Finding, now time.Time) []string {
	all := []string{f.Kind.Text(), f.ID, cmp.Or(strings.TrimSpace(f.Type+" "+f.Level), "-"), cmp.Or(f.Zone, "-"), size(f.GiB), Age(f.Created, now)}
	if r.Currency != "" {
		all = append(all, f.cost())
	}
	return append(all, f.About)
}

// cost returns what a finding costs. ECS bills the blocks that a snapshot holds, which are at most those of its disk.
func (f Finding) cost() string {
	switch {
	case f.CostPerMonth == nil:
		return "-"
	case f.Kind.isSnapshot():
		return fmt.Sprintf("<=%.2f", *f.CostPerMonth)
	}
	return fmt.Sprintf("%.2f", *f.CostPerMonth)
}

// isSnapshot says whether findings of the kind are snapshots.
func (k Kind) isSnapshot() bool {
	return k == SnapshotWithoutContent || k == LeftoverCopy || k == Archive
}

func size(gib int64) string {
	if gib == 0 {
		return "-"
	}
	return fmt.Sprintf("%d GiB", gib)
}

// Age returns how long ago something was, in one unit, such as 90s, 15m, 26h or 3d; "-" if that is not known.
func Age(then, now time.Time) string {
	d := now.Sub(then)
	switch {
	case then.IsZero():
		return "-"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// printTotals writes a line for each kind of disks and snapshots that cost something.
func (r *Report) printTotals(out io.Writer) {
	for _, kind := range []Kind{DiskWithoutVolume, SnapshotWithoutContent, LeftoverCopy, KeptVolume, Archive} {
		count, gib, cost, unpriced := 0, int64(0), 0.0, 0
		for _, f := range r.Findings {
			switch {
			case f.Kind != kind:
				continue
			case f.CostPerMonth == nil:
				unpriced++
			default:
				cost += *f.CostPerMonth
			}
			count, gib = count+1, gib+f.GiB
		}
		if count == 0 {
			continue
		}
		fmt.Fprintf(out, "%s: %d, %d GiB", kind.Text(), count, gib)
		if r.Currency != "" {
			most := ""
			if kind.isSnapshot() {
				most = "at most "
			}
			fmt.Fprintf(out, ", %s%.2f %s a month", most, cost, r.Currency)
			if unpriced > 0 {
				fmt.Fprintf(out, " (%d without a price)", unpriced)
			}
		}
		fmt.Fprintln(out)
	}
}

func (r *Report) printOthers(out io.Writer) {
	for _, o := range r.Others {
		fmt.Fprintf(out, "tagged with cluster %s, which may be alive elsewhere: %d disks, %d GiB, %d snapshots", escape.Text(o.Cluster), o.Disks, o.GiB, o.Snapshots)
		if o.CostPerMonth != nil {
			fmt.Fprintf(out, ", %.2f %s a month for the disks", *o.CostPerMonth, r.Currency)
		}
		fmt.Fprintln(out)
	}
}
