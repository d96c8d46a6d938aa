package admin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/topodisk/topodisk/ecssim"
)

// summaryView is the state in numbers.
type summaryView struct {
	Disks, Made, Deleted    int
	ByStatus                []statusCount
	Calls, Refused          int
	Throttled               int
	MostAtOnce, Connections int
	Latency, Queues, Broken string
	Unchecked               bool
}

type statusCount struct {
	Name  string
	Count int
}

func summaryOf(o ecssim.Overview) summaryView {
	v := summaryView{
		Disks: o.DisksMade - o.DisksDeleted, Made: o.DisksMade, Deleted: o.DisksDeleted, MostAtOnce: o.MostAtOnce, Connections: o.Connections,
		Latency: o.LatencyProfile, Queues: queueName(o.Queues) + " queues", Broken: o.Broken, Unchecked: o.Unchecked,
	}
	for _, name := range slices.Sorted(maps.Keys(o.DisksByStatus)) {
		v.ByStatus = append(v.ByStatus, statusCount{name, o.DisksByStatus[name]})
	}
	for _, codes := range o.Counts {
		for code, n := range codes {
			v.Calls += n
			if code != "" {
				v.Refused += n
			}
			if strings.HasPrefix(code, "Throttling") || slices.Contains(ecssim.ThrottleCodes, code) {
				v.Throttled += n
			}
		}
	}
	return v
}

// queueName is the name of the profile that queues are of, or their numbers.
func queueName(q ecssim.Queues) string {
	for _, name := range ecssim.QueueProfiles {
		if p, err := ecssim.QueueProfile(name); err == nil && p == q {
			return name
		}
	}
	return fmt.Sprintf("%d and %d", q.Attach, q.Detach)
}

type instancesView struct {
	Queues string
	Rows   []instanceRow
	Hidden int
}

type instanceRow struct {
	ecssim.InstanceState
	Used  int // of DiskLimit, its system disk included
	Power action
}

func instancesOf(o ecssim.Overview) instancesView {
	v := instancesView{Queues: "Each attaches or detaches one disk at a time.", Hidden: o.Instances.Hidden()}
	if o.Queues != ecssim.Serial {
		v.Queues = fmt.Sprintf("Each attaches %d and detaches %d disks at a time.", o.Queues.Attach, o.Queues.Detach)
	}
	for _, i := range o.Instances.Rows {
		v.Rows = append(v.Rows, instanceRow{i, len(i.Disks) + 1, powerButton(i)})
	}
	return v
}

type changesView struct {
	Rows    []ecssim.PendingChange
	Hidden  int
	Stuck   int
	Unstick action
}

func changesOf(o ecssim.Overview) changesView {
	return changesView{o.Changes.Rows, o.Changes.Hidden(), o.Stuck, unstickButton()}
}

// listView is a list of the page as it is.
type listView[T any] struct {
	Rows   []T
	Hidden int
}

func disksOf(o ecssim.Overview) listView[ecssim.DiskOverview] {
	return listView[ecssim.DiskOverview]{o.Disks.Rows, o.Disks.Hidden()}
}

func callsOf(o ecssim.Overview) listView[ecssim.Call] {
	return listView[ecssim.Call]{o.Calls.Rows, o.Calls.Hidden()}
}

type snapshotsView struct {
	Snapshots listView[ecssim.SnapshotState]
	Tasks     listView[ecssim.TaskState]
}

func snapshotsOf(o ecssim.Overview) snapshotsView {
	return snapshotsView{
		listView[ecssim.SnapshotState]{o.Snapshots.Rows, o.Snapshots.Hidden()}, listView[ecssim.TaskState]{o.Tasks.Rows, o.Tasks.Hidden()},
	}
}

// zonesView is the stock as a table: a row for each category, a column for
// each zone, the last for the region's own.
type zonesView struct {
	Zones []string
	Whole []wholeZone
	Rows  []stockRow
}

type wholeZone struct {
	Zone    string
	Buttons []action
}

type stockRow struct {
	Category string
	Cells    []stockCell
}

type stockCell struct {
	ecssim.StockLevel
	Offered bool
	Button  action
}

func zonesOf(o ecssim.Overview) zonesView {
	v := zonesView{Zones: o.Zones}
	for _, zone := range o.Zones {
		v.Whole = append(v.Whole, wholeZone{zone, zoneButtons(zone)})
	}
	columns := append(slices.Clone(o.Zones), "")
	for _, level := range o.Stock {
		i := slices.IndexFunc(v.Rows, func(r stockRow) bool { return r.Category == level.Category })
		if i < 0 {
			i = len(v.Rows)
			row := stockRow{level.Category, make([]stockCell, len(columns))}
			for n, zone := range columns {
				row.Cells[n].Zone = zone
			}
			v.Rows = append(v.Rows, row)
		}
		v.Rows[i].Cells[slices.Index(columns, level.Zone)] = stockCell{level, true, stockButton(level)}
	}
	return v
}

type countsView struct {
	Rows           []countRow
	Actions, Codes []string
}

type countRow struct {
	Action, Code string
	Calls        int
}

func countsOf(o ecssim.Overview) countsView {
	var v countsView
	for action, codes := range o.Counts {
		for code, n := range codes {
			v.Rows = append(v.Rows, countRow{action, cmp.Or(code, ecssim.SuccessCode), n})
		}
	}
	slices.SortFunc(v.Rows, func(a, b countRow) int {
		return cmp.Or(cmp.Compare(a.Action, b.Action), -cmp.Compare(a.Calls, b.Calls), cmp.Compare(a.Code, b.Code))
	})
	for _, row := range v.Rows {
		v.Actions, v.Codes = append(v.Actions, row.Action), append(v.Codes, row.Code)
	}
	slices.Sort(v.Codes)
	v.Actions, v.Codes = slices.Compact(v.Actions), slices.Compact(v.Codes)
	return v
}

type throttleView struct {
	Profiles []action
	Levels   []ecssim.ThrottleLevel
}

func throttleOf(o ecssim.Overview) throttleView {
	return throttleView{throttleButtons(o.Throttle), o.Throttle.Levels}
}

type faultsView struct {
	Lose, Buttons []action
	Faults        []ecssim.Fault
	Denials       []ecssim.Denial
}

func faultsOf(o ecssim.Overview) faultsView {
	return faultsView{loseButtons(), faultButtons(), o.Faults, o.Denials}
}

type clockView struct{ Latency, Queues []action }

func clockOf(o ecssim.Overview) clockView {
	return clockView{latencyButtons(o.LatencyProfile), queueButtons(o.Queues)}
}
