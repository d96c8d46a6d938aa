package provisioner

import "github.com/topodisk/topodisk/provisioner/attempt"

// slots bound how many claims are worked on at the same time: so many until they have a volume, and so many whose volumes are being
// saved. So a slow API server keeps no claim from the driver, and a slow driver no volume from being saved.
type slots struct{ working, saving chan struct{} }

func newSlots(working, saving int) slots {
	return slots{working: make(chan struct{}, working), saving: make(chan struct{}, saving)}
}

// take waits for a slot of a claim whose work begins.
func (s slots) take() *slot {
	s.working <- struct{}{}
	return &slot{slots: s, held: s.working}
}

// slot is that of one claim.
type slot struct {
	slots
	held chan struct{}
}

func (s *slot) giveBack() { <-s.held }

// exchange waits for a slot of the other kind if the actions need it. Who is to save a volume keeps the slot until then, so that no more
// volumes are made than can be saved; who is done with that gives the slot back first, for two that wait for each other would wait
// for ever.
func (s *slot) exchange(actions []attempt.Action) {
	if len(actions) == 0 {
		return
	}
	switch actions[len(actions)-1].(type) {
	case attempt.SaveVolume:
		if s.held != s.saving {
			s.saving <- struct{}{}
			<-s.held
			s.held = s.saving
		}
	case attempt.ResultAction:
		if s.held != s.working {
			<-s.held
			s.working <- struct{}{}
			s.held = s.working
		}
	}
}
