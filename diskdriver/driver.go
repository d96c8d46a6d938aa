// Package diskdriver is a CSI plugin (container-storage-interface, v1) for ECS
// disks: gRPC comes in, calls of package disk's nouns go out. It decides which
// zones and disk types to try, and when a disk is the one asked for; how ECS is
// called is the business of whoever implements Disks and Cloud.
package diskdriver

import (
	"fmt"
	"regexp"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/topodisk/topodisk/diskdriver/disk"
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
	// Unknown says what to do with an unknown StorageClass parameter; empty
	// stands for disk.Refuse.
	Unknown disk.Unknown
	// TopologyKey is the key under which a zonal volume's zone is answered, if
	// the topology requirement has it: topology.ZoneKey or, by default,
	// topology.WellKnownZoneKey.
	TopologyKey string
	// ForceRegional lets a publish take a regional disk from an instance of
	// another zone that has it still, as when a zone has failed. It is for
	// whoever makes sure by other means that the instance doesn't write any more.
	ForceRegional bool
	// Accounts opens the accounts that requests name by their secrets; nil
	// refuses requests with secrets.
	Accounts Accounts
	// Nodes knows instances; nil: nothing is known of any. What it knows to be
	// impossible is refused without asking ECS.
	Nodes Nodes
	// Registerer takes the metrics; nil keeps them unregistered.
	Registerer prometheus.Registerer
}

// known returns what is known of an instance.
func (c Config) known(id disk.InstanceID) disk.Instance {
	if c.Nodes == nil {
		return disk.Instance{}
	}
	i, _ := c.Nodes.Instance(id)
	return i
}

// nameForm is the form of a CSI driver name (spec, GetPluginInfoResponse.name).
var nameForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$`)

// complete checks the Config and fills in its defaults.
func (c Config) complete() (Config, error) {
	if c.Name == "" {
		c.Name = DefaultName
	}
	if c.Unknown == "" {
		c.Unknown = disk.Refuse
	}
	if c.TopologyKey == "" {
		c.TopologyKey = topology.WellKnownZoneKey
	}
	switch {
	case !nameForm.MatchString(c.Name):
		return Config{}, fmt.Errorf("driver name %q: allowed are at most 63 letters, digits, dots and dashes, such as %s", c.Name, DefaultName)
	case c.Region == "":
		return Config{}, fmt.Errorf("region is missing; it is an ECS region such as cn-hangzhou")
	case c.ClusterID == "" || len(c.ClusterID) > 128:
		return Config{}, fmt.Errorf("cluster ID %q: 1 to 128 bytes are required, such as c0123456789abcdef", c.ClusterID)
	case c.Unknown != disk.Refuse && c.Unknown != disk.Warn:
		return Config{}, fmt.Errorf("treatment of unknown parameters %q: allowed are %s and %s", c.Unknown, disk.Refuse, disk.Warn)
	case c.TopologyKey != topology.WellKnownZoneKey && c.TopologyKey != topology.ZoneKey:
		return Config{}, fmt.Errorf("PV topology key %q: allowed are %s and %s", c.TopologyKey, topology.WellKnownZoneKey, topology.ZoneKey)
	}
	return c, nil
}

// Driver answers the CSI services of the controller: Identity, Controller and
// GroupController.
type Driver struct {
	readiness  *readiness
	metrics    *metrics
	identity   *identity
	controller *controller
	groups     *groupController
	accounts   *accounts
	inflight   *inflight
	chain      grpc.UnaryServerInterceptor
}

// New returns a Driver; its error names what is wrong in the Config and what
// is allowed. It calls nothing: Run does.
func New(config Config, ecs ECS) (*Driver, error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	m := newMetrics()
	if config.Registerer != nil {
		if err := m.register(config.Registerer); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	readiness := &readiness{cloud: ecs, ready: m.ready}
	inflight := newInflight()
	controller := newController(config, ecs)
	accounts := newAccounts(config.Accounts, controller)
	return &Driver{
		readiness:  readiness,
		metrics:    m,
		identity:   &identity{name: config.Name, version: config.Version, readiness: readiness},
		controller: controller,
		groups:     &groupController{controller: controller},
		accounts:   accounts,
		inflight:   inflight,
		chain:      chain(recoverPanics(m.panics), logCalls, m.measure, translate, inflight.refuse, accounts.serve),
	}, nil
}

// register adds the services to a gRPC server.
func (d *Driver) register(s grpc.ServiceRegistrar) {
	csi.RegisterIdentityServer(s, d.identity)
	csi.RegisterControllerServer(s, d.controller)
	csi.RegisterGroupControllerServer(s, d.groups)
}
