package main

import (
	"strings"
	"testing"
	"time"
)

// kept are the rows of a file, and the commits that they were measured at.
func kept[R any](t *testing.T, file string, names []string) ([]R, []string) {
	t.Helper()
	rows, commits, missing, err := resultFile[R]{path: file}.all(names)
	if err != nil || len(rows) == 0 {
		t.Fatalf("%s has %d rows, and lacks %q: %v", file, len(rows), missing, err)
	}
	return rows, commits
}

// A part of the page is written at the end of hours of measuring: it must not fail then.
func TestEveryPartOfThePageIsWritten(t *testing.T) {
	rows, at := kept[row](t, "provisioner.json", rowKeys(groups(), group.named))
	pods, podsAt := kept[podsRow](t, "pods.json", rowKeys(podsScenarios(), podsScenario.named))
	queues, queuesAt := kept[queueFigures](t, "attachqueue.json", rowKeys(variants, variant.named))
	var lifecycles []lifecycleRow
	for _, s := range scenarios {
		lifecycles = append(lifecycles, newLifecycleRow(s, csiDriver{name: "topodisk"}, []outcome{{calls: 6.5, wall: 3, limit: 2.5, memory: 90}}))
	}
	accounts := accountFigures{throttled: 177, calls: 12941, used: []int{500, 499}, waits: []time.Duration{38 * time.Second, 40 * time.Second}}
	for name, part := range map[string]struct{ text, has string }{
		"provisioner":  {(&table{rows: rows}).markdown(scale{runs: 5}, at), "| " + rows[0].Name + " | " + rows[0].Ours + " |"},
		"pods":         {podsPage(pods, podsAt), "| " + pods[0].Name + " | " + sourceOurs + " | "},
		"attach-queue": {queuePage(queues, queuesAt), "| " + variants[0].says + " | idle | "},
		"lifecycle":    {lifecyclePage(lifecycles), "| " + scenarios[0].name + " | topodisk | 6.50 | 3.00 s | 2.50 s | 1.20 | "},
		"accounts":     {accounts.markdown(), "177 of 12941 calls throttled"},
		"why":          {whyScale{nodes: 5000}.markdown([]whyRow{{what: "a node", wall: []float64{1}, cpu: []float64{1}}}), "| a node | 1.00 s |"},
	} {
		if !strings.HasPrefix(part.text, "## ") || !strings.Contains(part.text, part.has) || !strings.Contains(part.text, "make bench WHAT="+name) {
			t.Errorf("%s lacks its heading, its command or %q:\n%s", name, part.has, part.text)
		}
	}
}
