package faults

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// Policy is a RAM policy: what it doesn't allow is denied.
type Policy struct {
	Version   string      // "1"
	Statement []Statement // a denial among them wins
}

// Statement allows or denies actions on resources under conditions.
type Statement struct {
	Effect    string // Allow or Deny
	Action    oneOrMore
	Resource  oneOrMore
	Condition map[string]map[string]oneOrMore `json:",omitempty"` // operator, key, values; all operators and keys must hold, of one of the values each
}

// oneOrMore is texts, which a policy may write without the list if it is one.
type oneOrMore []string

// UnmarshalJSON reads a text or a list of texts.
func (o *oneOrMore) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*o = oneOrMore{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(o))
}

// The condition keys that are known: the tags that a request carries, and those
// that the resource has.
const (
	requestTag  = "acs:RequestTag/"
	resourceTag = "acs:ResourceTag/"
)

// check refuses policies that the simulator can't evaluate.
func (p Policy) check() error {
	if p.Version != "1" {
		return config.Invalid("Version", p.Version, `"1"`)
	}
	for _, s := range p.Statement {
		switch {
		case s.Effect != "Allow" && s.Effect != "Deny":
			return config.Invalid("Effect", s.Effect, "Allow, Deny")
		case len(s.Action) == 0:
			return config.Invalid("Action", "", "an action such as ecs:DeleteDisk, or a list; * stands for any characters")
		case len(s.Resource) == 0:
			return config.Invalid("Resource", "", "a resource such as acs:ecs:*:*:disk/*, or a list; * stands for any characters")
		}
		for operator, keys := range s.Condition {
			if operator != "StringEquals" && operator != "StringLike" {
				return config.Invalid("Condition", operator, "StringEquals, StringLike")
			}
			for key := range keys {
				if !strings.HasPrefix(key, requestTag) && !strings.HasPrefix(key, resourceTag) {
					return config.Invalid("Condition", key, requestTag+"<key>, "+resourceTag+"<key>")
				}
			}
		}
	}
	return nil
}

// allows says whether a call is allowed on everything that it is about.
func (p Policy) allows(action string, about []Resource) bool {
	for _, t := range about {
		allowed := false
		for _, s := range p.Statement {
			if !s.covers(action, t) {
				continue
			}
			if s.Effect == "Deny" {
				return false
			}
			allowed = true
		}
		if !allowed {
			return false
		}
	}
	return true
}

// covers says whether a statement speaks of an action on a resource.
func (s Statement) covers(action string, t Resource) bool {
	is := func(text string) func(string) bool {
		return func(pattern string) bool { return wire.Like(text, pattern) }
	}
	if !slices.ContainsFunc(s.Action, is(action)) || !slices.ContainsFunc(s.Resource, is(t.ARN)) {
		return false
	}
	for operator, keys := range s.Condition {
		for key, values := range keys {
			has, there := t.value(key)
			match := func(value string) bool { return value == has || operator == "StringLike" && wire.Like(has, value) }
			if !there || !slices.ContainsFunc(values, match) {
				return false
			}
		}
	}
	return true
}

// Resource is what a call is about.
type Resource struct {
	ARN     string
	Request map[string]string // tags that the request carries
	Tags    map[string]string // of the resource; nil if it is to be made
}

func (t Resource) value(key string) (string, bool) {
	tags := t.Tags
	name, ok := strings.CutPrefix(key, resourceTag)
	if !ok {
		tags, name = t.Request, strings.TrimPrefix(key, requestTag)
	}
	value, there := tags[name]
	return value, there
}

// SetPolicy attaches a policy to who, or detaches it if it is nil. The error is a
// *config.Error.
func (p *Permissions) SetPolicy(who string, policy *Policy) error {
	if policy == nil {
		delete(p.policies, who)
		return nil
	}
	if err := policy.check(); err != nil {
		return err
	}
	p.policies[who] = *policy
	return nil
}

// permitted says whether a policy of who allows a call. No source says what ECS
// checks for a resource that doesn't exist; here such a call goes on, and finds
// that it doesn't.
func (p *Permissions) permitted(who, action string, about func() []Resource) bool {
	policy, has := p.policies[who]
	if !has {
		policy, has = p.policies[""]
	}
	return !has || policy.allows(action, about())
}
