// Package volume answers the calls of the CSI Controller service about volumes,
// except publishing and health: a file for each call.
package volume

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/creation"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/listing"
	"github.com/topodisk/topodisk/diskdriver/params"
)

// Config says what the volumes of a cluster have in common.
type Config struct {
	Region      string
	ClusterID   string
	Owner       disk.Owner     // decides which disks are changed and deleted, and which snapshots restored
	TopologyKey string         // under which a PersistentVolume names its zone, if the requirement has it
	Unknown     params.Unknown // what to do with an unknown parameter of a class
	ExtraTags   disk.Tags      // of every disk, unless its class says otherwise of a key
	Allowed     disk.AllowedOptions
	// AllowSnapshotParameter lets params.SnapshotParameter name any snapshot.
	AllowSnapshotParameter bool
	// IsFinal says whether callers take the error of a create for the end of it.
	IsFinal func(context.Context, error) bool
}

// area is where volumes are made.
func (c Config) area() area { return area{region: c.Region, preferredKey: c.TopologyKey} }

// Controller answers the calls.
type Controller struct {
	config  Config
	ecs     ECS
	offers  *offers
	all     *listing.Disks
	creator creator
	deleter deleter
	changes openChanges
}

// NewController returns a Controller of one account that remembers nothing.
func NewController(config Config, ecs ECS, snapshots Snapshots, taker Taker, all *listing.Disks) *Controller {
	c := &Controller{config: config, ecs: ecs, offers: newOffers(), all: all, changes: openChanges{byDisk: map[disk.ID]openChange{}}}
	c.deleter = deleter{clusterID: config.ClusterID, owner: config.Owner, ecs: ecs, snapshots: snapshots, taker: taker}
	c.creator = creator{config: config, ecs: ecs, snapshots: snapshots, creations: creation.NewTable(), offers: c.offers, deleter: c.deleter}
	c.creator.temporaries = &temporaries{
		clusterID: config.ClusterID, owner: config.Owner, snapshots: snapshots, taker: taker, disks: ecs, named: c.creator.named, idle: make(map[string]idle),
	}
	return c
}

// CheckTopology refuses accessibility requirements that can't be read: Invalid.
func (c *Controller) CheckTopology(requirement *csi.TopologyRequirement) error {
	_, err := c.config.area().candidates(requirement, nil)
	return err
}

// Sweep deletes the temporary snapshots that no call needs any more. reserve keeps
// calls off a volume by its name, until it is released; not ok: one works on it.
func (c *Controller) Sweep(ctx context.Context, reserve func(name string) (release func(), ok bool)) {
	c.creator.temporaries.sweep(ctx, reserve)
}
