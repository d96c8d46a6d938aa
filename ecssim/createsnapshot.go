package ecssim

import (
	"strings"

	"github.com/topodisk/topodisk/ecssim/wire"
)

var createSnapshot = action{
	name:     "CreateSnapshot",
	required: []string{"DiskId"},
	optional: []string{
		"SnapshotName", "Description", "RetentionDays", "Tag.N.Key", "Tag.N.Value", "Tag.N.key", "Tag.N.value", "ResourceGroupId",
		"ClientToken", "Category", "InstantAccess", "InstantAccessRetentionDays", "StorageLocationArn",
	},
	do: (*Server).createSnapshot,
}

// createSnapshot starts to make a snapshot, or returns the one that its
// ClientToken made before. The point in time is cut a little after the reply:
// until then the snapshot has no CreationTime.
func (s *Server) createSnapshot(x *exchange) (wire.Object, *wire.Refusal) {
	id, no := s.underToken(x, func() (string, *wire.Refusal) {
		d, n, no := s.readSnapshot(x)
		if no != nil {
			return "", no
		}
		s.shoot(x, d, n)
		return n.id, nil
	})
	if no != nil {
		return nil, no
	}
	return wire.Object{"SnapshotId": id}, nil
}

// underToken makes something under a request's ClientToken, or returns what
// that made before. Its refusals are those of snapshots: ECS's tables give
// them other codes and statuses than CreateDisk's.
func (s *Server) underToken(x *exchange, make func() (string, *wire.Refusal)) (string, *wire.Refusal) {
	if no := checkToken(x.Params["ClientToken"]); no != nil {
		return "", no
	}
	id, no := s.tokens.replay(x)
	switch {
	case no != nil && no.Code == "LastTokenProcessing":
		return "", &wire.Refusal{Status: 403, Code: "IdempotentProcessing", Message: no.Message}
	case no != nil && no.Code == mismatchCode:
		return "", &wire.Refusal{Status: 403, Code: mismatchCode, Message: no.Message}
	case no != nil || id != "":
		return id, no
	}
	id, no = make()
	s.tokens.bind(x, id, no, s.config.BindFailedTokens)
	return id, no
}

// readSnapshot checks a request for a snapshot of one disk.
func (s *Server) readSnapshot(x *exchange) (*disk, *snapshot, *wire.Refusal) {
	n := &snapshot{}
	for _, step := range []func(*exchange, *snapshot) *wire.Refusal{readShotNames, readRetention, s.readShotTags} {
		if no := step(x, n); no != nil {
			return nil, nil, no
		}
	}
	d, no := s.findDisk(x.disk)
	if no != nil {
		return nil, nil, no
	}
	return d, n, s.checkShot(d)
}

// readShotNames reads SnapshotName and Description. Names that begin with
// auto are those of ECS's own snapshots.
func readShotNames(x *exchange, n *snapshot) *wire.Refusal {
	n.name, n.description = x.Params["SnapshotName"], x.Params["Description"]
	if n.name != "" && (!validName(n.name) || strings.HasPrefix(n.name, "auto")) {
		return badName("InvalidSnapshotName.Malformed", "snapshot name, which must not begin with auto,")
	}
	if n.description != "" && !validDescription(n.description) {
		return badDescription(404) // as ECS's table for this action has it
	}
	return nil
}

// readRetention reads RetentionDays; none keeps the snapshot for ever.
func readRetention(x *exchange, n *snapshot) (no *wire.Refusal) {
	if n.retentionDays, no = x.Params.Integer("RetentionDays", 0); no != nil {
		return no
	}
	if x.Params["RetentionDays"] != "" && (n.retentionDays < 1 || n.retentionDays > 65536) {
		return wire.Refuse(400, "InvalidRetentionDays.Malformed", "The specified RetentionDays %d is not valid: 1 to 65536.", n.retentionDays)
	}
	return nil
}

// readShotTags reads the tags and the resource group.
func (s *Server) readShotTags(x *exchange, n *snapshot) *wire.Refusal {
	tags, no := newTags(x)
	if no != nil {
		return no
	}
	n.tags, n.resourceGroup = newTagSet(tags, x.now), x.Params["ResourceGroupId"]
	if !known(s.config.ResourceGroups, n.resourceGroup) {
		return wire.Refuse(404, "InvalidResourceGroup.NotFound", "The specified ResourceGroupId %q does not exist.", n.resourceGroup)
	}
	return nil
}

// readSource finds the snapshot that a new disk is made from, if any.
func (s *Server) readSource(x *exchange, d *disk) *wire.Refusal {
	id := x.Params["SnapshotId"]
	if id == "" {
		return nil
	}
	n, no := s.findSnapshot(id)
	switch {
	case no != nil:
		return no
	case categories[d.category].ephemeral:
		return wire.Refuse(403, "InvalidOperation.CreateFromSnapshotUnsupported", "The disk category %s can't be made from a snapshot.", d.category)
	case !n.usable(x.now):
		return wire.Refuse(403, "InvalidSnapshotId.NotReady", "The specified snapshot %s is not ready.", id)
	}
	d.source = n
	return nil
}

// sourceID is the ID of the snapshot that the disk was made from, or empty.
func (d *disk) sourceID() string {
	if d.source == nil {
		return ""
	}
	return d.source.id
}
