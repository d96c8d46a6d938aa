package ecssim

import "github.com/topodisk/topodisk/ecssim/wire"

var getCallerIdentity = action{
	name: "GetCallerIdentity", version: versionSTS, anyRegion: true,
	do: (*Server).getCallerIdentity,
}

// getCallerIdentity says who signed the request: the owner of the account, or
// somebody in a role.
func (s *Server) getCallerIdentity(x *exchange) (wire.Object, *wire.Refusal) {
	account := s.config.Account
	if key := x.caller; key.Role != "" {
		id := s.roleID(key.Role)
		return wire.Object{
			"AccountId": account, "UserId": "", "PrincipalId": id + ":" + key.Session, "RoleId": id,
			"Arn": s.sessionARN(key), "IdentityType": "AssumedRoleUser",
		}, nil
	}
	return wire.Object{
		"AccountId": account, "UserId": account, "PrincipalId": account, "RoleId": "",
		"Arn": "acs:ram::" + account + ":root", "IdentityType": "Account",
	}, nil
}
