package ecssim

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// Role is a RAM role of the account. Its ARN is
// acs:ram::<account>:role/<Name>.
type Role struct {
	Name string // such as disk-driver
	// MaxSession bounds DurationSeconds: an hour, which is the default, to
	// twelve hours.
	MaxSession time.Duration
	// Callers are the access keys that may call AssumeRole for it; nil is all.
	Callers []string
	// OIDCProvider names the identity provider whose tokens may assume the
	// role: acs:ram::<account>:oidc-provider/<OIDCProvider>. Empty is none.
	// Tokens are read, not verified: the simulator knows no provider's keys.
	OIDCProvider string
	// Subject and Audience are what a token must have for sub and aud; empty is
	// anything. The subject of a Pod's token is
	// system:serviceaccount:<namespace>:<service account>.
	Subject  string
	Audience string
}

var (
	roleNameForm = regexp.MustCompile(`^[A-Za-z0-9.-]{1,64}$`)
	sessionForm  = regexp.MustCompile(`^[A-Za-z0-9.@_-]{2,64}$`)
)

func (c Config) checkRoles() error {
	for i, r := range c.Roles {
		switch {
		case !roleNameForm.MatchString(r.Name):
			return config.Invalid("Roles", r.Name, "a name of 1 to 64 letters, digits, periods and hyphens")
		case slices.ContainsFunc(c.Roles[:i], func(o Role) bool { return o.Name == r.Name }):
			return config.Invalid("Roles", r.Name, "each role once")
		case r.MaxSession != 0 && (r.MaxSession < time.Hour || r.MaxSession > 12*time.Hour):
			return config.Invalid("Roles", r.MaxSession.String(), "a MaxSession of 1h to 12h")
		}
	}
	for _, i := range c.Instances {
		if i.Role != "" && !slices.ContainsFunc(c.Roles, func(r Role) bool { return r.Name == i.Role }) {
			return config.Invalid("Instances", i.Role, "a Role among the Roles")
		}
	}
	return nil
}

// findRole returns the role that an ARN names.
func (s *Server) findRole(arn string) (Role, *wire.Refusal) {
	name, ok := strings.CutPrefix(strings.ToLower(arn), "acs:ram::"+s.config.Account+":role/")
	if !strings.HasPrefix(arn, "acs:ram::") || !strings.Contains(arn, ":role/") {
		return Role{}, wire.Refuse(400, "InvalidParameter.RoleArn", "The specified RoleArn %q is not valid: it has the form acs:ram::<account>:role/<name>.", arn)
	}
	i := slices.IndexFunc(s.config.Roles, func(r Role) bool { return ok && strings.ToLower(r.Name) == name })
	if i < 0 {
		return Role{}, wire.Refuse(404, "EntityNotExist.Role", "The specified Role %q does not exist.", arn)
	}
	return s.config.Roles[i], nil
}

// sessionLife reads the parameters that both ways to assume a role have.
func sessionLife(x *exchange, r Role) (time.Duration, *wire.Refusal) {
	if name := x.Params["RoleSessionName"]; !sessionForm.MatchString(name) {
		return 0, wire.Refuse(400, "InvalidParameter.RoleSessionName", "The specified RoleSessionName %q is not valid: 2 to 64 letters, digits and . @ - _.", name)
	}
	seconds, no := x.Params.Integer("DurationSeconds", 3600)
	longest := cmp.Or(r.MaxSession, time.Hour)
	if no != nil || seconds < 900 || time.Duration(seconds) > longest/time.Second {
		return 0, wire.Refuse(400, "InvalidParameter.DurationSeconds", "The specified DurationSeconds %q is not valid: 900 to %d.", x.Params["DurationSeconds"], longest/time.Second)
	}
	switch policy := x.Params["Policy"]; {
	case len(policy) > 2048:
		return 0, wire.Refuse(400, "InvalidParameter.PolicySize", "The specified Policy is too long: at most 2048 characters.")
	case policy != "" && !strings.HasPrefix(strings.TrimSpace(policy), "{"):
		return 0, wire.Refuse(400, "InvalidParameter.PolicyGrammar", "The specified Policy is not valid: it is a JSON object.")
	}
	return time.Duration(seconds) * time.Second, nil
}

// renderSession returns a temporary key as STS shows it.
func (s *Server) renderSession(key *wire.AccessKey) wire.Object {
	return wire.Object{
		"Credentials": wire.Object{
			"AccessKeyId": key.ID, "AccessKeySecret": key.Secret, "SecurityToken": key.Token, "Expiration": key.Expires.UTC().Format(wire.SecondTime),
		},
		"AssumedRoleUser": wire.Object{"Arn": s.sessionARN(key), "AssumedRoleId": s.roleID(key.Role) + ":" + key.Session},
	}
}

func (s *Server) sessionARN(key *wire.AccessKey) string {
	return "acs:ram::" + s.config.Account + ":assumed-role/" + key.Role + "/" + key.Session
}

// roleID is the number that RAM gives a role.
func (s *Server) roleID(name string) string {
	digits := strings.Map(func(r rune) rune { return '0' + r%10 }, wire.HexHash(s.config.Account + name)[:15])
	return "3" + digits
}
