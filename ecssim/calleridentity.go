package ecssim

var getCallerIdentity = action{
	name: "GetCallerIdentity", version: versionSTS, anyRegion: true,
	do: (*Server).getCallerIdentity,
}

// getCallerIdentity says who signed the request: the owner of the account, or
// somebody in a role.
func (s *Server) getCallerIdentity(x *exchange) (object, *refusal) {
	account := s.config.Account
	if key := x.caller; key.role != "" {
		id := s.roleID(key.role)
		return object{
			"AccountId": account, "UserId": "", "PrincipalId": id + ":" + key.session, "RoleId": id,
			"Arn": s.sessionARN(key), "IdentityType": "AssumedRoleUser",
		}, nil
	}
	return object{
		"AccountId": account, "UserId": account, "PrincipalId": account, "RoleId": "",
		"Arn": "acs:ram::" + account + ":root", "IdentityType": "Account",
	}, nil
}
