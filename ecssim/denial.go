package ecssim

import (
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// Denial is a permission that somebody does not have.
type Denial struct {
	Who    string `json:"who"`    // an access key ID or the name of a role; empty is everybody
	Action string `json:"action"` // empty is every action
	// Empty lets a read answer with status 200 and nothing found, as ECS does
	// where the lack of a permission is taken for a filter, instead of
	// Forbidden.RAM.
	Empty bool `json:"empty"`
}

func (d Denial) check() error {
	a, ok := actions[d.Action]
	switch {
	case d.Action != "" && (!ok || a.unsigned):
		return config.Invalid("action", d.Action, `"" for all, or `+config.OneOf(signedActions()))
	case d.Empty && !a.isRead():
		return config.Invalid("empty", d.Action, "true for an action that begins with Describe or List only")
	}
	return nil
}

// signedActions are those that somebody signs.
func signedActions() []string {
	return slices.DeleteFunc(ActionNames(), func(name string) bool { return actions[name].unsigned })
}

func (c Config) checkDenials() error {
	for _, d := range c.Denials {
		if err := d.check(); err != nil {
			return err
		}
	}
	return nil
}

// Deny takes a permission away. The first denial that fits a call counts.
func (s *Server) Deny(d Denial) error {
	if err := d.check(); err != nil {
		return err
	}
	s.look(func(time.Time) { s.denials = append(s.denials, d) })
	return nil
}

// ClearDenials gives all permissions back.
func (s *Server) ClearDenials() { s.look(func(time.Time) { s.denials = nil }) }

// Denials returns the permissions that are taken away.
func (s *Server) Denials() []Denial {
	return seen(s, func(time.Time) []Denial { return append([]Denial{}, s.denials...) })
}

// authorize refuses a call that its sender may not make, or blinds it.
func (s *Server) authorize(x *exchange) *wire.Refusal {
	if x.action.unsigned {
		return nil
	}
	i := slices.IndexFunc(s.denials, func(d Denial) bool {
		return (d.Who == "" || d.Who == x.caller.Principal()) && (d.Action == "" || d.Action == x.action.name)
	})
	switch {
	case i < 0 && s.permitted(x):
		return nil
	case i >= 0 && s.denials[i].Empty:
		x.blind = true
		return nil
	}
	x.denial = s.denialDetail(x)
	return wire.Refuse(403, "Forbidden.RAM", "User not authorized to operate on the specified resource, or this API doesn't support RAM.")
}

// denialDetail is what the error body says of a denial.
func (s *Server) denialDetail(x *exchange) wire.Object {
	kind := "SubUser"
	if x.caller.Role != "" {
		kind = "AssumedRoleUser"
	}
	return wire.Object{
		"AuthAction": strings.ToLower(x.product()) + ":" + x.action.name, "AuthPrincipalType": kind, "AuthPrincipalDisplayName": x.caller.Principal(),
		"AuthPrincipalOwnerId": s.config.Account, "PolicyType": "AccountLevelIdentityBasedPolicy", "NoPermissionType": "ImplicitDeny",
	}
}

// isRead tells whether an action changes nothing.
func (a action) isRead() bool {
	return strings.HasPrefix(a.name, "Describe") || strings.HasPrefix(a.name, "List")
}

// emptied returns the reply of a read with its lists empty.
func emptied(body wire.Object) wire.Object {
	for name, value := range body {
		switch v := value.(type) {
		case wire.Object: // a list in its wrapping
			for inner, list := range v {
				if _, ok := list.([]wire.Object); ok {
					v[inner] = []wire.Object{}
				}
			}
		case int:
			if name == "TotalCount" {
				body[name] = 0
			}
		case string:
			if name == "NextToken" {
				body[name] = ""
			}
		}
	}
	return body
}
