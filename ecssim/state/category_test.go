package state

import "testing"

func TestIOPSFollowTheCategoryTable(t *testing.T) {
	for _, tt := range []struct {
		category, level string
		size, want      int
	}{
		{"cloud_efficiency", "", 20, 1960},
		{"cloud_efficiency", "", 32768, 5000},
		{"cloud_ssd", "", 100, 4800},
		{"cloud_ssd", "", 32768, 25000},
		{"cloud_essd", "PL0", 1, 1812},
		{"cloud_essd", "PL0", 65536, 10000},
		{"cloud_essd", "PL1", 65536, 50000},
		{"cloud_essd", "PL2", 461, 24850},
		{"cloud_essd", "PL2", 65536, 100000},
		{"cloud_essd", "PL3", 65536, 1000000},
		{"cloud_auto", "", 1, 3000},
		{"cloud_auto", "", 65536, 50000},
		{"cloud_essd_entry", "", 32768, 6000},
	} {
		if got := Categories[tt.category].IOPS(tt.size, tt.level); got != tt.want {
			t.Errorf("%s %s of %d GiB: %d IOPS, want %d", tt.category, tt.level, tt.size, got, tt.want)
		}
	}
}

func TestProvisionedIOPSAreBounded(t *testing.T) {
	for size, want := range map[int]int{1: 0, 3: 0, 4: 1000, 40: 36200, 100: 50000, 65536: 50000} {
		if got := MaxProvisionedIOPS(size); got != want {
			t.Errorf("%d GiB: at most %d, want %d", size, got, want)
		}
	}
}
