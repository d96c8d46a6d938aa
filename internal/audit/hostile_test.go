package audit

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/topodisk/topodisk/test/hostile"
)

// Texts of findings are of the cloud account and of the cluster, and the report is printed by disk-provisioner, too.
func TestNoTextOfAReportHarmsItsReader(t *testing.T) {
	report, err := json.Marshal(&Report{
		Clusters: []string{"c-this"}, Currency: "CNY", Findings: []Finding{{Kind: DiskWithoutVolume, ID: "d-1", Type: "cloud_essd", Level: "PL1", Zone: "cn-hangzhou-h", About: "of claim shop/data"}},
		Others: []Other{{Cluster: "c-other", Disks: 1}}, Unread: []Unread{{What: "VolumeAttachments", Reason: "you may not", Kinds: []Kind{DiskWithoutVolume}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for text, variant := range hostile.Variants(t, report) {
		var r Report
		if json.Unmarshal(variant, &r) != nil {
			continue // such as a time
		}
		var printed bytes.Buffer
		if err := r.Print(&printed, time.Now()); err != nil {
			t.Fatal(err)
		}
		if harm := hostile.Harm(printed.String()); harm != "" {
			t.Errorf("%q: %s:\n%s", text, harm, &printed)
		}
		if bytes.Contains(printed.Bytes(), []byte("OWNED")) {
			shown++
		}
	}
	if shown < 6 {
		t.Errorf("only %d texts are shown", shown)
	}
}
