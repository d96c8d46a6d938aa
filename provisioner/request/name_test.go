package request

import "testing"

func TestNamesOfADriversObjects(t *testing.T) {
	for driver, want := range map[string]string{
		"diskplugin.csi.alibabacloud.com": "diskplugin-csi-alibabacloud-com",
		"disk":                            "disk",
		"disk.example.com/a_b":            "disk-example-com-a-b",
		"Disk.":                           "Disk-X",
		"":                                "",
	} {
		if got := ObjectName(driver); got != want {
			t.Errorf("the Lease of %q is %q, want %q", driver, got, want)
		}
		if got := JournalName(driver); got != "topodisk-journal-"+want {
			t.Errorf("the journal of %q is %q", driver, got)
		}
	}
}
