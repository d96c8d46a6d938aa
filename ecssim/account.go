package ecssim

import (
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// EndTemporaryKeys ends every temporary key that was issued so far, whenever
// it would have expired, and returns how many did. Who uses one gets
// InvalidSecurityToken.Expired.
func (s *Server) EndTemporaryKeys() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys.EndTemporary(time.Now())
}

// SetAccessKey gives the account a key, or another secret for the one it has;
// with an empty secret it takes the key away.
func (s *Server) SetAccessKey(id, secret string) error {
	if id == "" {
		return config.Invalid("id", id, "an access key ID that is not empty")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys.Set(id, secret)
	return nil
}

// KeyIDs returns the IDs of the account's own keys, sorted. Their secrets
// stay in.
func (s *Server) KeyIDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys.IDs()
}

// Deny takes a permission away. The first denial that fits a call counts.
func (s *Server) Deny(d Denial) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.permissions.Deny(d)
}

// ClearDenials gives all permissions back.
func (s *Server) ClearDenials() { s.look(func(time.Time) { s.permissions.Clear() }) }

// Denials returns the permissions that are taken away.
func (s *Server) Denials() []Denial {
	return seen(s, func(time.Time) []Denial { return s.permissions.Denials() })
}

// SetPolicy attaches a policy to an access key ID or a role, or, if who is empty,
// to all that have none of their own; nil detaches it. What it doesn't allow is
// denied.
func (s *Server) SetPolicy(who string, p *Policy) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.permissions.SetPolicy(who, p)
}

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
