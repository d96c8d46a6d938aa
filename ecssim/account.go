package ecssim

import (
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
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
