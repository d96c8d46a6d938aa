package actions

import "github.com/topodisk/topodisk/ecssim/wire"

var getCallerIdentityAction = Action{
	Name: "GetCallerIdentity", version: versionSTS, anyRegion: true,
	do: getCallerIdentity,
}

// getCallerIdentity says who signed the request: the owner of the account, or
// somebody in a role.
func getCallerIdentity(req *Request) (wire.Object, *wire.Refusal) {
	account := req.Rules.Account
	if key := req.Caller; key.Role != "" {
		id := roleID(req, key.Role)
		return wire.Object{
			"AccountId": account, "UserId": "", "PrincipalId": id + ":" + key.Session, "RoleId": id,
			"Arn": sessionARN(req, key), "IdentityType": "AssumedRoleUser",
		}, nil
	}
	return wire.Object{
		"AccountId": account, "UserId": account, "PrincipalId": account, "RoleId": "",
		"Arn": "acs:ram::" + account + ":root", "IdentityType": "Account",
	}, nil
}
