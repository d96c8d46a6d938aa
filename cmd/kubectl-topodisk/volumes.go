package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/topodisk/topodisk/explain/inventory"
	"github.com/topodisk/topodisk/explain/prices"
	"github.com/topodisk/topodisk/explain/survey"
	"github.com/topodisk/topodisk/explain/usage"
	"github.com/topodisk/topodisk/internal/escape"
	"github.com/topodisk/topodisk/internal/sleep"
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

	claims []corev1.PersistentVolumeClaim // that were read, also those of other drivers
}

// newVolumes lists claims.
func newVolumes(f *factory) *cobra.Command {
	o, out := &volumesOptions{now: time.Now, wait: sleep.For}, newOutput("wide")
	cmd := &cobra.Command{
		Use:   "volumes",
		Short: "List claims with zone, node, type, size, use, cost and state",
		Long: "volumes lists the claims of the driver and what becomes of them. The state is Pending, Bound (on no node), Attaching, Attached,\n" +
			"Detaching, Resizing, Modifying, Terminating or Lost, and Unknown of a bound claim if VolumeAttachments can't be read. With\n" +
			"--prometheus it shows how much of a volume is used, as kubelets have told it, and with --prices what a volume costs a month.\n" +
			"--watch reads again every --interval, and prints the claims that have changed, and as Deleted those that are gone. If a read\n" +
			"fails it says so, and goes on with the next.",
		Example: "  kubectl topodisk volumes -A --sort-by=cost --prices=prices.yaml\n" +
			"  kubectl topodisk volumes -n shop -l app=web --prometheus=https://prometheus.example.com",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out.forPrograms() {
				return o.printObject(cmd.Context(), f, out)
			}
			return o.printTable(cmd.Context(), f, *out.flags.OutputFormat == "wide")
		},
	}
	addDriverFlag(cmd, &o.driver)
	flags := cmd.Flags()
	flags.BoolVarP(&o.all, "all-namespaces", "A", false, "list the claims of all namespaces")
	flags.StringVarP(&o.selector, "selector", "l", "", "labels of claims, such as app=web,tier!=cache")
	flags.StringVar(&o.sortBy, "sort-by", "name", "what to sort by: "+strings.Join(inventory.Orders(), ", ")+"; size, used and cost begin with the largest")
	flags.StringVar(&o.prometheus, "prometheus", "", "URL of a Prometheus that scrapes the kubelets, such as https://prometheus.example.com")
	flags.BoolVarP(&o.watch, "watch", "w", false, "keep running: read everything again every --interval, and print the claims that have changed or are gone; not with a format for programs")
	flags.DurationVar(&o.interval, "interval", 5*time.Second, "how often --watch reads; use a longer interval in a large cluster")
	addPricesFlag(cmd, &o.prices)
	out.addFlags(cmd)
	cmd.Flag("output").Usage = "wide for more columns, or a " + cmd.Flag("output").Usage
	return cmd
}

// lister reads the list.
type lister struct {
	options *volumesOptions
	cluster *survey.Reader
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
	list := &volumeList{claims: c.Claims}
	for _, u := range c.Unread {
		facts.AttachmentsUnread = facts.AttachmentsUnread || u.What == survey.Attachments
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
	sayUnread(f, list.Unread, nil)
	if len(list.Items) == 0 {
		fmt.Fprintf(f.ErrOut, "No claims of %s found.\n", o.driver)
	}
	columns := inventory.Columns{Namespace: o.all, Used: l.usage != nil, Currency: list.Currency}
	options := printers.PrintOptions{Wide: wide}
	if err := printRows(f.Out, list.Items, columns, options, o.now()); err != nil || !o.watch {
		return err
	}
	options.NoHeaders = len(list.Items) > 0
	return o.watchRows(ctx, f, l, list, columns, options)
}

// watchRows prints the claims that change or go, and what can't be read whenever that changes, until the user ends it.
func (o *volumesOptions) watchRows(ctx context.Context, f *factory, l *lister, list *volumeList, columns inventory.Columns,
	options printers.PrintOptions) error {
	said := list.Unread
	for {
		if err := o.wait(ctx, o.interval); err != nil {
			return ignoreInterrupt(err)
		}
		next, err := l.read(ctx)
		if ctx.Err() != nil {
			return ignoreInterrupt(ctx.Err())
		}
		if err != nil { // the next read may succeed
			said = sayUnread(f, []string{err.Error()}, said)
			continue
		}
		said = sayUnread(f, next.Unread, said)
		rows := slices.Concat(inventory.Changed(list.Items, next.Items), inventory.Gone(list.Items, next.claims))
		if err := printRows(f.Out, rows, columns, options, o.now()); err != nil {
			return err
		}
		list, options.NoHeaders = next, options.NoHeaders || len(rows) > 0
	}
}

// sayUnread says what could not be read, unless it was said for the read before, and returns it.
func sayUnread(f *factory, unread, before []string) []string {
	for _, u := range unread {
		if !slices.Contains(before, u) {
			fmt.Fprintln(f.ErrOut, "not read:", escape.Text(u))
		}
	}
	return unread
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
