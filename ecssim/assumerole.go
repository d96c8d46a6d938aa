package ecssim

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim/wire"
)

var (
	assumeRole = action{
		name: "AssumeRole", version: versionSTS, anyRegion: true,
		required: []string{"RoleArn", "RoleSessionName"},
		optional: []string{"DurationSeconds", "Policy", "ExternalId", "SourceIdentity"},
		do:       (*Server).assumeRole,
	}
	assumeRoleWithOIDC = action{
		name: "AssumeRoleWithOIDC", version: versionSTS, anyRegion: true, unsigned: true,
		required: []string{"RoleArn", "RoleSessionName", "OIDCProviderArn", "OIDCToken"},
		optional: []string{"DurationSeconds", "Policy"},
		do:       (*Server).assumeRoleWithOIDC,
	}
)

// assumeRole issues a temporary key of a role to the owner of another key.
func (s *Server) assumeRole(x *exchange) (wire.Object, *wire.Refusal) {
	role, no := s.findRole(x.Params["RoleArn"])
	if no != nil {
		return nil, no
	}
	life, no := sessionLife(x, role)
	if no != nil {
		return nil, no
	}
	if role.Callers != nil && !slices.Contains(role.Callers, x.caller.Principal()) {
		return nil, wire.Refuse(403, "NoPermission", "You are not authorized to do this action. You should be authorized by RAM.")
	}
	return s.renderSession(s.keys.Issue(role.Name, x.Params["RoleSessionName"], time.Now(), life)), nil
}

// assumeRoleWithOIDC issues a temporary key of a role to whoever has a token
// of the role's identity provider. Nobody signs it.
func (s *Server) assumeRoleWithOIDC(x *exchange) (wire.Object, *wire.Refusal) {
	role, no := s.findRole(x.Params["RoleArn"])
	if no != nil {
		return nil, no
	}
	life, no := sessionLife(x, role)
	if no != nil {
		return nil, no
	}
	if arn := x.Params["OIDCProviderArn"]; !s.hasProvider(arn) {
		return nil, wire.Refuse(404, "EntityNotExist.OIDCProvider", "The specified OIDCProvider %q does not exist.", arn)
	}
	claims, no := readIDToken(x.Params["OIDCToken"], time.Now())
	if no != nil {
		return nil, no
	}
	if s.providerARN(role.OIDCProvider) != x.Params["OIDCProviderArn"] || role.Subject != "" && role.Subject != claims.Subject ||
		role.Audience != "" && !slices.Contains(claims.audience, role.Audience) {
		return nil, wire.Refuse(403, "AuthenticationFail.NoPermission", "This operation is forbidden by permission system.")
	}
	reply := s.renderSession(s.keys.Issue(role.Name, x.Params["RoleSessionName"], time.Now(), life))
	reply["OIDCTokenInfo"] = wire.Object{"Subject": claims.Subject, "Issuer": claims.Issuer, "ClientIds": strings.Join(claims.audience, ",")}
	return reply, nil
}

func (s *Server) providerARN(name string) string {
	return "acs:ram::" + s.config.Account + ":oidc-provider/" + name
}

// hasProvider tells whether any role trusts an identity provider.
func (s *Server) hasProvider(arn string) bool {
	return slices.ContainsFunc(s.config.Roles, func(r Role) bool { return r.OIDCProvider != "" && s.providerARN(r.OIDCProvider) == arn })
}

// idToken is what a token says.
type idToken struct {
	Subject  string          `json:"sub"`
	Issuer   string          `json:"iss"`
	Expires  float64         `json:"exp"`
	Audience json.RawMessage `json:"aud"` // one string or a list
	audience []string
}

// readIDToken reads a JSON Web Token (RFC 7519) without verifying its
// signature.
func readIDToken(text string, now time.Time) (idToken, *wire.Refusal) {
	invalid := wire.Refuse(400, "AuthenticationFail.OIDCToken.Invalid", "This OIDC Token is invalid.")
	parts := strings.Split(text, ".")
	if len(parts) != 3 || parts[2] == "" {
		return idToken{}, invalid
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return idToken{}, invalid
	}
	var token idToken
	if err := json.Unmarshal(payload, &token); err != nil || token.Expires == 0 {
		return idToken{}, invalid
	}
	var one string
	if json.Unmarshal(token.Audience, &one) == nil {
		token.audience = []string{one}
	} else if err := json.Unmarshal(token.Audience, &token.audience); err != nil {
		return idToken{}, invalid
	}
	if float64(now.Unix()) >= token.Expires {
		return idToken{}, wire.Refuse(400, "AuthenticationFail.OIDCToken.Expired", "This OIDC Token is expired.")
	}
	return token, nil
}
