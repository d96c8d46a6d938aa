package disk

import "testing"

func TestTimesAreOrderedBeyondTheirGranularity(t *testing.T) {
	for _, test := range []struct {
		at, than string
		want     bool
	}{
		{"2026-01-01T10:00:05Z", "", true},
		{"", "", false},
		{"", "2026-01-01T10:00:05Z", false},
		{"soon", "", false},
		{"2026-01-01T10:00:05Z", "soon", false},
		{"2026-01-01T10:00:05Z", "2026-01-01T10:00:05Z", false},
		{"2026-01-01T10:00:06Z", "2026-01-01T10:00:05Z", false}, // by their granularity, and not by more
		{"2026-01-01T10:00:07Z", "2026-01-01T10:00:05Z", true},
		{"2026-01-01T10:00:05Z", "2026-01-01T10:00:07Z", false},
		{"2026-01-01T10:01:00Z", "2026-01-01T10:00:05Z", false}, // it may be one in minutes
		{"2026-01-01T10:02:00Z", "2026-01-01T10:01:00Z", false},
		{"2026-01-01T10:03:00Z", "2026-01-01T10:01:00Z", true},
		{"2026-01-01T10:01Z", "2026-01-01T10:01Z", false},
		{"2026-01-01T10:03Z", "2026-01-01T10:01Z", true},
		{"2026-01-01T10:01Z", "2026-01-01T10:00:01Z", false},
	} {
		if got := Later(test.at, test.than); got != test.want {
			t.Errorf("%q is later than %q: %v, want %v", test.at, test.than, got, test.want)
		}
	}
}
