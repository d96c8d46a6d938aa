// Bench measures what topodisk costs, prints one row a figure and writes its
// part of docs/benchmarks.md.
//
// `make bench-ecs` measures the ECS client, in calls, in time and in memory,
// against the simulator. `make bench-lifecycle` measures disk-driver from its
// socket, as the sidecars call it, against ecs-simulator, both as shipped. `make bench-accounts` measures
// many disk-drivers on one account. `make bench-provisioner` measures disk-provisioner
// side by side with upstream's csi-provisioner, on a real control plane. `make bench-pods` measures Pods on real nodes.
// `make bench-attach-queue` measures how long attaches wait behind detaches that hang, through csi-attacher.
//
// Most figures of the ECS client are counts and ratios under the virtual clock of
// testing/synctest: they are the same on every machine. Those that need a real
// clock, sockets or a process's memory come last.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

func main() {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	write := flag.String("write", "", "also write the figures to this file, in Markdown")
	what := flag.String("what", "ecs", "what to measure: ecs, lifecycle, accounts, provisioner, pods, why or attach-queue")
	rows := flag.String("rows", "", "provisioner: the groups of rows to measure, of "+strings.Join(rowKeys(groups(), group.named), ",")+"; lifecycle, pods: the scenarios; attach-queue: chart and narrow; empty for all")
	programs := flag.String("programs", "bin", "lifecycle, accounts: directory of disk-driver and ecs-simulator")
	driver := flag.String("driver", "", "lifecycle, pods: another driver to measure beside ours, as its program and arguments; {socket}, {region} and {ecs} stand for what it is to use")
	nodeDriver := flag.String("node-driver", "", "pods: the node plugin of the other driver, likewise; {node}, {instance} and {zone} stand for the node")
	sizes := podsSizes{}
	sizes.flags()
	plan, why, queue := scale{}, whyScale{}, queueScale{}
	plan.flags()
	why.flags()
	queue.flags()
	testing.Init() // testing/synctest needs a test to run in
	flag.Parse()
	var err error
	switch *what {
	case "ecs":
		benchECS(*write)
	case "lifecycle":
		err = benchLifecycle(*rows, *programs, *driver, *write)
	case "accounts":
		err = benchAccounts(*programs, *write)
	case "provisioner":
		err = benchProvisioner(plan, *rows, *write)
	case "pods":
		err = benchPods(podsOptions{sizes: sizes, rows: *rows, driver: *driver, node: *nodeDriver, write: *write})
	case "why":
		err = benchWhy(why, *write)
	case "attach-queue":
		err = benchAttachQueue(queue, *rows, *write)
	default:
		err = fmt.Errorf("-what=%s is not allowed: allowed are ecs, lifecycle, accounts, provisioner, pods, why and attach-queue", *what)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// benchECS measures the ECS client, and ends the program.
func benchECS(write string) {
	var r report
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{
		{Name: "virtual", F: func(t *testing.T) { virtual(t, &r) }},
		{Name: "wall", F: func(t *testing.T) { wall(t, &r) }},
		{Name: "report", F: func(t *testing.T) {
			if write == "" {
				return
			}
			if err := writeSection(write, "ecs-client", r.markdown()); err != nil {
				t.Error(err)
			}
			fmt.Println("wrote", write)
		}},
	}, nil, nil)
}
