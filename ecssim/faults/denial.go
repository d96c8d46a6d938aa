package faults

import (
	"slices"

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

// check refuses a denial of what is not one of some actions, which somebody signs.
func (d Denial) check(signed []string) error {
	switch {
	case d.Action != "" && !slices.Contains(signed, d.Action):
		return config.Invalid("action", d.Action, `"" for all, or `+config.OneOf(signed))
	case d.Empty && !wire.IsRead(d.Action):
		return config.Invalid("empty", d.Action, "true for an action that begins with Describe or List only")
	}
	return nil
}

// Permissions are what callers may not do: by denials, and by policies.
type Permissions struct {
	signed   []string // the actions that somebody signs
	denials  []Denial
	policies map[string]Policy // by who
}

// NewPermissions returns the permissions to call some actions, which somebody
// signs, but for denials. The error is a *config.Error.
func NewPermissions(signed []string, denials []Denial) (*Permissions, error) {
	p := &Permissions{signed: signed, policies: map[string]Policy{}}
	for _, d := range denials {
		if err := p.Deny(d); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Deny takes a permission away. The first denial that fits a call counts. The
// error is a *config.Error.
func (p *Permissions) Deny(d Denial) error {
	if err := d.check(p.signed); err != nil {
		return err
	}
	p.denials = append(p.denials, d)
	return nil
}

// Clear gives all permissions back that denials took.
func (p *Permissions) Clear() { p.denials = nil }

// Denials returns the denials.
func (p *Permissions) Denials() []Denial { return append([]Denial{}, p.denials...) }

// Ask says whether who may call an action of a product, and whether a read must
// show nothing. about returns the resources that the call is about.
func (p *Permissions) Ask(who, action, product string, about func() []Resource) (allowed, blind bool) {
	i := slices.IndexFunc(p.denials, func(d Denial) bool {
		return (d.Who == "" || d.Who == who) && (d.Action == "" || d.Action == action)
	})
	if i >= 0 {
		return p.denials[i].Empty, p.denials[i].Empty
	}
	return p.permitted(who, product+":"+action, about), false
}
