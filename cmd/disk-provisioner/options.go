package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/cmd/internal/cli"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/internal/leader"
	"github.com/topodisk/topodisk/provisioner"
	"github.com/topodisk/topodisk/provisioner/claim"
	"github.com/topodisk/topodisk/provisioner/request"
)

// options are the command line.
type options struct {
	config provisioner.Config

	csiAddress     string
	cluster        cli.Cluster
	kubeAPIQPS     float32
	kubeAPIBurst   int
	httpEndpoint   string
	metricsAddress string
	metricsPath    string
	pprof          bool
	log            cli.Log
	topologyGate   bool
	showVersion    bool

	leaderElection                            bool
	leaseNamespace                            string
	leaseDuration, renewDeadline, retryPeriod time.Duration
	leaseLabels                               map[string]string
	takeover                                  bool
	csiDriverLabels                           map[string]string
	ownerLevel                                int
	rescheduleCodes                           []string

	provisioner        string // v1.6: the driver's name, or an error
	connectionTimeout  time.Duration
	leaderElectionType string
	featureGates       string
}

// parse parses the command line, and prints warnings and the help to out.
func parse(args []string, out io.Writer) (*options, error) {
	o := &options{topologyGate: true, config: provisioner.Config{Config: claim.Config{AttributesClasses: true}}}
	flags := o.flags(out)
	if err := cli.Parse(flags, args, commands()...); err != nil {
		return nil, err
	}
	if o.showVersion {
		return o, nil
	}
	if err := o.replace(flags, out); err != nil {
		return nil, err
	}
	var err error
	if o.config.RescheduleCodes, err = provisioner.ParseRescheduleCodes(o.rescheduleCodes); err != nil {
		return nil, fmt.Errorf("--reschedule-codes: %w", err)
	}
	o.config.Namespace = cmp.Or(o.leaseNamespace, cli.PodNamespace())
	return o, o.validate()
}

// checkTags returns an error for labels that can't become tags.
func (o *options) checkTags() error {
	for flag, keys := range map[string][]string{"claim-label-tags": o.config.ClaimLabelTags, "namespace-label-tags": o.config.NamespaceLabelTags} {
		for _, key := range keys {
			if err := disk.CheckTag(key, ""); err != nil {
				return fmt.Errorf("--%s: label %s can't become a tag: %w", flag, key, err)
			}
		}
		if len(keys) > disk.MostUserTags {
			return fmt.Errorf("--%s: %d labels; at most %d are allowed, for a disk has room for %d tags and the driver needs the rest", flag, len(keys), disk.MostUserTags, disk.MostTags)
		}
	}
	return nil
}

func (o *options) flags(out io.Writer) *pflag.FlagSet {
	f := pflag.NewFlagSet("disk-provisioner", pflag.ContinueOnError)
	cli.SetUsage(f, out, "disk-provisioner provisions PersistentVolumes for claims and deletes released ones, through a CSI driver.", commands()...)
	f.SortFlags = true
	c := &o.config
	f.StringVar(&o.csiAddress, "csi-address", "/run/csi/socket", "unix socket of the CSI driver")
	o.cluster.AddFlags(f)
	f.StringVar(&c.VolumeNamePrefix, "volume-name-prefix", "pvc", "CSI volume name = <prefix>-<claim UID>")
	f.StringVar((*string)(&c.PVNameSource), "pv-name-source", string(request.VolumeID), "what a PersistentVolume is named after: volume-id (the disk's ID) or volume-name (<prefix>-<claim UID>)")
	f.DurationVar(&c.Timeout, "timeout", 10*time.Second, "timeout of each call to the CSI driver")
	f.DurationVar(&c.RetryStart, "retry-interval-start", time.Second, "back-off after a first failure; doubles with each further one")
	f.DurationVar(&c.RetryMax, "retry-interval-max", 5*time.Minute, "longest back-off")
	f.IntVar(&c.Workers, "worker-threads", 100, "claims of one namespace that are provisioned at the same time, but for a quarter more, for some of them wait for the journal, and volumes of its claims that are deleted; twice as many of all namespaces")
	f.BoolVar(&c.StrictTopology, "strict-topology", false, "require the selected node's topology; a class may override this with topodisk.io/strict-topology")
	f.BoolVar(&c.ImmediateTopology, "immediate-topology", true, "pass the cluster's zones to the driver for Immediate claims of classes without allowedTopologies")
	f.StringSliceVar(&o.rescheduleCodes, "reschedule-codes", nil, "gRPC codes of CreateVolume that send a claim with a selected node back to the scheduler, in addition to ResourceExhausted; for example InvalidArgument, for drivers that return it if a node can't have the volume")
	f.StringSliceVar(&c.ClaimAnnotations, "claim-annotations", []string{"alibabacloud.com/kms-key-id"}, "annotations of claims that are passed to the driver with the class's parameters; a claim with any other annotation that would be a parameter is refused")
	f.StringSliceVar(&c.ClaimLabelTags, "claim-label-tags", nil, "labels of claims that become tags of their disks, KEY,...; a tag with the same key of the class overrides it; not the driver's own tags")
	f.StringSliceVar(&c.NamespaceLabelTags, "namespace-label-tags", nil, "labels of namespaces that become tags of the disks of their claims, KEY,...; a tag with the same key of the class or the claim overrides it; namespaces are then watched")
	f.BoolVar(&c.PreventModeConversion, "prevent-volume-mode-conversion", true, "a restored volume must have the mode (Filesystem or Block) of the volume that the snapshot is of, unless the VolumeSnapshotContent's annotation allows another")
	f.DurationVar(&c.SnapshotSweep, "snapshot-orphan-sweep-interval", 5*time.Minute, "how often to look for VolumeSnapshots that were left with the finalizer that protects sources; 0 never")
	f.BoolVar(&c.ReadOnlyPublish, "controller-publish-readonly", false, "publish volumes of claims whose only access mode is ReadOnlyMany as read-only")
	f.BoolVar(&c.ExtraCreateMetadata, "extra-create-metadata", false, "pass the claim's name and namespace to the driver")
	f.StringVar(&c.DefaultFSType, "default-fstype", "ext4", "file system for classes that name none")
	f.StringVar(&c.ExtraLabelPrefix, "extra-topology-label-prefix", "node.csi.alibabacloud.com/disktype.", "labels of the selected node with this prefix are passed to the driver with its topology; empty passes none")
	f.DurationVar(&c.NodeGrace, "node-grace", time.Minute, "how long a selected node may be without the driver before the claim goes back to the scheduler")
	f.BoolVar(&c.PodClaims, "pod-claims-together", true, "save the volumes of a Pod's claims together, and move all of its claims to another zone if one of them can't have a volume; for this Pods without a node are watched")
	f.Var((*capacitySwitch)(&c.Capacity), "enable-capacity", "publish CSIStorageCapacity objects, so that the scheduler avoids zones without stock: true, false, which undoes an earlier true, or central, which is csi-provisioner 2's name for true")
	f.Lookup("enable-capacity").NoOptDefVal = "true"
	f.DurationVar(&c.CapacityPoll, "capacity-poll-interval", time.Minute, "how often the capacity of every class and zone is read from the driver")
	f.IntVar(&o.ownerLevel, "capacity-ownerref-level", 1, "owner of the CSIStorageCapacity objects, with which they are deleted: 0 the Pod named by the environment's POD_NAME, 1 its owner (a ReplicaSet, say), 2 the owner's owner (a Deployment); -1 no owner")
	f.Float32Var(&o.kubeAPIQPS, "kube-api-qps", 100, "writes a second to the API server, and as many reads; events, the journal and the Lease are not counted")
	f.IntVar(&o.kubeAPIBurst, "kube-api-burst", 200, "writes to the API server that may exceed --kube-api-qps for a moment, and as many reads")
	f.StringVar(&o.httpEndpoint, "http-endpoint", "", "address for /metrics, /healthz and /readyz, such as 127.0.0.1:8080; empty serves none")
	f.StringVar(&o.metricsPath, "metrics-path", "/metrics", "path of the metrics")
	f.BoolVar(&o.leaderElection, "leader-election", false, "elect a leader among several replicas")
	f.StringVar(&o.leaseNamespace, "leader-election-namespace", "", "namespace of the Lease, of the journal's ConfigMaps and of the CSIStorageCapacity objects; the Pod's own if empty")
	f.DurationVar(&o.leaseDuration, "leader-election-lease-duration", 15*time.Second, "how long a Lease is valid without being renewed")
	f.DurationVar(&o.renewDeadline, "leader-election-renew-deadline", 10*time.Second, "how long a leader retries to renew its Lease before it stops")
	f.DurationVar(&o.retryPeriod, "leader-election-retry-period", 5*time.Second, "interval of attempts to acquire or renew the Lease")
	f.StringToStringVar(&o.leaseLabels, "leader-election-labels", nil, "labels of the Lease, KEY=VALUE,...")
	f.BoolVar(&o.takeover, "takeover", false, "provision and delete although another provisioner of the driver's name renews a Lease of its own in kube-system; without it this one ends, and waits until that one has ended")
	f.StringToStringVar(&o.csiDriverLabels, "csi-driver-labels", nil, "labels that the CSIDriver object was installed with, KEY=VALUE,...; an event and a metric tell if it has others or another spec; empty: it is not looked at")
	f.BoolVar(&o.pprof, "enable-pprof", false, "serve profiles below /debug/pprof/ of --http-endpoint")
	o.log.AddFlags(f)
	f.BoolVar(&o.showVersion, "version", false, "print the version and exit")
	f.StringVar(&o.featureGates, "feature-gates", "", "of "+strings.Join(gateNames(), ", ")+", each as NAME=true|false")
	f.StringVar(&o.provisioner, "provisioner", "", "")
	f.StringVar(&o.metricsAddress, "metrics-address", "", "")
	f.BoolVar(&o.leaderElection, "enable-leader-election", false, "")
	f.StringVar(&o.leaderElectionType, "leader-election-type", "", "")
	f.DurationVar(&o.connectionTimeout, "connection-timeout", 0, "")
	for name, without := range idle {
		f.String(name, "", "")
		if switches[name] {
			f.Lookup(name).NoOptDefVal = "true"
		}
		_ = f.MarkDeprecated(name, "it does nothing: "+without)
	}
	for name, instead := range replaced {
		_ = f.MarkDeprecated(name, instead)
	}
	for name, why := range refused {
		f.String(name, "", "refused: "+why)
		f.Lookup(name).NoOptDefVal = "true"
		_ = f.MarkHidden(name)
	}
	return f
}

// capacitySwitch is --enable-capacity, with the values that csi-provisioner has
// had in all its versions.
type capacitySwitch bool

func (c *capacitySwitch) String() string { return strconv.FormatBool(bool(*c)) }

func (c *capacitySwitch) Type() string { return "bool" }

func (c *capacitySwitch) Set(value string) error {
	switch value {
	case "central":
		*c = true
		return nil
	case "local":
		return errors.New(centralAlone)
	}
	on, err := strconv.ParseBool(value)
	if err != nil {
		return errors.New("allowed are true, false and central")
	}
	*c = capacitySwitch(on)
	return nil
}

// logFlushInterval is how long a line of the log may be kept.
const logFlushInterval = 5 * time.Second

// capacityQPS and capacityBurst limit the requests for CSIStorageCapacity objects. csi-provisioner's 1 and 5 would tell of a zone that has sold out
// too late.
const capacityQPS, capacityBurst = 10, 20

// replaced are flags of csi-provisioner that are accepted for old manifests, and what stands for them.
var replaced = map[string]string{
	"provisioner":            "the driver reports its name; a driver of another name is refused",
	"connection-timeout":     "there is no limit to the wait for the socket",
	"enable-leader-election": "use --leader-election",
	"leader-election-type":   "leases are the only kind",
	"metrics-address":        "use --http-endpoint",
}

// idle are flags of csi-provisioner that have no effect, and why.
var idle = map[string]string{
	"automaxprocs":              "the Go runtime keeps to the container's processor limit by itself",
	"log-json-split-stream":     "the whole log goes to standard error",
	"log-json-info-buffer-size": "the log is not buffered",
	"log-text-split-stream":     "the whole log goes to standard error",
	"log-text-info-buffer-size": "the log is not buffered",
	"log-flush-frequency":       "the log is not buffered for longer than five seconds",

	"volume-name-uuid-length":        "the name of a volume has the whole UID of its claim",
	"cloning-protection-threads":     "finalizers of sources are removed one after the other",
	"capacity-threads":               "the capacities of classes are read one after the other",
	"capacity-for-immediate-binding": "the scheduler reads the capacities of classes with WaitForFirstConsumer only",
	"kube-api-capacity-qps":          "CSIStorageCapacity objects are written at 10 a second",
	"kube-api-capacity-burst":        "20 CSIStorageCapacity objects may be written at once",
}

// switches are those of idle that need no value.
var switches = map[string]bool{
	"automaxprocs": true, "log-json-split-stream": true, "log-text-split-stream": true, "capacity-for-immediate-binding": true,
}

// refused are flags of csi-provisioner that this program can't support, and why.
var refused = map[string]string{
	"node-deployment":                   centralAlone,
	"node-deployment-immediate-binding": centralAlone,
	"node-deployment-base-delay":        centralAlone,
	"node-deployment-max-delay":         centralAlone,
}

const centralAlone = "one provisioner serves the whole cluster, not one on each node; run it in a Deployment without the flag"

// replace does what the flags of old manifests ask for, or says why it can't be done.
func (o *options) replace(flags *pflag.FlagSet, out io.Writer) error {
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		if flag := flags.Lookup(name); flag.Changed && flag.Value.String() != "false" {
			return fmt.Errorf("--%s=%s: %s", name, flag.Value, refused[name])
		}
	}
	switch o.leaderElectionType {
	case "", "leases":
	case "endpoints":
		fmt.Fprintln(out, "disk-provisioner: --leader-election-type=endpoints: Kubernetes no longer has such locks, leases are used")
	default:
		return fmt.Errorf("--leader-election-type=%s; allowed is leases", o.leaderElectionType)
	}
	if o.metricsAddress != "" {
		if o.httpEndpoint != "" {
			return errors.New("--metrics-address and --http-endpoint are both set; keep --http-endpoint")
		}
		o.httpEndpoint = o.metricsAddress
	}
	return o.gates(out)
}

func (o *options) gates(out io.Writer) error {
	for _, gate := range strings.FieldsFunc(o.featureGates, func(r rune) bool { return r == ',' }) {
		name, value, _ := strings.Cut(gate, "=")
		name = strings.TrimSpace(name)
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		if err != nil || !slices.Contains(gateNames(), name) {
			return fmt.Errorf("--feature-gates=%s: %q is unknown; allowed are %s, each as NAME=true|false", o.featureGates, gate, strings.Join(gateNames(), ", "))
		}
		switch set := o.gateTable()[name]; {
		case set != nil:
			*set = on
		case !on:
			return fmt.Errorf("--feature-gates=%s: %s can't be disabled", o.featureGates, name)
		}
		if on && name != "CrossNamespaceVolumeDataSource" {
			fmt.Fprintf(out, "disk-provisioner: --feature-gates=%s is on by default\n", name)
		}
	}
	return nil
}

// gateTable returns what each feature gate sets; nil for gates that are always on.
func (o *options) gateTable() map[string]*bool {
	return map[string]*bool{
		"Topology":                       &o.topologyGate,
		"CrossNamespaceVolumeDataSource": &o.config.CrossNamespace,
		"VolumeAttributesClass":          &o.config.AttributesClasses,
		"ReleaseLeaderElectionOnExit":    nil,
		"HonorPVReclaimPolicy":           nil,
	}
}

func gateNames() []string { return slices.Sorted(maps.Keys((&options{}).gateTable())) }

func (o *options) validate() error {
	config := o.config
	if config.DriverName == "" {
		config.DriverName = "known after connecting"
	}
	if err := config.Validate(); err != nil {
		return err
	}
	if err := o.checkTags(); err != nil {
		return err
	}
	if err := o.checkMetricsPath(); err != nil {
		return err
	}
	stored := o.leaseDuration.Truncate(time.Second)
	switch {
	case o.csiAddress == "":
		return errors.New("--csi-address is empty; it is the driver's unix socket, such as /csi/csi.sock")
	case o.kubeAPIQPS <= 0:
		return fmt.Errorf("--kube-api-qps=%g; it must be positive", o.kubeAPIQPS)
	case o.kubeAPIBurst < 1:
		return fmt.Errorf("--kube-api-burst=%d; it must be at least 1", o.kubeAPIBurst)
	case o.ownerLevel < -1:
		return fmt.Errorf("--capacity-ownerref-level=%d; allowed are -1 (nobody), 0 (the Pod) and more", o.ownerLevel)
	case o.pprof && o.httpEndpoint == "":
		return errors.New("--enable-pprof needs --http-endpoint, where the profiles are served")
	case stored <= o.renewDeadline:
		return fmt.Errorf("--leader-election-lease-duration=%s, of which the Lease stores %s, must be longer than --leader-election-renew-deadline=%s",
			o.leaseDuration, stored, o.renewDeadline)
	case o.renewDeadline <= o.retryPeriod*12/10:
		return fmt.Errorf("--leader-election-renew-deadline=%s must be longer than 1.2 times --leader-election-retry-period=%s", o.renewDeadline, o.retryPeriod)
	}
	return o.log.Validate()
}

func (o *options) restConfig(qps float32, burst int) (*rest.Config, error) {
	config, err := o.cluster.RESTConfig()
	if err != nil {
		return nil, err
	}
	config.ContentType, config.QPS, config.Burst = protobuf, qps, burst
	return config, nil
}

// startLog configures the log.
func (o *options) startLog() {
	o.log.Start(os.Stderr)
	klog.StartFlushDaemon(logFlushInterval)
}

const protobuf = "application/vnd.kubernetes.protobuf"

func (o *options) lease() *leader.Lease {
	return &leader.Lease{Namespace: o.config.Namespace, LeaseDuration: o.leaseDuration, RenewDeadline: o.renewDeadline, RetryPeriod: o.retryPeriod,
		Labels: o.leaseLabels}
}

// identity is unique to this process, in the form that csi-provisioner uses.
func identity(driver string) string {
	return fmt.Sprintf("%d-%d-%s", time.Now().UnixMilli(), rand.IntN(10000), driver)
}
