package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/topodisk/topodisk/cmd/internal/cli"
	"github.com/topodisk/topodisk/diskdriver"
	"github.com/topodisk/topodisk/diskdriver/attachment"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/diskdriver/ecs/signature"
	"github.com/topodisk/topodisk/diskdriver/node"
	"github.com/topodisk/topodisk/diskdriver/nodefacts"
	"github.com/topodisk/topodisk/diskdriver/params"
	"github.com/topodisk/topodisk/topology"
)

// The values of --mode.
const (
	modeController = "controller"
	modeNode       = "node"
	modeAll        = "all"
)

// options are the flags.
type options struct {
	mode              string
	endpoint          string
	driverName        string
	region            string
	clusterID         string
	ecsEndpoint       string
	signature         string
	credentialsDir    string
	credentialsFiles  []string
	stsEndpoint       string
	metadataEndpoint  string
	unknownParameters string
	pvTopologyKey     string
	extraTags         map[string]string
	adopted           []string
	restoreFrom       []string
	anySnapshot       bool
	allowMkfs         []string
	allowMount        []string
	allowed           disk.AllowedOptions // what allowMkfs and allowMount say
	forceRegional     bool
	mostWaiting       int
	nodeFacts         bool
	cluster           cli.Cluster
	leaseNamespace    string
	nodeName          string
	kubeletDir        string
	volumeLimit       int
	reserved          int
	blankCheckLimit   int
	nodeDrainTimeout  time.Duration
	removeTaint       bool
	httpEndpoint      string
	shutdownGrace     time.Duration
	log               cli.Log
	showVersion       bool
}

// parse reads the flags; its error names the flag, its value and what is
// allowed.
func parse(args []string, help io.Writer) (*options, error) {
	o := &options{}
	flags := pflag.NewFlagSet("disk-driver", pflag.ContinueOnError)
	cli.SetUsage(flags, help, "disk-driver is the CSI plugin for Alibaba Cloud ECS disks.")
	flags.SortFlags = false
	flags.StringVar(&o.mode, "mode", "controller", "what to serve: controller (CSI Controller, the cloud's side), node (CSI Node, on every node), or all (both in one process)")
	flags.StringVar(&o.endpoint, "endpoint", "", "unix socket to serve CSI on, such as unix:///csi/csi.sock (required)")
	flags.StringVar(&o.driverName, "driver-name", diskdriver.DefaultName, "CSI driver name")
	flags.StringVar(&o.region, "region", "", "ECS region, such as cn-hangzhou (required except in mode node)")
	flags.StringVar(&o.clusterID, "cluster-id", "", "ID of the Kubernetes cluster, which every disk is tagged with; empty: the UID of the namespace kube-system, read from the API server")
	flags.StringVar(&o.ecsEndpoint, "ecs-endpoint", "", "host or URL of ECS; HTTPS unless it starts with http://; empty: the region's own")
	flags.StringVar(&o.signature, "signature", string(signature.V3), "how requests to ECS are signed: v3 (ACS3-HMAC-SHA256), or v1 (HMAC-SHA1, SignatureVersion 1.0, which Alibaba Cloud has discontinued), for an ECS that doesn't know v3")
	flags.StringVar(&o.credentialsDir, "credentials-dir", "", "directory with the files access-key-id, access-key-secret and optionally security-token; empty: the first of OIDC, the environment and the instance's RAM role that is available (docs/credentials.md)")
	flags.StringSliceVar(&o.credentialsFiles, "credentials-files", usualFiles(), "names of the files in --credentials-dir: the access key's ID, its secret, and the token of temporary ones")
	flags.StringVar(&o.stsEndpoint, "sts-endpoint", "", "host or URL of STS, for credentials by OIDC; HTTPS unless it starts with http://; empty: the region's own")
	flags.StringVar(&o.metadataEndpoint, "metadata-endpoint", "", "host or URL of the instance metadata service, for credentials of the instance's RAM role; HTTP unless it starts with https://; empty: http://100.100.100.200")
	flags.StringVar(&o.unknownParameters, "unknown-parameters", string(params.Refuse), "what to do with an unknown StorageClass parameter: refuse or warn")
	flags.StringVar(&o.pvTopologyKey, "pv-topology-key", topology.WellKnownZoneKey, "node label with which a zonal PersistentVolume names its zone: "+topology.WellKnownZoneKey+" or "+topology.ZoneKey)
	flags.StringToStringVar(&o.extraTags, "extra-tags", nil, "tags of every disk and snapshot, key=value[,key=value]; a tag with the same key of the class or the claim overrides it; not the driver's own tags (docs/volumes.md)")
	flags.StringSliceVar(&o.adopted, "adopt-created-by", []string{disk.Creator}, "values of the tag "+disk.CreatedByTag+": disks and snapshots with one of them and this cluster's "+disk.ClusterTag+" count as this cluster's although they have no tag "+disk.OwnerTag+", and disks of PersistentVolumes get that tag at the start; empty once `kubectl topodisk audit` finds none without it (docs/upgrade.md)")
	flags.StringSliceVar(&o.restoreFrom, "restore-from-clusters", nil, "IDs of other clusters whose snapshots may be restored in this one; the RAM policy must allow it, too (docs/security.md)")
	flags.BoolVar(&o.anySnapshot, "allow-snapshot-parameter", false, "let StorageClasses name the snapshot that their disks are made from, whosever it is, in the parameter "+params.SnapshotParameter)
	flags.StringArrayVar(&o.allowMkfs, "allow-mkfs-option", nil, `option that the parameter mkfsOptions of classes may have beyond those of docs/parameters.md, such as "-E packed_meta_blocks", "-O mmp" or "-g"; with a value, such as "-U random", that one alone. It is passed to mkfs as a class has it, so make sure that it does no harm. None can name a file, a directory or a device. Repeat the flag for several, and set it for the controller and all nodes`)
	flags.StringArrayVar(&o.allowMount, "allow-mount-option", nil, `mount option that volumes may have beyond those of docs/parameters.md, such as norecovery; with a value, such as errors=panic, that one alone. It is passed to mount as a class has it, so make sure that it does no harm. None can name a file or a device, or mount something else. Repeat the flag for several, and set it for the controller and all nodes`)
	flags.BoolVar(&o.forceRegional, "force-attach-regional", false, "let a publish detach a regional disk from a node in another zone that still has it, for example when a zone has failed; only for clusters that fence such nodes")
	flags.IntVar(&o.mostWaiting, "max-waiting-calls", 0, "how many publishes, and how many unpublishes, may wait in the driver at a time, so that neither kind takes all of csi-attacher's --worker-threads: a further one is answered with Aborted at once, and from half of it on they wait for shorter times; 0: no limit")
	flags.BoolVar(&o.nodeFacts, "node-facts", true, "publish which disks each node can attach, and how many (docs/node-facts.md); without an API server nothing is published")
	flags.StringVar(&o.cluster.Kubeconfig, "kubeconfig", "", "kubeconfig file, for --node-facts, an empty --cluster-id and the modes node and all; only needed outside of a cluster")
	flags.StringVar(&o.leaseNamespace, "leader-election-namespace", "", "namespace of the Lease with which replicas elect the one that publishes --node-facts; the Pod's own if empty")
	flags.StringVar(&o.nodeName, "node-name", "", "name of the Node object that this process runs on (required in modes node and all)")
	flags.StringVar(&o.kubeletDir, "kubelet-dir", node.DefaultKubeletDir, "root directory of the kubelet, which this process sees under the same path (modes node and all)")
	flags.IntVar(&o.volumeLimit, "volume-attach-limit", 0, "how many volumes the node takes at a time, regardless of what ECS says about its instance type; 0: as many data disks as the instance takes, less those of others (modes node and all; not with --reserved-attachments)")
	flags.IntVar(&o.reserved, "reserved-attachments", 0, "how many of the instance's data disks are reserved for disks that are not this driver's; if more of these are attached, all of them are subtracted (modes node and all)")
	flags.IntVar(&o.blankCheckLimit, "blank-check-limit", node.DefaultBlankCheckLimit/disk.BytesPerGiB, "size in GiB up to which a disk that was attached before, or that the driver didn't make, is read to its end and formatted if every byte of it is zero; a larger one is refused; 0: each is (modes node and all)")
	flags.DurationVar(&o.nodeDrainTimeout, "node-drain-timeout", 5*time.Minute, "how long after SIGTERM the plugin of a node that is being drained waits for its volumes to be unmounted (modes node and all)")
	flags.StringVar(&o.httpEndpoint, "http-endpoint", "", "host:port for /healthz and /metrics; empty: none")
	flags.DurationVar(&o.shutdownGrace, "shutdown-grace-period", 25*time.Second, "how long calls in progress may take to finish after SIGTERM")
	flags.BoolVar(&o.showVersion, "version", false, "print the version and exit")
	o.log.AddFlags(flags)
	// The names that 0.1.0 has are accepted, and help leaves them out.
	flags.BoolVar(&o.removeTaint, "remove-startup-taint", true, "remove the taint "+nodefacts.StartupTaint+" from the Node once the driver is registered there, for which the credentials must be allowed to patch it (modes node and all)")
	flags.DurationVar(&o.nodeDrainTimeout, "departure", o.nodeDrainTimeout, "")
	flags.DurationVar(&o.shutdownGrace, "drain", o.shutdownGrace, "")
	if err := errors.Join(
		flags.MarkDeprecated("departure", "use --node-drain-timeout"),
		flags.MarkDeprecated("drain", "use --shutdown-grace-period"),
	); err != nil {
		return nil, err
	}

	if err := cli.Parse(flags, args); err != nil {
		return nil, err
	}
	if o.showVersion {
		return o, nil
	}
	return o, o.validate()
}

// zoneForm is what zone IDs look like, such as cn-hangzhou-h and ap-southeast-1a, and no region's ID.
var zoneForm = regexp.MustCompile(`[-0-9][a-z]$`)

// validate refuses what the program can't work with.
func (o *options) validate() error {
	onNode, withCloud := o.mode != modeController, o.mode != modeNode
	if !slices.Contains([]string{modeController, modeNode, modeAll}, o.mode) {
		return fmt.Errorf("--mode=%s is not allowed: allowed are %s, %s and %s", o.mode, modeController, modeNode, modeAll)
	}
	for _, required := range []struct {
		name, value, example string
		needed               bool
	}{
		{"endpoint", o.endpoint, "unix:///csi/csi.sock", true},
		{"region", o.region, "cn-hangzhou", withCloud},
		{"node-name", o.nodeName, "cn-hangzhou.192.168.0.1", onNode},
	} {
		if required.value == "" && required.needed {
			return fmt.Errorf("--%s is missing; for example --%s=%s", required.name, required.name, required.example)
		}
	}
	if _, err := diskdriver.SocketPath(o.endpoint); err != nil {
		return fmt.Errorf("--endpoint: %w", err)
	}
	_, _, notAddress := net.SplitHostPort(o.httpEndpoint)
	noFile := func(name string) bool { return name != filepath.Base(name) }
	for _, rule := range []struct {
		flag    string
		value   any
		broken  bool
		allowed string
	}{
		{"region", o.region, zoneForm.MatchString(o.region), "is a region, such as cn-hangzhou or ap-southeast-1, and not a zone"},
		{"unknown-parameters", o.unknownParameters, !slices.Contains([]params.Unknown{params.Refuse, params.Warn}, params.Unknown(o.unknownParameters)),
			fmt.Sprintf("are %s and %s", params.Refuse, params.Warn)},
		{"pv-topology-key", o.pvTopologyKey, !slices.Contains([]string{"", topology.WellKnownZoneKey, topology.ZoneKey}, o.pvTopologyKey),
			fmt.Sprintf("are %s and %s", topology.WellKnownZoneKey, topology.ZoneKey)},
		{"http-endpoint", o.httpEndpoint, o.httpEndpoint != "" && notAddress != nil, "is host:port, such as :9809"},
		{"credentials-files", strings.Join(o.credentialsFiles, ","), len(o.credentialsFiles) != 3 || slices.ContainsFunc(o.credentialsFiles, noFile),
			"are three names of files, such as " + strings.Join(usualFiles(), ",")},
		{"max-waiting-calls", o.mostWaiting, o.mostWaiting < 0, "is a number of calls, or 0 for any"},
		{"volume-attach-limit", o.volumeLimit, o.volumeLimit < 0, "is a number of volumes, or 0 for what the instance takes"},
		{"reserved-attachments", o.reserved, o.reserved < 0, "is a number of disks from 0"},
		{"blank-check-limit", o.blankCheckLimit, o.blankCheckLimit < 0, "is a number of GiB, or 0 for no check"},
		{"node-drain-timeout", o.nodeDrainTimeout, o.nodeDrainTimeout < 0, "is a duration from 0s"},
		{"shutdown-grace-period", o.shutdownGrace, o.shutdownGrace < 0, "is a duration from 0s"},
	} {
		if rule.broken {
			return fmt.Errorf("--%s=%v is not allowed: allowed %s", rule.flag, rule.value, rule.allowed)
		}
	}
	if o.volumeLimit > 0 && o.reserved > 0 {
		return fmt.Errorf("--volume-attach-limit=%d and --reserved-attachments=%d are not allowed together: the limit is the number of volumes itself", o.volumeLimit, o.reserved)
	}
	if err := signature.Version(o.signature).Check(); err != nil {
		return fmt.Errorf("--signature: %w", err)
	}
	for name, list := range map[string][]string{"adopt-created-by": o.adopted, "restore-from-clusters": o.restoreFrom} {
		if slices.Contains(list, "") {
			return fmt.Errorf("--%s=%s is not allowed: one of the values is empty", name, strings.Join(list, ","))
		}
	}
	if err := disk.CheckExtra(o.extraTags); err != nil {
		return fmt.Errorf("--extra-tags: %w", err)
	}
	var err error
	if o.allowed, err = disk.ParseAllowedOptions(o.allowMkfs, o.allowMount); err != nil {
		return err
	}
	return o.log.Validate()
}

// usualFiles are the names that the driver expects if it is told none.
func usualFiles() []string {
	return []string{credentials.UsualFiles.ID, credentials.UsualFiles.Secret, credentials.UsualFiles.Token}
}

// sources returns where credentials may come from.
func (o *options) sources(registry prometheus.Registerer) credentials.Sources {
	return credentials.Sources{
		Directory:        o.credentialsDir,
		Files:            credentials.FileNames{ID: o.credentialsFiles[0], Secret: o.credentialsFiles[1], Token: o.credentialsFiles[2]},
		Region:           o.region,
		STSEndpoint:      o.stsEndpoint,
		MetadataEndpoint: o.metadataEndpoint,
		Registerer:       registry,
	}
}

// ecs returns the part of the options that the ECS client needs.
func (o *options) ecs(provider credentials.Provider, registry prometheus.Registerer) ecs.Config {
	return ecs.Config{
		Region:      o.region,
		Endpoint:    o.ecsEndpoint,
		Credentials: provider,
		ClusterID:   o.clusterID,
		Registerer:  registry,
		UserAgent:   "topodisk/" + version,
		Signature:   signature.Version(o.signature),
	}
}

// driver returns the part of the options that the driver needs.
func (o *options) driver(accounts diskdriver.Accounts, registry prometheus.Registerer) diskdriver.Config {
	return diskdriver.Config{
		Name:          o.driverName,
		Version:       version,
		Region:        o.region,
		ClusterID:     o.clusterID,
		Unknown:       params.Unknown(o.unknownParameters),
		TopologyKey:   o.pvTopologyKey,
		ForceRegional: o.forceRegional, MostWaiting: attachment.Limit(o.mostWaiting),
		Adopted:                o.adopted,
		RestoreFrom:            o.restoreFrom,
		AllowSnapshotParameter: o.anySnapshot,

		ExtraTags:  o.extraTags,
		Allowed:    o.allowed,
		Accounts:   accounts,
		Registerer: registry,
	}
}
