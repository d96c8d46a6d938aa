package admin

import (
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/ecssim/config"
)

// accountRoutes change keys, permissions and quotas of the account.
//
//	denials:  who, action, empty as in Denial
//	policies: who and policy, a RAM policy as RAM itself takes it; none lifts it
//	keys:     id and secret (an empty one takes the key away), or endTemporary
//	quotas:   disks, gib and zoneGib by category, as in Quotas; 0 is no limit
func accountRoutes() []route {
	return []route{
		get("denials", func(s *ecssim.Server) any { return s.Denials() }),
		change("POST", "denials", deny),
		{"DELETE", "denials", func(s *ecssim.Server, _ []byte) (any, error) { s.ClearDenials(); return s.Denials(), nil }},
		change("POST", "policies", setPolicy),
		get("keys", func(s *ecssim.Server) any { return s.KeyIDs() }),
		change("POST", "keys", setKeys),
		change("POST", "quotas", func(s *ecssim.Server, q ecssim.Quotas) (any, error) { return q, s.SetQuotas(q) }),
	}
}

func deny(s *ecssim.Server, d ecssim.Denial) (any, error) {
	if err := s.Deny(d); err != nil {
		return nil, err
	}
	return s.Denials(), nil
}

type policyBody struct {
	Who    string         `json:"who"`
	Policy *ecssim.Policy `json:"policy"`
}

func setPolicy(s *ecssim.Server, want policyBody) (any, error) {
	return map[string]any{"who": want.Who}, s.SetPolicy(want.Who, want.Policy)
}

type keysBody struct {
	ID           string `json:"id"`
	Secret       string `json:"secret"`
	EndTemporary bool   `json:"endTemporary"`
}

func setKeys(s *ecssim.Server, want keysBody) (any, error) {
	if want.EndTemporary == (want.ID != "") {
		return nil, config.Invalid("id", want.ID, "an access key ID, with its new secret or an empty one to take it away; or endTemporary true instead")
	}
	if want.EndTemporary {
		return map[string]any{"ended": s.EndTemporaryKeys()}, nil
	}
	if err := s.SetAccessKey(want.ID, want.Secret); err != nil {
		return nil, err
	}
	return s.KeyIDs(), nil
}
