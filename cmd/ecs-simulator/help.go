package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/pflag"
)

// summary is what the program is, for --help.
const summary = `ecs-simulator simulates the ECS API of Alibaba Cloud on this machine: disks,
snapshots, instances and tags of one account in one region. SDKs and tools use
it with its address as their endpoint, without an account and at no cost. It
never calls the real cloud.

Start it, and create a disk from a second terminal:

  ` + startExample + `
  ` + callExample + `

It prints "listening on http://127.0.0.1:8080" when it is ready, and serves

  /             the APIs of ECS and STS; any access key is valid unless
                --access-key or --role is set
  /latest/      the metadata service of the instance that the header
                X-Sim-Instance names
  /_sim/        a page that shows the state, for a browser
  /_sim/state   the state as JSON; other paths below /_sim/ are the admin API,
                which injects faults and changes latencies, stock and the clock

All of the state is in memory and ends with the process, including what the
admin API has set. Anybody who reaches the address can change all of it: keep it
on 127.0.0.1. More is in docs/ecs-on-a-laptop.md and docs/simulator.md.`

// The commands that --help shows.
const (
	startExample = "ecs-simulator --region=cn-hangzhou --zone=cn-hangzhou-h --instance=i-1=cn-hangzhou-h/ecs.g7.large"
	callExample  = "curl -d Action=CreateDisk -d Version=2014-05-26 -d Format=JSON -d RegionId=cn-hangzhou" +
		" -d ZoneId=cn-hangzhou-h -d DiskCategory=cloud_essd -d Size=20 http://127.0.0.1:8080"
)

// flagGroups are the flags of each heading of --help, in order. A flag that is
// in none is under the last heading.
var flagGroups = []struct {
	title string
	names []string
}{
	{"Region, zones and instances", []string{"region", "zone", "instance", "instance-type", "offer"}},
	{"Addresses", []string{"listen", "metadata-listen"}},
	{"Account and access keys", []string{"account", "access-key", "role", "kms-key", "resource-group", "storage-cluster"}},
	{"Contents of disks", []string{"bodies", "links"}},
	{"Latency and lifetimes", []string{"latency", "spread", "seed", "client-token-life", "page-token-life", "instance-key-life"}},
	{"Limits and quotas", []string{
		"queues", "throttle", "throttle-code", "throttle-phase", "throttle-bucket", "throttle-sticky-minute",
		"quota-disks", "quota-gib", "quota-zone-gib", "snapshots-per-disk", "snapshots-at-once", "category-changes",
	}},
	{"Logs and version", []string{"calls-kept", "logging-format", "v", "vmodule", "version"}},
	{"Behaviors that ECS's documentation and its clients disagree about", nil},
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
