// Package prices reads a table of what disks and snapshots cost, and looks prices up in it.
package prices

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// Snapshot is the key of the price of snapshots.
const Snapshot = "snapshot"

// Table has prices in one currency.
type Table struct {
	Currency string `json:"currency"` // a code of ISO 4217, such as CNY
	// PerGiBMonth are the prices of a GiB a month. A key is a category with, if the price depends on them, the performance level and the
	// zone: cloud_essd, cloud_essd/PL1, cloud_auto/cn-hangzhou-h or cloud_essd/PL1/cn-hangzhou-h. Snapshot may have a zone, too.
	PerGiBMonth map[string]float64 `json:"perGiBMonth"`
}

// Parse reads a table in YAML. An error names the key, its value and what is allowed.
func Parse(text []byte) (*Table, error) {
	t := &Table{}
	if err := yaml.UnmarshalStrict(text, t); err != nil {
		return nil, fmt.Errorf("it is no price table: %w; allowed are currency and perGiBMonth, for example\ncurrency: CNY\nperGiBMonth:\n  cloud_essd/PL1: 1.0", err)
	}
	if !currencyForm.MatchString(t.Currency) {
		return nil, fmt.Errorf("currency %q is not allowed: allowed is a code of three capital letters, such as CNY", t.Currency)
	}
	if len(t.PerGiBMonth) == 0 {
		return nil, fmt.Errorf("perGiBMonth has no price; for example cloud_essd/PL1: 1.0")
	}
	for _, key := range slices.Sorted(maps.Keys(t.PerGiBMonth)) {
		if err := checkKey(key); err != nil {
			return nil, fmt.Errorf("perGiBMonth: %q is not allowed: %w", key, err)
		}
		if price := t.PerGiBMonth[key]; price < 0 || math.IsInf(price, 0) || math.IsNaN(price) {
			return nil, fmt.Errorf("perGiBMonth: %s: %v is not allowed: allowed is a number from 0", key, price)
		}
	}
	return t, nil
}

var (
	currencyForm = regexp.MustCompile(`^[A-Z]{3}$`)
	zoneForm     = regexp.MustCompile(`^[a-z]{2,}-[a-z0-9-]*[a-z0-9]$`)
)

// checkKey says what is wrong with a key.
func checkKey(key string) error {
	parts := strings.Split(key, "/")
	category := disk.Category(parts[0])
	traits, known := category.Traits()
	if !known && key != Snapshot && parts[0] != Snapshot {
		return fmt.Errorf("%q is no disk category; allowed are %s and %s", parts[0], disk.List(disk.KnownCategories()), Snapshot)
	}
	rest := parts[1:]
	if len(rest) > 0 && levelForm.MatchString(rest[0]) {
		if _, known := traits.Levels[disk.Level(rest[0])]; !known {
			return fmt.Errorf("%s has no performance level %s; allowed are %s", parts[0], rest[0], levels(traits))
		}
		rest = rest[1:]
	}
	if len(rest) > 1 || len(rest) == 1 && !zoneForm.MatchString(rest[0]) {
		return fmt.Errorf("%q is no zone; allowed is category[/performance level][/zone], such as cloud_essd/PL1/cn-hangzhou-h", strings.Join(rest, "/"))
	}
	return nil
}

var levelForm = regexp.MustCompile(`^PL[0-9]+$`)

func levels(t disk.Traits) string {
	if len(t.Levels) == 0 {
		return "none"
	}
	return disk.List(slices.Sorted(maps.Keys(t.Levels)))
}

// PerMonth returns what a disk costs a month: by its category, level and zone if the table has a price for all of them, else by its
// category and level, by category and zone, or by its category alone. A disk of cloud_essd whose level is not known is PL1. False: the
// table has no price for it.
func (t *Table) PerMonth(category, level, zone string, gib int64) (float64, bool) {
	if level == "" && category == string(disk.ESSD) {
		level = string(disk.PL1)
	}
	var keys []string
	if level != "" {
		keys = []string{category + "/" + level + "/" + zone, category + "/" + level}
	}
	for _, key := range append(keys, category+"/"+zone, category) {
		if price, known := t.PerGiBMonth[key]; known {
			return price * float64(gib), true
		}
	}
	return 0, false
}
