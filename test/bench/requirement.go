package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/topodisk/topodisk/topology"
)

// requirement times where a volume may be, as both provisioners work it out for one claim.
func (e *environment) requirement(ctx context.Context, s scale, t *table) error {
	index := topology.NewIndex(benchDriver)
	for i := range s.nodes {
		node, csiNode := nodeOf(i)
		index.SetNode(node)
		index.SetCSINode(csiNode)
	}
	question := topology.Question{ClaimName: "data-web-1", SelectedNode: nodeNamed(7)}
	var failed error
	ours := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			if _, err := index.Require(question); err != nil {
				failed = err
			}
		}
	})
	if failed != nil {
		return failed
	}
	out, err := exec.CommandContext(ctx, e.decision, strconv.Itoa(s.nodes)).Output()
	if err != nil {
		return err
	}
	upstream, err := time.ParseDuration(strings.TrimSpace(string(out)))
	if err != nil {
		return err
	}
	t.ratio(fmt.Sprintf("requirement of one claim, %d nodes, without strict topology", s.nodes), float64(ours.NsPerOp())/1000, float64(upstream.Nanoseconds())/1000, " µs", atMost(0.01))
	return nil
}
