package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/diskdriver/ecs/signature"
	"github.com/topodisk/topodisk/explain/prices"
	"github.com/topodisk/topodisk/explain/survey"
	"github.com/topodisk/topodisk/internal/audit"
	"github.com/topodisk/topodisk/internal/sleep"
)

// auditOptions are the flags of audit.
type auditOptions struct {
	driver           string
	region, endpoint string
	signature        string
	credentialsDir   string
	clusters         []string
	journalNamespace string
	prices           string
	confirm          time.Duration

	now  func() time.Time
	wait func(context.Context, time.Duration) error
}

// newAudit names what has no owner.
func newAudit(f *factory) *cobra.Command {
	o, out := &auditOptions{now: time.Now, wait: sleep.For}, newOutput()
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Find disks, snapshots and attachments that nobody owns, and what they cost",
		Long: "audit compares what ECS has in a region with what the cluster says, and changes nothing. It names disks, snapshots and\n" +
			"temporary copies that nobody owns, PersistentVolumes without a disk, and attachments that nobody wants; and it counts what\n" +
			"other clusters have, by their tag.\n\n" +
			"ECS is read with your own keys, found as disk-driver finds its own: in --credentials-dir, by OIDC, in the environment variables\n" +
			"ALIBABA_CLOUD_ACCESS_KEY_ID and ALIBABA_CLOUD_ACCESS_KEY_SECRET, or by the instance's RAM role. They need ecs:DescribeDisks and\n" +
			"ecs:DescribeSnapshots. Without keys, audit says what the cluster alone tells, and what was not checked.\n\n" +
			"The exit code is 0 if nothing needs an action, 1 if something does, 2 if audit failed, and 3 if nothing that could be read needs\n" +
			"an action and something that may need one was not checked.",
		Example: "  kubectl topodisk audit --region=cn-hangzhou\n" +
			"  kubectl topodisk audit --prices=prices.yaml --output=json",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := o.run(cmd.Context(), f)
			if err != nil {
				return err
			}
			if err := out.show(f.Out, "Audit", report, func(to io.Writer) error { return report.Print(to, o.now()) }); err != nil {
				return err
			}
			return exitCodeOfAudit(report)
		},
	}
	addDriverFlag(cmd, &o.driver)
	flags := cmd.Flags()
	flags.StringVar(&o.region, "region", "", "ECS region, such as cn-hangzhou; empty: the one that the Nodes' label "+corev1.LabelTopologyRegion+" names")
	flags.StringVar(&o.endpoint, "ecs-endpoint", "", "host or URL of ECS; HTTPS unless it starts with http://; empty: the region's own")
	flags.StringVar(&o.signature, "signature", string(signature.V3), "how requests to ECS are signed: v3, or v1 for an ECS that doesn't know v3")
	flags.StringVar(&o.credentialsDir, "credentials-dir", "", "directory with the files access-key-id, access-key-secret and optionally security-token")
	flags.StringSliceVar(&o.clusters, "cluster-id", nil, "ID of this cluster, as disk-driver's flag of that name; may be given several times; empty: that of the PersistentVolumes' disks")
	flags.StringVar(&o.journalNamespace, "topodisk-namespace", "", "namespace that disk-provisioner runs in, which has its journal; empty: the one that has its Lease")
	flags.DurationVar(&o.confirm, "confirm-after", audit.Lag, "findings are read again after this time, so that nothing is reported that is being created or deleted")
	addPricesFlag(cmd, &o.prices)
	out.addFlags(cmd)
	return cmd
}

func exitCodeOfAudit(report *audit.Report) error {
	return exitCode(!report.Clean(), !report.Complete())
}

// run reads, compares and prices.
func (o *auditOptions) run(ctx context.Context, f *factory) (*audit.Report, error) {
	if o.confirm < audit.Lag {
		return nil, usagef("--confirm-after=%s is not allowed: allowed is %s or more, for reads of ECS may lag by that", o.confirm, audit.Lag)
	}
	table, err := readPrices(o.prices)
	if err != nil {
		return nil, err
	}
	cluster, err := newSurvey(f, o.driver)
	if err != nil {
		return nil, err
	}
	cluster.JournalNamespace, cluster.Now = o.journalNamespace, o.now
	region, unknown := o.regionOf(ctx, cluster.Client)
	options := audit.Options{Clusters: o.clusters, Region: region, TagCommands: survey.TagCommands(region)}
	namespace, err := cluster.Client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err == nil {
		options.DefaultCluster = string(namespace.UID) // as disk-driver takes it if it is told none
	}
	source := &auditSource{cluster: cluster, options: o, region: region, unknown: unknown}
	report, err := audit.Run(ctx, source, options, func(ctx context.Context, found int) error { return o.pause(ctx, f, found) })
	if err != nil {
		return nil, err
	}
	if table != nil {
		report.Price(table.Currency, table.PerMonth)
	}
	return report, nil
}

// pause says why it takes a while, and waits.
func (o *auditOptions) pause(ctx context.Context, f *factory, found int) error {
	fmt.Fprintf(f.ErrOut, "%d found; they are read again in %s, so that nothing is named that is being made or deleted\n", found, o.confirm)
	return o.wait(ctx, o.confirm)
}

// regionOf returns the region of the flag, or else of a Node's label; an error if neither tells.
func (o *auditOptions) regionOf(ctx context.Context, client kubernetes.Interface) (string, error) {
	if o.region != "" {
		return o.region, nil
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: corev1.LabelTopologyRegion, Limit: 1})
	if err != nil {
		return "", fmt.Errorf("no Node's label %s can be read: %w", corev1.LabelTopologyRegion, err)
	}
	if len(nodes.Items) == 0 || nodes.Items[0].Labels[corev1.LabelTopologyRegion] == "" {
		return "", errors.New("no Node has the label " + corev1.LabelTopologyRegion)
	}
	return nodes.Items[0].Labels[corev1.LabelTopologyRegion], nil
}

// auditSource reads ECS and the cluster.
type auditSource struct {
	cluster *survey.Reader
	options *auditOptions
	region  string
	unknown error // why there is no region
}

// Cluster reads the API server.
func (s *auditSource) Cluster(ctx context.Context) (audit.Cluster, error) { return s.cluster.Read(ctx) }

// Listing reads ECS with the user's keys. What speaks against that is said in the report.
func (s *auditSource) Listing(ctx context.Context) (audit.Listing, error) {
	if s.region == "" {
		return survey.WithoutECS(s.unknown.Error() + "; set --region"), nil
	}
	keys, from, err := credentials.Choose(credentials.Sources{Directory: s.options.credentialsDir, Region: s.region})
	if err != nil {
		return survey.WithoutECS(err.Error()), nil
	}
	client, err := ecs.NewClient(ecs.Config{
		Region: s.region, Endpoint: s.options.endpoint, Credentials: keys, ClusterID: "audit", UserAgent: "kubectl-topodisk/" + version,
		Signature: signature.Version(s.options.signature),
	})
	if err != nil {
		return audit.Listing{}, usagef("--region=%s --ecs-endpoint=%s --signature=%s: %v", s.region, s.options.endpoint, s.options.signature, err)
	}
	if _, err := keys.Get(ctx); err != nil && ctx.Err() == nil {
		return survey.WithoutECS(fmt.Sprintf("no keys from %s: %v; set ALIBABA_CLOUD_ACCESS_KEY_ID and ALIBABA_CLOUD_ACCESS_KEY_SECRET", from, err)), nil
	}
	return survey.Listing(ctx, client)
}

// newSurvey returns a reader of the cluster that kubectl's flags name.
func newSurvey(f *factory, driver string) (*survey.Reader, error) {
	client, objects, err := f.clients()
	return &survey.Reader{Client: client, Dynamic: objects, Driver: driver, Now: time.Now}, err
}

// addPricesFlag adds --prices to a command.
func addPricesFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "prices", "", "file with a price table in YAML: currency, and perGiBMonth with prices by category[/performance level][/zone] and of snapshot")
}

// readPrices reads a price table; nil if no file is named.
func readPrices(file string) (*prices.Table, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // No table is no error.
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--prices: %w", err)
	}
	table, err := prices.Parse(text)
	if err != nil {
		return nil, usagef("--prices=%s: %s", file, strings.TrimSpace(err.Error()))
	}
	return table, nil
}
