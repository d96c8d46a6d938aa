package inventory

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/internal/audit"
	"github.com/topodisk/topodisk/internal/escape"
)

// Columns say which columns a table has besides those that it always has.
type Columns struct {
	Namespace bool
	Used      bool
	Currency  string // of the costs; empty: no costs are known
}

// Table returns the rows as kubectl's printers take them. Columns of priority 1 are those of --output=wide.
func Table(rows []Row, c Columns, now time.Time) *metav1.Table {
	table := &metav1.Table{}
	for _, column := range columns(c, now) {
		table.ColumnDefinitions = append(table.ColumnDefinitions, metav1.TableColumnDefinition{Name: column.name, Type: "string", Priority: column.priority})
	}
	for _, r := range rows {
		var cells []any
		for _, column := range columns(c, now) {
			cells = append(cells, escape.Text(cmp.Or(column.of(r), "-")))
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells})
	}
	return table
}

// column is a column of a table.
type column struct {
	name     string
	priority int32
	of       func(Row) string
}

func columns(c Columns, now time.Time) []column {
	var all []column
	add := func(wanted bool, name string, of func(Row) string) {
		if wanted {
			all = append(all, column{name: name, of: of})
		}
	}
	add(c.Namespace, "Namespace", func(r Row) string { return r.Namespace })
	add(true, "Claim", func(r Row) string { return r.Claim })
	add(true, "State", func(r Row) string { return string(r.State) })
	add(true, "Zone", func(r Row) string { return strings.Join(r.Zones, ",") })
	add(true, "Node", func(r Row) string { return strings.Join(r.Nodes, ",") })
	add(true, "Type", typeOf)
	add(true, "Size", func(r Row) string { return fmt.Sprintf("%dGi", r.GiB) })
	add(c.Used, "Used", usedOf)
	add(c.Currency != "", c.Currency+"/month", func(r Row) string {
		if r.CostPerMonth == nil {
			return ""
		}
		return fmt.Sprintf("%.2f", *r.CostPerMonth)
	})
	add(true, "Age", func(r Row) string { return audit.Age(r.Created, now) })
	return append(all,
		column{"Volume", 1, func(r Row) string { return r.Volume }},
		column{"StorageClass", 1, func(r Row) string { return r.Class }},
		column{"Pods", 1, func(r Row) string { return strings.Join(r.Pods, ",") }})
}

// typeOf returns the type, or the VolumeAttributesClass that has changed it.
func typeOf(r Row) string {
	if r.AttributesClass != "" {
		return "(class " + r.AttributesClass + ")"
	}
	return strings.TrimSpace(r.Type + " " + r.Level)
}

// usedOf returns the bytes that are used, and which part of the volume that is.
func usedOf(r Row) string {
	if r.UsedBytes == nil || r.GiB == 0 {
		return ""
	}
	return fmt.Sprintf("%.1fGi (%d%%)", float64(*r.UsedBytes)/(1<<30), *r.UsedBytes*100/(r.GiB<<30))
}
