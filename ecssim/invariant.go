package ecssim

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Check returns what is wrong with the state, joined, or nil: what must hold
// in any ECS, and what a driver's test must not have broken. Two disks under
// one ClientToken, a disk where none can be, a count that does not add up.
func (s *Server) Check() error {
	var err error
	s.look(func(time.Time) { err = s.broken() })
	return err
}

func (s *Server) broken() error {
	var wrong []error
	first := map[string]*disk{} // by token
	for _, d := range s.disks.order {
		if other := first[d.token]; other != nil && d.created.Sub(other.created) < s.config.TokenLife {
			wrong = append(wrong, fmt.Errorf("disks %s and %s were made under one client token %q", other.id, d.id, d.token))
		}
		if d.token != "" {
			first[d.token] = d
		}
		spec := categories[d.category]
		if spec.regional != (d.zone == "") || d.zone != "" && !slices.Contains(s.config.Zones, d.zone) {
			wrong = append(wrong, fmt.Errorf("disk %s of category %s is in zone %q", d.id, d.category, d.zone))
		}
		if d.size < spec.min || d.size > spec.max {
			wrong = append(wrong, fmt.Errorf("disk %s of category %s has %d GiB", d.id, d.category, d.size))
		}
		if len(d.tags.current) > maxTags {
			wrong = append(wrong, fmt.Errorf("disk %s has %d tags", d.id, len(d.tags.current)))
		}
	}
	if s.disks.made-s.disks.deleted != len(s.disks.byID) {
		wrong = append(wrong, fmt.Errorf("%d disks made and %d deleted leave %d", s.disks.made, s.disks.deleted, len(s.disks.byID)))
	}
	return errors.Join(wrong...)
}
