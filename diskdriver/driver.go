package diskdriver

import (
	"fmt"
	"regexp"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/topodisk/topodisk/diskdriver/attachment"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/params"
	"github.com/topodisk/topodisk/diskdriver/suspension"
	"github.com/topodisk/topodisk/topology"
)

// DefaultName is the CSI driver name that existing StorageClasses and
// PersistentVolumes of ECS disks carry.
const DefaultName = "diskplugin.csi.alibabacloud.com"

// Config says what a Driver works for.
type Config struct {
	// Name is the CSI driver name; empty stands for DefaultName.
	Name string
	// Version is what GetPluginInfo answers as the vendor version.
	Version string
	// Region is the ECS region of the cluster, such as cn-hangzhou. Required.
	Region string
	// ClusterID is the value of the tag disk.ClusterTag on every disk. Required.
	ClusterID string
	// Adopted are values of the tag disk.CreatedByTag: what these programs made
	// for the cluster before there was a tag disk.OwnerTag is the cluster's own.
	Adopted []string
	// RestoreFrom are the IDs of other clusters whose snapshots may be restored.
	RestoreFrom []string
	// AllowSnapshotParameter lets a class name the snapshot that its disks are
	// made from, whosever it is.
	AllowSnapshotParameter bool
	// Unknown says what to do with an unknown StorageClass parameter; empty
	// stands for params.Refuse.
	Unknown params.Unknown
	// TopologyKey is the key under which a zonal volume's zone is answered, if
	// the topology requirement has it: topology.ZoneKey or, by default,
	// topology.WellKnownZoneKey.
	TopologyKey string
	// ForceRegional lets a publish take a regional disk from another instance
	// that has it still, as when a zone has failed. It is for whoever makes sure
	// by other means that the instance doesn't write any more.
	ForceRegional bool
	// MostWaiting is how many publishes, and as many unpublishes, wait in the driver
	// at a time, so that neither takes all workers of csi-attacher; 0 is any number.
	MostWaiting attachment.Limit
	// ExtraTags are put on every disk and snapshot, unless its class or claim says
	// otherwise of a key.
	ExtraTags disk.Tags
	// Allowed are options of mkfs and mount that the operator allows.
	Allowed disk.AllowedOptions
	// Accounts opens the accounts that requests name by their secrets; nil
	// refuses requests with secrets.
	Accounts Accounts
	// Nodes knows instances; nil: nothing is known of any. What it knows to be
	// impossible is refused without asking ECS.
	Nodes Nodes
	// Registerer takes the metrics; nil keeps them unregistered.
	Registerer prometheus.Registerer
	// OnReady is called when ECS answers (nil) or why it doesn't, whenever that
	// changes; nil for none. It must not block.
	OnReady func(error)
}

// owner decides what is the cluster's own.
func (c Config) owner() disk.Owner {
	return disk.Owner{Region: c.Region, Cluster: c.ClusterID, Adopted: c.Adopted, Sources: c.RestoreFrom}
}

// known returns what is known of an instance.
func (c Config) known(id disk.InstanceID) disk.Instance {
	if c.Nodes == nil {
		return disk.Instance{}
	}
	i, _ := c.Nodes.Instance(id)
	return i
}

// region returns the region that an instance is in, empty if that is not known.
func (c Config) region(id disk.InstanceID) string {
	if c.Nodes == nil {
		return ""
	}
	return c.Nodes.Region(id)
}

// nameForm is the form of a CSI driver name (spec, GetPluginInfoResponse.name).
var nameForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$`)

// nameOr returns a driver's name, or the default for none.
func nameOr(name string) (string, error) {
	if name == "" {
		return DefaultName, nil
	}
	if !nameForm.MatchString(name) {
		return "", fmt.Errorf("driver name %q: allowed are at most 63 letters, digits, dots and dashes, such as %s", name, DefaultName)
	}
	return name, nil
}

// complete checks the Config and fills in its defaults.
func (c Config) complete() (Config, error) {
	name, err := nameOr(c.Name)
	if err != nil {
		return Config{}, err
	}
	c.Name = name
	if c.Unknown == "" {
		c.Unknown = params.Refuse
	}
	if c.TopologyKey == "" {
		c.TopologyKey = topology.WellKnownZoneKey
	}
	switch {
	case c.Region == "":
		return Config{}, fmt.Errorf("region is missing; it is an ECS region such as cn-hangzhou")
	case c.ClusterID == "" || len(c.ClusterID) > 128:
		return Config{}, fmt.Errorf("cluster ID %q: 1 to 128 bytes are required, such as c0123456789abcdef", c.ClusterID)
	case c.Unknown != params.Refuse && c.Unknown != params.Warn:
		return Config{}, fmt.Errorf("treatment of unknown parameters %q: allowed are %s and %s", c.Unknown, params.Refuse, params.Warn)
	case c.TopologyKey != topology.WellKnownZoneKey && c.TopologyKey != topology.ZoneKey:
		return Config{}, fmt.Errorf("PV topology key %q: allowed are %s and %s", c.TopologyKey, topology.WellKnownZoneKey, topology.ZoneKey)
	}
	if c.MostWaiting < 0 {
		return Config{}, fmt.Errorf("most waiting calls %d: allowed is a number of calls, or 0 for any", c.MostWaiting)
	}
	if err := disk.CheckExtra(c.ExtraTags); err != nil {
		return Config{}, fmt.Errorf("extra tags: %w", err)
	}
	return c, nil
}

// Driver answers the CSI services: Identity; Controller and GroupController
// unless it is that of a node alone; Node if there is one.
type Driver struct {
	readiness  *readiness // nil on a node: nobody there calls ECS
	metrics    *metrics
	identity   *identity
	controller *controller    // nil on a node
	accounts   *accounts      // nil on a node
	node       csi.NodeServer // nil but on a node
	inflight   *inflight
	watch      suspension.Watch // notices none on a node
}

// New returns a Driver; its error names what is wrong in the Config and what
// is allowed. It calls nothing: Run does.
func New(config Config, ecs ECS) (*Driver, error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	m, attachments := newMetrics(), attachment.NewTable(config.MostWaiting)
	if config.Registerer != nil {
		if err := m.register(config.Registerer, attachments); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	readiness := &readiness{cloud: ecs, ready: m.ready, notify: config.OnReady}
	controller := newController(config, ecs, attachments)
	return &Driver{
		readiness:  readiness,
		metrics:    m,
		identity:   &identity{name: config.Name, version: config.Version, readiness: readiness},
		controller: controller,
		accounts:   newAccounts(config.Accounts, controller),
		inflight:   newInflight(),
	}, nil
}

// NewNode returns the Driver of a node alone, which calls nobody. Its error
// names what is wrong with the name.
func NewNode(name, version string, registerer prometheus.Registerer, node csi.NodeServer) (*Driver, error) {
	name, err := nameOr(name)
	if err != nil {
		return nil, err
	}
	m := newMetrics()
	if registerer != nil {
		if err := m.register(registerer); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return &Driver{
		metrics:  m,
		identity: &identity{name: name, version: version},
		node:     node,
		inflight: newInflight(),
	}, nil
}

// WithNode lets a Driver answer the Node service, too. It is called before Run.
func (d *Driver) WithNode(node csi.NodeServer) { d.node = node }

// register adds the services to a gRPC server.
func (d *Driver) register(s grpc.ServiceRegistrar) {
	csi.RegisterIdentityServer(s, d.identity)
	if d.controller != nil {
		csi.RegisterControllerServer(s, d.controller)
		csi.RegisterGroupControllerServer(s, d.controller)
	}
	if d.node != nil {
		csi.RegisterNodeServer(s, d.node)
	}
}
