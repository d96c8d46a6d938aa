package ecssim

import "strings"

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
func (s *Server) createSnapshot(x *exchange) (object, *refusal) {
	id, no := s.underToken(x, func() (string, *refusal) {
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
	return object{"SnapshotId": id}, nil
}

// underToken makes something under a request's ClientToken, or returns what
// that made before. Its refusals are those of snapshots: ECS's tables give
// them other codes and statuses than CreateDisk's.
func (s *Server) underToken(x *exchange, make func() (string, *refusal)) (string, *refusal) {
	if no := checkToken(x.params["ClientToken"]); no != nil {
		return "", no
	}
	id, no := s.tokens.replay(x)
	switch {
	case no != nil && no.code == "LastTokenProcessing":
		return "", &refusal{403, "IdempotentProcessing", no.message}
	case no != nil && no.code == mismatchCode:
		return "", &refusal{403, mismatchCode, no.message}
	case no != nil || id != "":
		return id, no
	}
	id, no = make()
	s.tokens.bind(x, id, no, s.config.BindFailedTokens)
	return id, no
}

// readSnapshot checks a request for a snapshot of one disk.
func (s *Server) readSnapshot(x *exchange) (*disk, *snapshot, *refusal) {
	n := &snapshot{}
	for _, step := range []func(*exchange, *snapshot) *refusal{readShotNames, readRetention, s.readShotTags} {
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
func readShotNames(x *exchange, n *snapshot) *refusal {
	n.name, n.description = x.params["SnapshotName"], x.params["Description"]
	if n.name != "" && (!validName(n.name) || strings.HasPrefix(n.name, "auto")) {
		return badName("InvalidSnapshotName.Malformed", "snapshot name, which must not begin with auto,")
	}
	if n.description != "" && !validDescription(n.description) {
		return badDescription(404) // as ECS's table for this action has it
	}
	return nil
}

// readRetention reads RetentionDays; none keeps the snapshot for ever.
func readRetention(x *exchange, n *snapshot) (no *refusal) {
	if n.retentionDays, no = x.params.integer("RetentionDays", 0); no != nil {
		return no
	}
	if x.params["RetentionDays"] != "" && (n.retentionDays < 1 || n.retentionDays > 65536) {
		return refuse(400, "InvalidRetentionDays.Malformed", "The specified RetentionDays %d is not valid: 1 to 65536.", n.retentionDays)
	}
	return nil
}

// readShotTags reads the tags and the resource group.
func (s *Server) readShotTags(x *exchange, n *snapshot) *refusal {
	list, no := x.params.newTags()
	if no != nil {
		return no
	}
	n.tags, n.resourceGroup = newTagSet(list, x.now), x.params["ResourceGroupId"]
	if !known(s.config.ResourceGroups, n.resourceGroup) {
		return refuse(404, "InvalidResourceGroup.NotFound", "The specified ResourceGroupId %q does not exist.", n.resourceGroup)
	}
	return nil
}

// readSource finds the snapshot that a new disk is made from, if any.
func (s *Server) readSource(x *exchange, d *disk) *refusal {
	id := x.params["SnapshotId"]
	if id == "" {
		return nil
	}
	n, no := s.findSnapshot(id)
	switch {
	case no != nil:
		return no
	case categories[d.category].ephemeral:
		return refuse(403, "InvalidOperation.CreateFromSnapshotUnsupported", "The disk category %s can't be made from a snapshot.", d.category)
	case !n.usable(x.now):
		return refuse(403, "InvalidSnapshotId.NotReady", "The specified snapshot %s is not ready.", id)
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
