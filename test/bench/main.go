// Bench measures what topodisk costs, prints one row a figure and writes its
// part of docs/benchmarks.md.
//
// `make bench WHAT=lifecycle` measures disk-driver from its socket, as the sidecars call it, against ecs-simulator, both as shipped.
// `make bench WHAT=accounts` measures many disk-drivers on one account. `make bench WHAT=provisioner` measures disk-provisioner
// side by side with upstream's csi-provisioner, on a real control plane. `make bench WHAT=pods` measures Pods on real nodes.
// `make bench WHAT=attach-queue` measures how long attaches wait behind detaches that hang, through csi-attacher.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/topodisk/topodisk/test/lab/programs"
)

func main() {
	if settings := os.Getenv(instantVariable); settings != "" {
		fmt.Fprintln(os.Stderr, "bench:", playInstant([]byte(settings)))
		os.Exit(1)
	}
	write := flag.String("write", "", "also write the figures to this file, in Markdown")
	what := flag.String("what", "", "what to measure: lifecycle, accounts, provisioner, pods, why or attach-queue")
	rows := flag.String("rows", "", "provisioner: the groups of rows to measure, of "+strings.Join(rowKeys(groups(), group.named), ",")+"; lifecycle, pods: the scenarios; attach-queue: chart and narrow; empty for all")
	shipped := flag.String("programs", "bin", "lifecycle, accounts: directory of disk-driver and ecs-simulator")
	driver := flag.String("driver", "", "lifecycle, pods: another driver to measure beside ours, as its program and arguments; {socket}, {region} and {ecs} stand for what it is to use")
	nodeDriver := flag.String("node-driver", "", "pods: the node plugin of the other driver, likewise; {node}, {instance} and {zone} stand for the node")
	small := flag.Bool("small", false, "provisioner, pods, why, attach-queue: a few of everything, to see that it works; nothing is written")
	flag.Parse()
	sizes, plan, why, queue := podsAll, scaleAll, whyAll, queueAll
	if *small {
		sizes, plan, why, queue, *write = podsFew, scaleFew, whyFew, queueFew, ""
	}
	programs.Main("bench", func(ctx context.Context, root string) (int, error) {
		switch *what {
		case "lifecycle":
			return 0, benchLifecycle(ctx, *rows, *shipped, *driver, *write)
		case "accounts":
			return 0, benchAccounts(ctx, *shipped, *write)
		case "provisioner":
			return 0, benchProvisioner(ctx, root, plan, *rows, *write)
		case "pods":
			return 0, benchPods(ctx, root, podsOptions{sizes: sizes, rows: *rows, driver: *driver, node: *nodeDriver, write: *write})
		case "why":
			return 0, benchWhy(ctx, root, why, *write)
		case "attach-queue":
			return 0, benchAttachQueue(ctx, root, queue, *rows, *write)
		}
		return 1, fmt.Errorf("-what=%s is not allowed: allowed are lifecycle, accounts, provisioner, pods, why and attach-queue", *what)
	})
}
