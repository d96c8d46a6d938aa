package actions

import (
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/wire"
)

var assumeRoleAction = Action{
	Name: "AssumeRole", version: versionSTS, anyRegion: true,
	required: []string{"RoleArn", "RoleSessionName"},
	optional: []string{"DurationSeconds", "Policy", "ExternalId", "SourceIdentity"},
	do:       assumeRole,
}

// assumeRole issues a temporary key of a role to the owner of another key.
func assumeRole(req *Request) (wire.Object, *wire.Refusal) {
	role, life, no := readSession(req)
	if no != nil {
		return nil, no
	}
	if role.Callers != nil && !slices.Contains(role.Callers, req.Caller.Principal()) {
		return nil, wire.Refuse(403, "NoPermission", "You are not authorized to do this action. You should be authorized by RAM.")
	}
	return renderSession(req, req.keys.Issue(role.Name, req.Params["RoleSessionName"], time.Now(), life)), nil
}
