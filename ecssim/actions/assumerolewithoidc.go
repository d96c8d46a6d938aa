package actions

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim/wire"
)

var assumeRoleWithOIDCAction = Action{
	Name: "AssumeRoleWithOIDC", version: versionSTS, anyRegion: true, Unsigned: true,
	required: []string{"RoleArn", "RoleSessionName", "OIDCProviderArn", "OIDCToken"},
	optional: []string{"DurationSeconds", "Policy"},
	do:       assumeRoleWithOIDC,
}

// assumeRoleWithOIDC issues a temporary key of a role to whoever has a token
// of the role's identity provider. Nobody signs it.
func assumeRoleWithOIDC(req *Request) (wire.Object, *wire.Refusal) {
	role, life, no := readSession(req)
	if no != nil {
		return nil, no
	}
	if arn := req.Params["OIDCProviderArn"]; !hasProvider(req, arn) {
		return nil, wire.Refuse(404, "EntityNotExist.OIDCProvider", "The specified OIDCProvider %q does not exist.", arn)
	}
	claims, no := readIDToken(req.Params["OIDCToken"], time.Now())
	if no != nil {
		return nil, no
	}
	if providerARN(req, role.OIDCProvider) != req.Params["OIDCProviderArn"] || role.Subject != "" && role.Subject != claims.Subject ||
		role.Audience != "" && !slices.Contains(claims.audience, role.Audience) {
		return nil, wire.Refuse(403, "AuthenticationFail.NoPermission", "This operation is forbidden by permission system.")
	}
	reply := renderSession(req, req.keys.Issue(role.Name, req.Params["RoleSessionName"], time.Now(), life))
	reply["OIDCTokenInfo"] = wire.Object{"Subject": claims.Subject, "Issuer": claims.Issuer, "ClientIds": strings.Join(claims.audience, ",")}
	return reply, nil
}

func providerARN(req *Request, name string) string {
	return "acs:ram::" + req.Rules.Account + ":oidc-provider/" + name
}

// hasProvider tells whether any role trusts an identity provider.
func hasProvider(req *Request, arn string) bool {
	return slices.ContainsFunc(req.Rules.Roles, func(r Role) bool { return r.OIDCProvider != "" && providerARN(req, r.OIDCProvider) == arn })
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
