package ecssim

import (
	"encoding/json"
	"fmt"
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
func (p Policy) allows(action string, about []target) bool {
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
func (s Statement) covers(action string, t target) bool {
	is := func(text string) func(string) bool {
		return func(pattern string) bool { return wire.Like(text, pattern) }
	}
	if !slices.ContainsFunc(s.Action, is(action)) || !slices.ContainsFunc(s.Resource, is(t.arn)) {
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

// target is a resource that a call is about.
type target struct {
	arn     string
	request map[string]string // tags that the request carries
	tags    map[string]string // of the resource; nil if it is to be made
}

func (t target) value(key string) (string, bool) {
	tags := t.tags
	name, ok := strings.CutPrefix(key, resourceTag)
	if !ok {
		tags, name = t.request, strings.TrimPrefix(key, requestTag)
	}
	value, there := tags[name]
	return value, there
}

// aboutOf names the resources that an action is checked for, as ECS's page on RAM
// authorization lists them: type, and the parameter that holds the ID; without
// one the resource is to be made. Other actions are checked for everything.
var aboutOf = map[string][][2]string{
	"CreateDisk":          {{"disk"}, {"snapshot", "SnapshotId"}},
	"DeleteDisk":          {{"disk", "DiskId"}},
	"ResizeDisk":          {{"disk", "DiskId"}},
	"ModifyDiskSpec":      {{"disk", "DiskId"}},
	"ModifyDiskAttribute": {{"disk", "DiskId"}, {"disk", "DiskIds"}},
	"AttachDisk":          {{"disk", "DiskId"}, {"instance", "InstanceId"}},
	"DetachDisk":          {{"disk", "DiskId"}, {"instance", "InstanceId"}},
	"CreateSnapshot":      {{"disk", "DiskId"}, {"snapshot"}},
	"DeleteSnapshot":      {{"snapshot", "SnapshotId"}},
	"CreateSnapshotGroup": {{"disk", "DiskId"}, {"instance", "InstanceId"}},
	"DeleteSnapshotGroup": {{"snapshotgroup", "SnapshotGroupId"}},
	"TagResources":        {{"", "ResourceId"}},
	"UntagResources":      {{"", "ResourceId"}},
}

// about returns what a call is about.
func (s *Server) about(x *exchange) []target {
	request := map[string]string{}
	if list, no := x.Params.Tags(); no == nil {
		for _, t := range list {
			request[t.Key] = t.Value
		}
	}
	var all []target
	const toBeMade = "*"
	add := func(kind, id string) {
		t := target{arn: fmt.Sprintf("acs:%s:%s:%s:%s/%s", strings.ToLower(x.product()), s.config.Region, s.config.Account, kind, id), request: request}
		has, _ := s.tagsOf(kind, id)
		if has != nil {
			t.tags = has.current
		}
		if has != nil || id == toBeMade {
			all = append(all, t)
		}
	}
	for _, about := range aboutOf[x.action.name] {
		kind, parameter := about[0], about[1]
		if kind == "" {
			kind = x.Params["ResourceType"]
		}
		if parameter == "" {
			add(kind, toBeMade)
			continue
		}
		for _, id := range append(x.Params.List(parameter), x.Params[parameter]) {
			if id != "" {
				add(kind, id)
			}
		}
	}
	if _, narrow := aboutOf[x.action.name]; !narrow {
		all = append(all, target{arn: fmt.Sprintf("acs:%s:%s:%s:*", strings.ToLower(x.product()), s.config.Region, s.config.Account), request: request})
	}
	return all
}

// SetPolicy attaches a policy to an access key ID or a role, or, if who is empty,
// to all that have none of their own; nil detaches it. What it doesn't allow is
// denied.
func (s *Server) SetPolicy(who string, p *Policy) error {
	if p != nil {
		if err := p.check(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p == nil {
		delete(s.policies, who)
		return nil
	}
	s.policies[who] = *p
	return nil
}

// permitted says whether the sender's policy allows a call. No source says what
// ECS checks for a resource that doesn't exist; here such a call goes on, and
// finds that it doesn't.
func (s *Server) permitted(x *exchange) bool {
	p, has := s.policies[x.caller.Principal()]
	if !has {
		p, has = s.policies[""]
	}
	return !has || p.allows(strings.ToLower(x.product())+":"+x.action.name, s.about(x))
}
