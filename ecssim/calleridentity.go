package ecssim

var getCallerIdentity = action{
	name: "GetCallerIdentity", version: versionSTS, anyRegion: true,
	do: (*Server).getCallerIdentity,
}

// getCallerIdentity says whose account this is: its owner's.
func (s *Server) getCallerIdentity(*exchange) (object, *refusal) {
	account := s.config.Account
	return object{
		"AccountId": account, "UserId": account, "PrincipalId": account, "RoleId": "",
		"Arn": "acs:ram::" + account + ":root", "IdentityType": "Account",
	}, nil
}
