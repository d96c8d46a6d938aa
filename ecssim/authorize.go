package ecssim

import (
	"strings"

	"github.com/topodisk/topodisk/ecssim/wire"
)

// authorize refuses a call that its sender may not make, or blinds it.
func (s *Server) authorize(x *exchange) *wire.Refusal {
	if x.Action.Unsigned {
		return nil
	}
	allowed, blind := s.permissions.Ask(x.Caller.Principal(), x.Action.Name, strings.ToLower(x.Product()), x.Resources)
	if allowed {
		x.Blind = blind
		return nil
	}
	x.denial = s.denialDetail(x)
	return wire.Refuse(403, "Forbidden.RAM", "User not authorized to operate on the specified resource, or this API doesn't support RAM.")
}

// denialDetail is what the error body says of a denial.
func (s *Server) denialDetail(x *exchange) wire.Object {
	kind := "SubUser"
	if x.Caller.Role != "" {
		kind = "AssumedRoleUser"
	}
	return wire.Object{
		"AuthAction": strings.ToLower(x.Product()) + ":" + x.Action.Name, "AuthPrincipalType": kind, "AuthPrincipalDisplayName": x.Caller.Principal(),
		"AuthPrincipalOwnerId": s.config.Account, "PolicyType": "AccountLevelIdentityBasedPolicy", "NoPermissionType": "ImplicitDeny",
	}
}
