package inventory

import (
	"bytes"
	"encoding/json"
	"testing"

	"k8s.io/cli-runtime/pkg/printers"

	"github.com/topodisk/topodisk/test/hostile"
)

func TestNoTextOfATableHarmsItsReader(t *testing.T) {
	rows, err := json.Marshal(Rows(example()))
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for text, variant := range hostile.Variants(t, rows) {
		var changed []Row
		if json.Unmarshal(variant, &changed) != nil {
			continue // such as a time
		}
		var printed bytes.Buffer
		table := Table(changed, Columns{Namespace: true, Used: true, Currency: "CNY"}, noon)
		if err := printers.NewTablePrinter(printers.PrintOptions{Wide: true}).PrintObj(table, &printed); err != nil {
			t.Fatal(err)
		}
		if harm := hostile.Harm(printed.String()); harm != "" {
			t.Errorf("%q: %s:\n%s", text, harm, &printed)
		}
		if bytes.Contains(printed.Bytes(), []byte("OWNED")) {
			shown++
		}
	}
	if shown < 10 {
		t.Errorf("only %d texts are shown", shown)
	}
}
