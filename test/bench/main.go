// Bench measures what topodisk costs, prints one row a figure and writes its
// part of docs/benchmarks.md.
//
// `make bench WHAT=lifecycle` measures disk-driver from its socket, as the sidecars call it, against ecs-simulator, both as shipped.
// `make bench WHAT=accounts` measures many disk-drivers on one account. `make bench WHAT=provisioner` measures disk-provisioner
// side by side with upstream's csi-provisioner, on a real control plane. `make bench WHAT=pods` measures Pods on real nodes.
// `make bench WHAT=attach-queue` measures how long attaches wait behind detaches that hang, through csi-attacher.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	if settings := os.Getenv(instantVariable); settings != "" {
		fmt.Fprintln(os.Stderr, "bench:", playInstant([]byte(settings)))
		os.Exit(1)
	}
	write := flag.String("write", "", "also write the figures to this file, in Markdown")
	what := flag.String("what", "", "what to measure: lifecycle, accounts, provisioner, pods, why or attach-queue")
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
	flag.Parse()
	var err error
	switch *what {
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
		err = fmt.Errorf("-what=%s is not allowed: allowed are lifecycle, accounts, provisioner, pods, why and attach-queue", *what)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
