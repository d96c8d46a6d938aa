package params

import (
	"fmt"
	"maps"
	"slices"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// take sets every value in p, in the order of the names, so that the first
// error is always the same one. It returns what was taken and does nothing.
func take[P any](p *P, what string, values map[string]string, keys keyTable[P], unknown Unknown) (warnings []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name]
		k, known := keys.find(name)
		switch {
		case !known && unknown == Warn:
			warnings = append(warnings, fmt.Sprintf("%s %s is unknown and does nothing", what, name))
			continue
		case !known:
			return nil, disk.Errorf(disk.Invalid, "%s %s (value %q) is unknown; allowed are %s", what, name, value, keys)
		case value == "" && k.under == nil:
			continue
		case k.barred != "":
			return nil, disk.Errorf(disk.Invalid, "%s %s (value %q) is not supported: %s", what, name, value, k.barred)
		case k.idle != "":
			warnings = append(warnings, fmt.Sprintf("%s %s does nothing: %s", what, name, k.idle))
		}
		if k.set == nil {
			continue
		}
		if err := k.set(p, value); err != nil {
			return nil, disk.Errorf(disk.Invalid, "%s %s: %q is not allowed: %w", what, name, value, err)
		}
	}
	return warnings, nil
}
