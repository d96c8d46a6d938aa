package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/topodisk/topodisk/explain/inventory"
	"github.com/topodisk/topodisk/explain/prices"
	"github.com/topodisk/topodisk/explain/survey"
	"github.com/topodisk/topodisk/explain/usage"
)

// volumesOptions are the flags of volumes.
type volumesOptions struct {
	driver     string
	all        bool
	selector   string
	sortBy     string
	prices     string
	prometheus string
	watch      bool
	interval   time.Duration

	now  func() time.Time
	wait func(context.Context, time.Duration) error
}

// volumeList is what `volumes --output=json` prints.
type volumeList struct {
	Currency string          `json:"currency,omitempty"`
	Items    []inventory.Row `json:"items"`
	// Unread says what could not be read.
	Unread []string `json:"unread,omitempty"`
}

// newVolumes lists claims.
func newVolumes(f *factory) *cobra.Command {
	o, out := &volumesOptions{now: time.Now, wait: wait}, newOutput()
	cmd := &cobra.Command{
		Use:   "volumes",
		Short: "List claims with zone, node, type, size, use, cost and state",
		Long: "volumes lists the claims of the driver and what becomes of them. The state is Pending, Bound (on no node), Attaching, Attached,\n" +
			"Detaching, Resizing, Modifying, Terminating or Lost. With --prometheus it shows how much of a volume is used, as kubelets have told\n" +
			"it, and with --prices what a volume costs a month. --watch reads again every --interval, and prints the claims that have changed.",
		Example: "  kubectl topodisk volumes -A --sort-by=cost --prices=prices.yaml\n" +
			"  kubectl topodisk volumes -n shop -l app=web --prometheus=https://prometheus.example.com",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			wide := *out.flags.OutputFormat == "wide"
			if !wide {
				structured, err := out.forPrograms("wide")
				if err != nil {
					return err
				}
				if structured {
					return o.printObject(cmd.Context(), f, out)
				}
			}
			return o.printTable(cmd.Context(), f, wide)
		},
	}
	addDriverFlag(cmd, &o.driver)
	flags := cmd.Flags()
	flags.BoolVarP(&o.all, "all-namespaces", "A", false, "list the claims of all namespaces")
	flags.StringVarP(&o.selector, "selector", "l", "", "labels of claims, such as app=web,tier!=cache")
	flags.StringVar(&o.sortBy, "sort-by", "name", "what to sort by: "+strings.Join(inventory.Orders(), ", ")+"; size, used and cost begin with the largest")
	flags.StringVar(&o.prometheus, "prometheus", "", "URL of a Prometheus that scrapes the kubelets, such as https://prometheus.example.com")
	flags.BoolVarP(&o.watch, "watch", "w", false, "keep running: read everything again every --interval, and print the claims that have changed; not with a format for programs")
	flags.DurationVar(&o.interval, "interval", 5*time.Second, "how often --watch reads; use a longer interval in a large cluster")
	addPricesFlag(cmd, &o.prices)
	out.addFlags(cmd)
	cmd.Flag("output").Usage = "wide for more columns, or a " + cmd.Flag("output").Usage
	return cmd
}

// lister reads the list.
type lister struct {
	options *volumesOptions
	cluster *survey.Cluster
	prices  *prices.Table
	usage   *usage.Client
}

// newLister refuses wrong flags.
func (o *volumesOptions) newLister(f *factory) (*lister, error) {
	if err := inventory.Sort(nil, o.sortBy); err != nil {
		return nil, usagef("--sort-by: %v", err)
	}
	if _, err := labels.Parse(o.selector); err != nil {
		return nil, usagef("--selector=%s is not allowed: %v", o.selector, err)
	}
	if o.interval < time.Second {
		return nil, usagef("--interval=%s is not allowed: allowed is 1s or more", o.interval)
	}
	l := &lister{options: o}
	var err error
	if l.prices, err = readPrices(o.prices); err != nil {
		return nil, err
	}
	if o.prometheus != "" {
		if l.usage, err = usage.New(o.prometheus); err != nil {
			return nil, usagef("--prometheus: %v", err)
		}
	}
	if l.cluster, err = newSurvey(f, o.driver); err != nil {
		return nil, err
	}
	l.cluster.Selector, l.cluster.Now = o.selector, o.now
	if !o.all {
		l.cluster.Namespace, err = f.namespace()
	}
	return l, err
}

// read returns the sorted rows, and what could not be read.
func (l *lister) read(ctx context.Context) (*volumeList, error) {
	c, classes, err := l.cluster.ReadVolumes(ctx)
	if err != nil {
		return nil, err
	}
	facts := inventory.Facts{Driver: c.Driver, Claims: c.Claims, Volumes: c.Volumes, Attachments: c.Attachments, Pods: c.Pods, Classes: classes}
	list := &volumeList{}
	for _, u := range c.Unread {
		list.Unread = append(list.Unread, u.What+": "+u.Reason)
	}
	if l.usage != nil {
		if facts.Used, err = l.usage.Used(ctx); err != nil {
			list.Unread = append(list.Unread, "used bytes: "+err.Error())
		}
	}
	if l.prices != nil {
		facts.PerMonth, list.Currency = l.prices.PerMonth, l.prices.Currency
	}
	list.Items = append([]inventory.Row{}, inventory.Rows(facts)...)
	return list, inventory.Sort(list.Items, l.options.sortBy)
}

// printObject prints the list for programs.
func (o *volumesOptions) printObject(ctx context.Context, f *factory, out *output) error {
	if o.watch {
		return usagef("--watch is not allowed with --output=%s: it prints text for people", *out.flags.OutputFormat)
	}
	l, err := o.newLister(f)
	if err != nil {
		return err
	}
	list, err := l.read(ctx)
	if err != nil {
		return err
	}
	return out.print(f.Out, "VolumeList", list)
}

// printTable prints the list for people and, with --watch, what changes.
func (o *volumesOptions) printTable(ctx context.Context, f *factory, wide bool) error {
	l, err := o.newLister(f)
	if err != nil {
		return err
	}
	list, err := l.read(ctx)
	if err != nil {
		return err
	}
	for _, unread := range list.Unread {
		fmt.Fprintln(f.ErrOut, "not read:", unread)
	}
	if len(list.Items) == 0 {
		fmt.Fprintf(f.ErrOut, "No claims of %s found.\n", o.driver)
	}
	columns := inventory.Columns{Namespace: o.all, Used: l.usage != nil, Currency: list.Currency}
	if err := printRows(f.Out, list.Items, columns, printers.PrintOptions{Wide: wide}, o.now()); err != nil || !o.watch {
		return err
	}
	for {
		if err := o.wait(ctx, o.interval); err != nil {
			return ignoreInterrupt(err)
		}
		next, err := l.read(ctx)
		if err != nil {
			return ignoreInterrupt(err)
		}
		changed := inventory.Changed(list.Items, next.Items)
		if err := printRows(f.Out, changed, columns, printers.PrintOptions{Wide: wide, NoHeaders: len(list.Items) > 0}, o.now()); err != nil {
			return err
		}
		list = next
	}
}

// ignoreInterrupt returns nil for the end that the user asked for.
func ignoreInterrupt(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// printRows prints a table, but nothing without rows.
func printRows(to io.Writer, rows []inventory.Row, columns inventory.Columns, options printers.PrintOptions, now time.Time) error {
	if len(rows) == 0 {
		return nil
	}
	table := inventory.Table(rows, columns, now)
	table.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "Table"}
	return printers.NewTablePrinter(options).PrintObj(table, to)
}
