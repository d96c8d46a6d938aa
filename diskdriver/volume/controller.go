// Package volume answers the calls of the CSI Controller service about volumes,
// except publishing: a file for each call.
package volume

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/creation"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/params"
	"github.com/topodisk/topodisk/diskdriver/snapshot"
)

// Config says what the volumes of a cluster have in common.
type Config struct {
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

// CheckTopology refuses accessibility requirements that can't be read: Invalid.
func (c Config) CheckTopology(requirement *csi.TopologyRequirement) error {
	_, err := c.candidates(requirement, nil)
	return err
}

// Controller answers the calls.
type Controller struct {
	config    Config
	ecs       ECS
	snapshots *snapshot.Controller // takes the snapshots that copies and archives need
	creations *creation.Table
	offers    *offers
	changes   openChanges
	copies    copies
	all       allDisks
	states    states
}

// NewController returns a Controller of one account that remembers nothing.
func NewController(config Config, ecs ECS, snapshots *snapshot.Controller) *Controller {
	return &Controller{
		config: config, ecs: ecs, snapshots: snapshots, creations: creation.NewTable(), offers: newOffers(ecs),
		changes: openChanges{byDisk: make(map[disk.ID]openChange)},
		copies:  copies{idle: make(map[string]idle)},
		states:  states{seen: make(map[disk.ID]stateSince)},
	}
}
