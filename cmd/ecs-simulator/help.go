package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/pflag"
)

// summary is what the program is, for --help.
const summary = `ecs-simulator serves a simulated Alibaba Cloud ECS over HTTP.

All of its state is in memory and ends with the process, disks and settings
alike; with --bodies, what disks hold is in files as long as it runs.
More settings, such as denials and faults, are in the admin API at /_sim/
(docs/simulator.md).`

// flagGroups are the flags of each heading of --help, in order. A flag that is
// in none is under the last heading.
var flagGroups = []struct {
	title string
	names []string
}{
	{"What there is", []string{
		"region", "zone", "instance", "instance-type", "offer", "account", "access-key", "role", "kms-key", "resource-group", "storage-cluster",
		"bodies", "links",
	}},
	{"How long things take", []string{"latency", "spread", "seed", "client-token-life", "page-token-life", "instance-key-life"}},
	{"Limits", []string{
		"queues", "throttle", "throttle-code", "throttle-phase", "throttle-bucket", "throttle-sticky-minute",
		"quota-disks", "quota-gib", "quota-zone-gib", "snapshots-per-disk", "snapshots-at-once", "category-changes",
	}},
	{"The program", []string{"listen", "metadata-listen", "calls-kept", "logging-format", "v", "vmodule", "version"}},
	{"Where sources disagree", nil},
}

// setUsage makes --help print the flags by group.
func setUsage(flags *pflag.FlagSet, out io.Writer) {
	flags.SetOutput(out)
	flags.Usage = func() {
		_, _ = fmt.Fprintf(out, "%s\n\nUsage:\n  %s [flags]\n", summary, flags.Name())
		for _, g := range flagGroups {
			group := pflag.NewFlagSet(g.title, pflag.ContinueOnError)
			group.SortFlags = false
			for _, name := range g.names {
				if f := flags.Lookup(name); f != nil {
					group.AddFlag(f)
				}
			}
			if g.names == nil {
				flags.VisitAll(func(f *pflag.Flag) {
					if !grouped(f.Name) {
						group.AddFlag(f)
					}
				})
			}
			_, _ = fmt.Fprintf(out, "\n%s:\n%s", g.title, group.FlagUsages())
		}
	}
}

func grouped(name string) bool {
	for _, g := range flagGroups {
		if slices.Contains(g.names, name) {
			return true
		}
	}
	return false
}
