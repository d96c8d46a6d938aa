// Bench measures what topodisk's ECS client costs, in calls, in time and in
// memory, against the simulator. `make bench-ecs` runs it: it prints one row
// a figure and writes docs/benchmarks.md.
//
// Most figures are counts and ratios under the virtual clock of
// testing/synctest: they are the same on every machine. Those that need a real
// clock, sockets or a process's memory come last.
package main

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

func main() {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	write := flag.String("write", "", "also write the figures to this file, in Markdown")
	testing.Init() // testing/synctest needs a test to run in
	flag.Parse()
	var r report
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{
		{Name: "virtual", F: func(t *testing.T) { virtual(t, &r) }},
		{Name: "wall", F: func(t *testing.T) { wall(t, &r) }},
		{Name: "report", F: func(t *testing.T) {
			if *write == "" {
				return
			}
			if err := os.WriteFile(*write, []byte(r.markdown()), 0o644); err != nil {
				t.Error(err)
			}
			fmt.Println("wrote", *write)
		}},
	}, nil, nil)
}
