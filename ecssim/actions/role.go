package actions

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

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

var sessionForm = regexp.MustCompile(`^[A-Za-z0-9.@_-]{2,64}$`)

// findRole returns the role that an ARN names.
func findRole(req *Request, arn string) (Role, *wire.Refusal) {
	name, ok := strings.CutPrefix(strings.ToLower(arn), "acs:ram::"+req.Rules.Account+":role/")
	if !strings.HasPrefix(arn, "acs:ram::") || !strings.Contains(arn, ":role/") {
		return Role{}, wire.Refuse(400, "InvalidParameter.RoleArn", "The specified RoleArn %q is not valid: it has the form acs:ram::<account>:role/<name>.", arn)
	}
	i := slices.IndexFunc(req.Rules.Roles, func(r Role) bool { return ok && strings.ToLower(r.Name) == name })
	if i < 0 {
		return Role{}, wire.Refuse(404, "EntityNotExist.Role", "The specified Role %q does not exist.", arn)
	}
	return req.Rules.Roles[i], nil
}

// readSession reads the parameters that both ways to assume a role have: whose
// role, and for how long.
func readSession(req *Request) (Role, time.Duration, *wire.Refusal) {
	role, no := findRole(req, req.Params["RoleArn"])
	if no != nil {
		return role, 0, no
	}
	life, no := sessionLife(req, role)
	return role, life, no
}

// sessionLife is how long a temporary key lives.
func sessionLife(req *Request, r Role) (time.Duration, *wire.Refusal) {
	if name := req.Params["RoleSessionName"]; !sessionForm.MatchString(name) {
		return 0, wire.Refuse(400, "InvalidParameter.RoleSessionName", "The specified RoleSessionName %q is not valid: 2 to 64 letters, digits and . @ - _.", name)
	}
	seconds, no := req.Params.Integer("DurationSeconds", 3600)
	longest := cmp.Or(r.MaxSession, time.Hour)
	if no != nil || seconds < 900 || time.Duration(seconds) > longest/time.Second {
		return 0, wire.Refuse(400, "InvalidParameter.DurationSeconds", "The specified DurationSeconds %q is not valid: 900 to %d.", req.Params["DurationSeconds"], longest/time.Second)
	}
	switch policy := req.Params["Policy"]; {
	case len(policy) > 2048:
		return 0, wire.Refuse(400, "InvalidParameter.PolicySize", "The specified Policy is too long: at most 2048 characters.")
	case policy != "" && !strings.HasPrefix(strings.TrimSpace(policy), "{"):
		return 0, wire.Refuse(400, "InvalidParameter.PolicyGrammar", "The specified Policy is not valid: it is a JSON object.")
	}
	return time.Duration(seconds) * time.Second, nil
}

// renderSession returns a temporary key as STS shows it.
func renderSession(req *Request, key *wire.AccessKey) wire.Object {
	return wire.Object{
		"Credentials": wire.Object{
			"AccessKeyId": key.ID, "AccessKeySecret": key.Secret, "SecurityToken": key.Token, "Expiration": key.Expires.UTC().Format(wire.SecondTime),
		},
		"AssumedRoleUser": wire.Object{"Arn": sessionARN(req, key), "AssumedRoleId": roleID(req, key.Role) + ":" + key.Session},
	}
}

func sessionARN(req *Request, key *wire.AccessKey) string {
	return "acs:ram::" + req.Rules.Account + ":assumed-role/" + key.Role + "/" + key.Session
}

// roleID is the number that RAM gives a role.
func roleID(req *Request, name string) string {
	digits := strings.Map(func(r rune) rune { return '0' + r%10 }, wire.HexHash(req.Rules.Account + name)[:15])
	return "3" + digits
}
